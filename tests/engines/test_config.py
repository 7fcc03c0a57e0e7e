from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from proctor.engines import EngineConfig, Fault
from proctor.engines.config import engine_config
from proctor.spec import EngineSpec

_adapter: TypeAdapter[Any] = TypeAdapter(EngineSpec)


def config_of(**engine: Any) -> EngineConfig:
    spec = _adapter.validate_python({"checkpoints": ["models/one", "models/two"], **engine})
    return engine_config(spec, spec.checkpoints[1], "run/faults")


def test_every_kind_takes_its_own_keys() -> None:
    common = {"model": "models/two", "fault_state": "run/faults"}
    options = {"base_url": "http://127.0.0.1/v1", "api_key_env": None, "timeout_seconds": 120.0, "max_retries": 5}
    assert config_of(kind="openai", base_url="http://127.0.0.1/v1") == EngineConfig("openai", options=options, **common)
    assert config_of(kind="vllm", multiprocessing=True, dtype="float16", options={"seed": 1}) == EngineConfig(
        "vllm", dtype="float16", multiprocessing=True, options={"seed": 1}, **common
    )
    assert config_of(kind="transformers", device="cpu") == EngineConfig("transformers", device="cpu", **common)
    scripted = config_of(kind="scripted", helpers=2, close_seconds=1.5)
    assert (scripted.options["helpers"], scripted.options["close_seconds"]) == (2, 1.5)


def test_faults_are_those_of_the_checkpoint() -> None:
    faults = [
        {"kind": "kill", "rows": [1], "checkpoint": "one"},
        {"kind": "stop", "rows": [2], "checkpoint": "two"},
        {"kind": "truncate", "every": 5, "below": 2, "times": 3},
    ]
    assert config_of(kind="scripted", faults=faults).faults == (
        Fault("stop", (2,)),
        Fault("truncate", every=5, below=2, times=3),
    )
