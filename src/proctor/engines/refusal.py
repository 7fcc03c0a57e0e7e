"""A row that an engine will not run: the reason travels as an exception to where the row is answered."""

from __future__ import annotations

from proctor.rows import ErrorKind, Failure, Response


class Refused(Exception):  # noqa: N818 (not an error of the program: a verdict on a row)
    """This row cannot be run; carries its failure."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message)

    def response(self, request_id: int) -> Response:
        """The row's response."""
        return Response.failed(request_id, self.failure)


def rejected(message: str) -> Refused:
    """The row asks for something the model cannot do: too long, wrong number of images, a degenerate image."""
    return Refused(ErrorKind.INFER_REJECTED, message)


def one_line(error: BaseException, limit: int = 300) -> str:
    """An exception as one line for a person: its type and the start of its message."""
    text = " ".join(str(error).split())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= limit else line[: limit - 3] + "..."


def check_length(prompt_tokens: int, max_tokens: int, limit: int) -> None:
    """Refuses a row whose prompt and answer together may not fit the model.

    Args:
        prompt_tokens: length of the prompt, image tokens included.
        max_tokens: most tokens that the answer may have.
        limit: most tokens of prompt and answer together.

    Raises:
        Refused: ``infer.rejected``.
    """
    if prompt_tokens + max_tokens > limit:
        raise rejected(
            f"too long: {prompt_tokens} prompt tokens and up to {max_tokens} answer tokens are more than {limit}"
        )
