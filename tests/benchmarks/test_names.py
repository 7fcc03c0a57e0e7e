"""Every benchmark is one that `make bench` runs and that the documentation explains."""

from __future__ import annotations

import ast
from pathlib import Path

from benchmarks.__main__ import NAMES

ROOT = Path(__file__).parents[2]


def test_every_benchmark_is_run_and_explained() -> None:
    found = set()
    for file in (ROOT / "benchmarks").glob("*.py"):
        body = ast.parse(file.read_text()).body
        titled = any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TITLE" for node in body)
        if titled and any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in body):
            found.add(file.stem)
    assert found == set(NAMES)
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [name for name in NAMES if f"| `{name}` |" not in page] == []
