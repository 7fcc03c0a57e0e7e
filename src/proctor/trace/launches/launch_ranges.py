"""The path of NVTX ranges around each launch under watch."""

from __future__ import annotations

import itertools

from proctor.trace.launches.launches import Index, Launches
from proctor.trace.trace import Trace

_AT_ONCE = 20_000


def find_ranges(trace: Trace, launches: Launches) -> dict[int, str] | None:
    """Fills `Launches.path`.

    Returns:
        The paths in words, by their ids; None where the trace has no ranges.
    """
    from proctor.trace.nvtx.innermost import RANGE_OF_LAUNCH, innermost
    from proctor.trace.nvtx.paths import OUTSIDE

    if not trace.has("annotations"):
        return None
    paths = innermost(trace).paths
    index, used = Index(launches), set()
    rows = trace.rows(f"SELECT process, correlation, path FROM {RANGE_OF_LAUNCH} WHERE path <> ?", (OUTSIDE,))
    while some := list(itertools.islice(rows, _AT_ONCE)):
        row, at = index.of([each[0] for each in some], [each[1] for each in some])
        found = [some[each][2] for each in row.tolist()]
        launches.path[at] = found
        used.update(found)
    return {path: paths.text(path) for path in used}
