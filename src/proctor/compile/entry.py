"""The script that a bench's process runs, under whichever interpreter the engine needs.

The supervisor's script makes the package importable and nothing beside it; this one does the bench's work then.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parents[1] / "supervise" / "entry.py"))

    from proctor.compile.worker import main

    main(int(sys.argv[1]))
