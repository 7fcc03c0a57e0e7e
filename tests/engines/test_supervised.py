"""The real engines in a supervised child: one row ends the process, three are at fault, the others are answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.engines.base import EngineConfig, Fault
from proctor.rows import ErrorKind
from tests.engines.in_vllm import vllm_config
from tests.engines.tiny import ask, ask_scene, picture
from tests.supervise.helpers import Supervised

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROWS = [ask_scene(number, max_tokens=24) for number in range(12)]
CRASHING = 3
BAD = {100: ask(100, [picture(4000, 4)]), 101: ask(101, [b"no image"]), 102: ask(102, [picture()], slots=2)}
KINDS = {
    CRASHING: ErrorKind.INFER_CRASHED,
    100: ErrorKind.INFER_REJECTED,
    101: ErrorKind.PREPARE_DECODE,
    102: ErrorKind.INFER_REJECTED,
}


def check_losses(config: EngineConfig, directory: Path, **settings: Any) -> None:
    faults = (Fault("crash", rows=(CRASHING,)),)
    config = msgspec.structs.replace(config, batch_size=4, faults=faults, fault_state=str(directory / "faults"))
    engine = Supervised(config, directory, load_seconds=200.0, stall_seconds=100.0, window=8, **settings)
    try:
        found = {response.id: response for response in engine.supervisor.answer([*ROWS, *BAD.values()])}
    finally:
        engine.supervisor.close()
    assert sorted(found) == [*range(12), *BAD]
    assert {row: response.failure.kind for row, response in found.items() if response.failure} == KINDS
    assert all("; waypoints" in (found[row].text or "") for row in range(12) if row != CRASHING)
    assert engine.supervisor.counters.tokens > 0


@pytest.mark.model
def test_transformers_loses_the_crashing_row_only(trained_model: Path, tmp_path: Path):
    check_losses(vllm_config(trained_model, kind="transformers"), tmp_path)


@pytest.mark.vllm
def test_vllm_in_its_own_environment_loses_the_crashing_row_only(
    trained_model: Path, vllm_python: Path, tmp_path: Path
):
    check_losses(vllm_config(trained_model), tmp_path, python=str(vllm_python))
