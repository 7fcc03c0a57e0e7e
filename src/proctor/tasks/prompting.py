"""Builds prompts: an optional system message, then one user message with the row's images followed by its text."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter

from proctor.rows import ImagePart, Message, Prompt, Sample, TextPart, UserError
from proctor.spec.source import ColumnsSpec
from proctor.spec.task import TaskBase
from proctor.tasks.values import value_text


@dataclass(frozen=True, slots=True)
class Prompting:
    """Turns samples into prompts.

    Attributes:
        template: text of the question, ``{column}`` for a value of the row, ``{{`` and ``}}`` for a brace.
        system: text of the system message, None for none.
        column: column with a row's own text, taken as it is, instead of the template.
    """

    template: str
    system: str | None = None
    column: str | None = None

    @classmethod
    def of(cls, spec: TaskBase, columns: ColumnsSpec, default: str | None = None) -> Prompting:
        """The prompting that `spec` and `columns` ask for; `default` is the task's own question.

        Raises:
            UserError: there is no prompt at all, or the template is malformed.
        """
        template = spec.prompt if spec.prompt is not None else default
        if template is None and columns.prompt is None:
            raise UserError("not set, and this task has no question of its own", where="task.prompt")
        template_fields(template or "")
        return cls(template or "", spec.system, columns.prompt)

    def prompt(self, sample: Sample) -> Prompt:
        """The messages for `sample`.

        Raises:
            ValueError: the row has no such column, or its value has no text.
        """
        text = fill(self.template, sample) if self.column is None else _column_text(sample, self.column)
        user = Message("user", (*(ImagePart() for _ in sample.images), TextPart(text)))
        if self.system is None:
            return (user,)
        return (Message("system", (TextPart(self.system),)), user)


def template_fields(template: str) -> list[str]:
    """Names of the columns that `template` asks for, in order.

    Raises:
        UserError: an unpaired brace, an empty ``{}``, or a conversion or format (``{a!r}``, ``{a:.2f}``).
    """
    names: list[str] = []
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise UserError(str(error), where="task.prompt", fix="write a literal brace twice: {{ or }}") from error
    for _, name, layout, conversion in pieces:
        if name is None:
            continue
        if not name or layout or conversion:
            raise UserError(
                "only {column} may stand in braces, without position, conversion or format",
                where="task.prompt",
                fix="write a literal brace twice: {{ or }}",
            )
        names.append(name)
    return names


def fill(template: str, sample: Sample) -> str:
    """`template` with the values of the row.

    A name in braces is looked up whole (``{a.b}`` is the column "a.b"), so no attribute of a value is ever reached.

    Raises:
        ValueError: the row has no such column, or its value has no text.
    """
    filled: list[str] = []
    for literal, name, _, _ in Formatter().parse(template):
        filled.append(literal)
        if name is not None:
            filled.append(_column_text(sample, name))
    return "".join(filled)


def _column_text(sample: Sample, name: str) -> str:
    if name not in sample.fields:
        raise ValueError(f"the prompt asks for column {name!r}; the row has {', '.join(sample.fields) or 'none'}")
    try:
        return value_text(sample.fields[name])
    except ValueError as error:
        raise ValueError(f"the prompt asks for column {name!r}, which {error}") from None
