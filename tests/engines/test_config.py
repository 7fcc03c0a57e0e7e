from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pydantic import TypeAdapter

from proctor.engines import EngineConfig, Fault
from proctor.engines.config import engine_config
from proctor.engines.numerics import Effect, Numerics, PlantedKnob
from proctor.engines.scripted import options_of
from proctor.spec import EffectSpec, EngineSpec, NumericsSpec, PlantedKnobSpec

_adapter: TypeAdapter[Any] = TypeAdapter(EngineSpec)


def config_of(**engine: Any) -> EngineConfig:
    spec = _adapter.validate_python({"checkpoints": ["models/one", "models/two"], **engine})
    return engine_config(spec, spec.checkpoints[1], "run/faults")


def test_every_kind_takes_its_own_keys() -> None:
    common = {"model": "models/two", "fault_state": "run/faults"}
    options = {"base_url": "http://127.0.0.1/v1", "api_key_env": None, "timeout_seconds": 120.0, "max_retries": 5}
    options["token_ids"] = False
    assert config_of(kind="openai", base_url="http://127.0.0.1/v1") == EngineConfig("openai", options=options, **common)
    assert config_of(kind="vllm", multiprocessing=True, dtype="float16", options={"seed": 1}) == EngineConfig(
        "vllm", dtype="float16", multiprocessing=True, options={"seed": 1}, **common
    )
    assert config_of(kind="transformers", device="cpu") == EngineConfig("transformers", device="cpu", **common)
    scripted = config_of(kind="scripted", helpers=2, close_seconds=1.5)
    assert (scripted.options["helpers"], scripted.options["close_seconds"]) == (2, 1.5)
    assert "numerics" not in scripted.options


def test_planted_numerics_arrive_as_they_were_written() -> None:
    knobs = [{"name": "SPLIT", "default": True, "values": [False], "env": True, "slower": 2.0}]
    effects = [{"ulps": 4.0, "batch": 8, "knobs": {"SPLIT": True}, "observed": False, "dtypes": ["bfloat16"]}]
    spec = {"seed": 3, "words": ["a", "b"], "digits": 5, "knobs": knobs, "effects": effects}
    numerics = options_of(config_of(kind="scripted", numerics=spec)).numerics
    assert numerics is not None
    assert numerics.knobs == (PlantedKnob("SPLIT", True, (False,), env=True, slower=2.0),)
    expected = Effect(ulps=4.0, batch=8, knobs={"SPLIT": True}, observed=False, dtypes=("bfloat16",))
    assert numerics == Numerics(seed=3, words=("a", "b"), digits=5, knobs=numerics.knobs, effects=(expected,))


@pytest.mark.parametrize(
    ("spec", "struct"), [(NumericsSpec, Numerics), (EffectSpec, Effect), (PlantedKnobSpec, PlantedKnob)]
)
def test_the_spec_and_the_engine_know_the_same_numerics(spec: Any, struct: Any) -> None:
    required = {"name": "SPLIT"} if spec is PlantedKnobSpec else {}
    assert msgspec.json.decode(msgspec.json.encode(struct(**required))) == spec(**required).model_dump()


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
