"""What the loop does after a sweep: pure logic, without Ray, files or time."""

from __future__ import annotations

from typing import NamedTuple

from pyroaring import BitMap64


class Sweep(NamedTuple):
    """One pass over the unanswered rows of a checkpoint.

    Attributes:
        number: 1, 2, ...
        block_rows: most rows in a block.
        spread: start every engine, however few blocks there are: the one that is started alone may be the broken one.
        engines: most engines to start.
    """

    checkpoint: str
    number: int
    block_rows: int
    spread: bool = False
    engines: int = 1

    @property
    def alone(self) -> bool:
        """Whether every row stands alone in its block, so that a worker's death has an owner."""
        return self.block_rows == 1


class Swept(NamedTuple):
    """How a sweep ended.

    Attributes:
        vanished: rows that did not come back in any way, not even with a retryable error.
        sent_back: rows that an engine out of order gave back.
        failed: an error of the stream itself ended it: what is missing is nobody's fault.
        halted: another sweep would have no prospect: no engine works, nothing can be written, too many errors.
    """

    vanished: int = 0
    sent_back: int = 0
    failed: bool = False
    halted: bool = False


class Course:
    """The sweeps over one checkpoint's rows.

    Rows that vanished with their worker run again in ever smaller blocks, until the guilty one stands alone; such
    sweeps do not count as tries, and there are few of them: about log16 of `block_rows`. Nor do sweeps count in which
    some engines worked and others gave their rows back: those run again in smaller blocks too, of which an engine that
    is out of order holds but a few.

    Args:
        block_rows: most rows in a block of the first sweep.
        tries: most sweeps that count.
    """

    def __init__(self, checkpoint: str, block_rows: int, tries: int) -> None:
        self.sweep = Sweep(checkpoint, 1, block_rows)
        self._tries = tries
        self._was_alone = False

    def goes_on(self, todo: BitMap64, left: BitMap64, swept: Swept) -> bool:
        """Takes note of how the sweep over `todo` ended, and says whether `left` gets another; `sweep` is then that."""
        checkpoint, number, block_rows, *_ = self.sweep
        if not left or swept.halted:
            return False
        searching = swept.vanished > 0 and not swept.failed
        crippled = swept.sent_back > 0 and left != todo
        if crippled or (searching and not self._was_alone):
            self._was_alone = self._was_alone or self.sweep.alone
            block_rows = smaller(block_rows)
        else:
            self._tries -= 1
            another_chance = swept.failed or searching or swept.sent_back > 0
            if self._tries <= 0 or (left == todo and not another_chance):
                return False
        self.sweep = Sweep(checkpoint, number + 1, block_rows, spread=swept.sent_back > 0)
        return True


def smaller(block_rows: int) -> int:
    """Rows in a block when blocks of `block_rows` have vanished: fast to 1, so that few sweeps find the guilty row."""
    return max(1, block_rows // 16)
