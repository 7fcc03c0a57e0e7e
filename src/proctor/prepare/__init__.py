"""From a sample to what an engine is asked: images checked and treated, the prompt and the target made by the task.

One way for all who ask an engine: runs, plans and audits. A fault here costs its own row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from proctor.images import DecodeError
from proctor.images.rules import ImageRules, one_line, treat
from proctor.rows import ErrorKind, Failure, Prompt, Request, Sample, Sampling, told
from proctor.tasks import Task


class Prepared(NamedTuple):
    """One row, ready for an engine.

    Attributes:
        images: encoded images in prompt order.
        conversions: what was done to them, in one line; None if nothing was.
        prompt: a `proctor.rows.Prompt` as JSON.
        target: what the answer is marked against, as JSON; None where the row has none.
    """

    images: tuple[bytes, ...]
    conversions: str | None
    prompt: str
    target: str | None

    def request(self, row_id: int, sampling: Sampling) -> Request:
        """The request of this row."""
        prompt = msgspec.json.decode(self.prompt, type=Prompt)
        return Request(id=row_id, prompt=prompt, images=self.images, sampling=sampling)


def prepare_sample(sample: Sample, task: Task, rules: ImageRules) -> Prepared | Failure:
    """Prepares one row. Never raises for what a row or a user's task does."""
    try:
        return _prepared(sample, task, rules)
    except _BadImage as error:
        return Failure(ErrorKind.PREPARE_DECODE, str(error))
    except (Exception, SystemExit) as error:  # a user's task may raise anything; it costs this row only
        return Failure(ErrorKind.PREPARE_FAILED, told(error))


class _BadImage(Exception):  # noqa: N818 (a row's state on its way to a failure)
    """An image of the row cannot be decoded."""


def _prepared(sample: Sample, task: Task, rules: ImageRules) -> Prepared:
    treated = []
    for number, image in enumerate(sample.images, start=1):
        try:
            treated.append(treat(image, rules))
        except DecodeError as error:
            raise _BadImage(f"image {number} of {len(sample.images)}: {error}") from error
    conversions = one_line([image.changes for image in treated])
    target = _json(task.target(sample))
    return Prepared(tuple(image.data for image in treated), conversions, _prompt(task.prompt(sample)), target)


def _prompt(value: Any) -> str:
    """A prompt as JSON; a user's task may return anything."""
    encoded = msgspec.json.encode(value)
    if not msgspec.json.decode(encoded, type=Prompt):
        raise ValueError("the prompt has no messages")
    return encoded.decode()


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
