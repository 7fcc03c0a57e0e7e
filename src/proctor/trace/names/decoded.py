"""What a name says: fields with values, meanings and the evidence for them."""

from __future__ import annotations

import msgspec


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace says about one launch; None where it does not say.

    Attributes:
        block, grid: threads of a block, blocks of the grid, in x, y, z.
        cluster: blocks of a cluster in x, y, z; zeros where there is none.
        static_shared, dynamic_shared: bytes of shared memory a block.
        registers: a thread.
    """

    block: tuple[int, int, int] | None = None
    grid: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    static_shared: int | None = None
    dynamic_shared: int | None = None
    registers: int | None = None

    @property
    def threads(self) -> int | None:
        """Threads of a block."""
        return None if self.block is None else self.block[0] * self.block[1] * self.block[2]

    @property
    def shared(self) -> int | None:
        """Bytes of shared memory a block, static and dynamic together."""
        if self.static_shared is None:
            return self.dynamic_shared
        return self.static_shared + (self.dynamic_shared or 0)


class Field(msgspec.Struct, frozen=True):
    """One part of a name.

    Attributes:
        name: what it is about, e.g. ``tile``.
        value: as it stands in the name.
        meaning: in words; ``unknown`` where it has no public definition.
        evidence: arithmetic with the launch, or the code that says so; empty if there is nothing beyond the grammar.
        known: False where the meaning is not publicly defined.
    """

    name: str
    value: str
    meaning: str
    evidence: str = ""
    known: bool = True


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel's name, read.

    Attributes:
        name: as it was given.
        normal: its normal form.
        family: the grammar that read it, e.g. ``nvjet``; empty if none did.
        summary: one line.
        fields: in the order of the name.
        evidence: what the launch confirms, one line each.
        contradictions: what the launch denies, one line each.
        source: where the grammar is from.
        category, rule: what the line-up says.
    """

    name: str
    normal: str
    family: str = ""
    summary: str = ""
    fields: tuple[Field, ...] = ()
    evidence: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    source: str = ""
    category: str = ""
    rule: str = ""


class Reading(msgspec.Struct, kw_only=True):
    """What a grammar makes of a name, while it reads it."""

    family: str
    source: str
    summary: str = ""
    fields: list[Field] = []
    evidence: list[str] = []
    contradictions: list[str] = []

    def add(self, name: str, value: object, meaning: str, evidence: str = "") -> None:
        """Adds a field whose meaning is known."""
        self.fields.append(Field(name, str(value), meaning, evidence))

    def unknown(self, name: str, value: object, evidence: str = "") -> None:
        """Adds a field whose meaning is not publicly defined: shown, not explained."""
        self.fields.append(Field(name, str(value), "unknown", evidence, known=False))

    def compare(self, agrees: bool, line: str) -> None:
        """Files a line of evidence where it belongs."""
        (self.evidence if agrees else self.contradictions).append(line)
