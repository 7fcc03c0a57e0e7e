"""The command line: parses, calls one function, prints. No logic lives here."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; see `proctor.cli.app.main`. An interrupt while that is imported is one like any other."""
    try:
        from proctor.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    run()


__all__ = ["main"]
