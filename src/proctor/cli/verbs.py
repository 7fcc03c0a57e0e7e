"""Groups of verbs with one that may be left out."""

from __future__ import annotations

import typer
from typer.core import TyperGroup
from typing_extensions import override


def by_default(verb: str) -> type[TyperGroup]:
    """A group in which a first word that is no verb belongs to `verb`: it is what one asks without saying what."""

    class _ByDefault(TyperGroup):
        @override
        def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
            if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
                args = [verb, *args]
            return super().parse_args(ctx, args)

    return _ByDefault
