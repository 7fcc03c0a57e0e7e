"""What may go to an engine, and what may pass as its answer."""

from __future__ import annotations

from msgspec.structs import replace

from proctor.rows import ErrorKind, Failure, Request, Response, is_blank

_MOST_TOKENS = 2**31 - 1


def refusal(request: Request) -> Failure | None:
    """Why no engine is to see this request: the images named in its prompt are not those that come with it.

    An engine may well answer such a request without a word, about other images than were meant.
    """
    named, given = request.image_slots, len(request.images)
    if named == given:
        return None
    return Failure(ErrorKind.INFER_REJECTED, f"the prompt names {named} image(s) but {given} came with it")


def _countable(response: Response) -> Response:
    """Without a number of tokens that no prompt has: records keep it in 32 bits, and servers say what they like."""
    tokens = response.prompt_tokens
    return response if tokens is None or 0 <= tokens <= _MOST_TOKENS else replace(response, prompt_tokens=None)


def examined(response: Response) -> Response:
    """The response as it may count: a failure carries no text, and a blank text is the failure ``infer.empty``."""
    response = _countable(response)
    if response.failure is not None:
        return response if response.text is None else replace(response, text=None)
    if response.text is not None and not is_blank(response.text):
        return response
    what = "no text" if response.text is None else f"blank text of {len(response.text)} character(s)"
    reason = f", finish reason {response.finish_reason}" if response.finish_reason else ""
    return replace(response, text=None, failure=Failure(ErrorKind.INFER_EMPTY, f"the engine gave {what}{reason}"))
