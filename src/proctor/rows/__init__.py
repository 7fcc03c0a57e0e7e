"""The ground: row ids, requests and responses, records and error kinds. Imports nothing heavy."""

from __future__ import annotations

from proctor.rows.errors import ErrorKind, Failure, ProctorError, UserError
from proctor.rows.events import Event
from proctor.rows.exchange import ImagePart, Message, Part, Prompt, Request, Response, Sampling, TextPart
from proctor.rows.sample import Sample
from proctor.rows.text import is_blank, line_of, told

__all__ = [
    "ErrorKind",
    "Event",
    "Failure",
    "ImagePart",
    "Message",
    "Part",
    "ProctorError",
    "Prompt",
    "Request",
    "Response",
    "Sample",
    "Sampling",
    "TextPart",
    "UserError",
    "is_blank",
    "line_of",
    "told",
]
