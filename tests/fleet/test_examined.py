"""What the doctor says of a fleet's checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.fleet.examined import _checkpoints
from proctor.fleet.loading import load_fleet
from tests.fleet.making import RUN, write_checkpoint, write_fleet

MODELS = {**RUN, "engine": {"kind": "transformers"}}


@pytest.mark.parametrize(
    ("run", "checkpoints", "level", "what"),
    [
        (RUN, ["a", "b"], "ok", "2 listed"),
        (MODELS, ["models/a"], "ok", "1 listed"),
        (MODELS, ["models/a", "models/z"], "warning", "2 listed, 1 not on this machine: {}/models/z"),
        (MODELS, None, "missing", "none listed"),
        (MODELS, {"glob": "models/*"}, "ok", "1 found, 1 not whole yet"),
        (MODELS, {"glob": "models/b*"}, "missing", "none found, 1 not whole yet: {}/models/b: no weights yet"),
        (MODELS, {"glob": "models/x*"}, "missing", "none found, 0 not whole yet"),
        (MODELS, {"watch": "models"}, "ok", "1 found, 1 not whole yet"),
        (MODELS, {"watch": "models", "match": "x*"}, "ok", "0 found, 0 not whole yet"),
    ],
)
def test_what_is_said_of_checkpoints(
    tmp_path: Path, run: dict[str, Any], checkpoints: Any, level: str, what: str
) -> None:
    write_checkpoint(tmp_path / "models" / "a")
    (tmp_path / "models" / "b").mkdir()
    (tmp_path / "models" / "b" / "config.json").write_text("{}")
    matrix = {} if checkpoints is None else {"checkpoints": checkpoints}
    (finding,) = _checkpoints(load_fleet(write_fleet(tmp_path, run=run, matrix=matrix)))
    assert (finding.level, finding.what) == (level, what.format(tmp_path))
    assert bool(finding.fix) == (level != "ok")
