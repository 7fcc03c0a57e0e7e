"""``python -m benchmarks.scale``: 10,000, 100,000 and 1,000,000 rows of 5 to 10 tiny JPEGs, in one run each."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.scale import report
from benchmarks.scale.data import dataset
from benchmarks.scale.measure import measure

SIZES = (10_000, 100_000, 1_000_000)
BLOCK_ROWS = 1024


def main() -> None:
    """The command. Ends with 1 when something that has to hold does not."""
    parser = argparse.ArgumentParser(prog="benchmarks.scale", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES, help="sizes, ascending")
    parser.add_argument("--data", type=Path, help="directory that keeps the data set (default: made anew, removed)")
    parser.add_argument("--judge", action="store_true", help="only judge the results that are there, anew")
    arguments = parser.parse_args()
    if arguments.judge:
        sys.exit("\n".join(report.judge()) or None)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scale-")))
        began = time.monotonic()
        data = dataset(arguments.data or work, max(arguments.rows))
        print(f"data: {time.monotonic() - began:.0f} s", flush=True)
        found = []
        for rows in arguments.rows:
            found.append(measure(data, rows, work, BLOCK_ROWS))
            print(report.line(found[-1]), flush=True)
        failures = report.write(data, found, BLOCK_ROWS)
    print(f"scale done: {report.MARKDOWN}")
    sys.exit("\n".join(failures) or None)


if __name__ == "__main__":
    main()
