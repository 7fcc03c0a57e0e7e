"""Swaps of the scripted engine, planted ones that go wrong, and how a fingerprint tells them apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.engines import EngineConfig, Fault, SwapRefused
from proctor.engines.base import Engine
from proctor.engines.capabilities import capabilities
from proctor.engines.config import engine_config
from proctor.engines.fingerprint import Fingerprint, asked_of, differences, fingerprint
from proctor.engines.registry import make_engine
from proctor.rows import ErrorKind
from proctor.spec import Checkpoint, ScriptedEngineSpec
from tests.engines.tiny import answers, ask

MODEL = {"by_checkpoint": True, "longest": 12}


def config(model: str = "runs/one", **options: Any) -> EngineConfig:
    return EngineConfig("scripted", model, options={"numerics": MODEL, **options})


def loaded(wanted: EngineConfig) -> Engine:
    engine = make_engine(wanted)
    engine.check()
    engine.load()
    return engine


def told(engine: Engine) -> Fingerprint:
    return fingerprint(asked_of(engine))


def test_a_swapped_engine_answers_as_one_that_was_started_with_the_checkpoint() -> None:
    engine = loaded(config("runs/one"))
    cold = {name: told(loaded(config(f"runs/{name}"))) for name in ("one", "two", "three")}
    assert len(set(cold.values())) == 3
    for name in ("two", "three", "one", "one"):
        engine.swap(config(f"runs/{name}"))
        assert differences(cold[name], told(engine)) == ""


def test_a_text_names_its_checkpoint() -> None:
    wanted = EngineConfig("scripted", "runs/one", options={"answer": "{checkpoint}: {row_id}"})
    engine = loaded(wanted)
    assert answers(engine, [ask(3)])[3].text == "one: 3"
    engine.swap(replace(wanted, model="runs/two"))
    assert answers(engine, [ask(3)])[3].text == "two: 3"


def test_without_being_asked_all_checkpoints_are_one_model() -> None:
    assert told(loaded(config("a", numerics={}))) == told(loaded(config("b", numerics={})))


def test_a_stale_swap_looks_well_and_is_found_by_its_fingerprint() -> None:
    engine = loaded(config(swap="stale"))
    before = told(engine)
    engine.swap(config("runs/two", swap="stale"))
    assert differences(before, told(engine)) == ""
    found = differences(told(loaded(config("runs/two"))), told(engine))
    assert found.startswith("short text: token 0 is ")
    assert found.endswith("(6 of 6 probes differ)")


def test_a_refused_swap_leaves_the_engine_as_it_was() -> None:
    engine = loaded(config(swap="refuse"))
    before = told(engine)
    with pytest.raises(SwapRefused, match="planted fault: swap to two refused") as refused:
        engine.swap(config("runs/two", swap="refuse"))
    assert refused.value.reason == "planted fault: swap to two refused"
    assert told(engine) == before


def test_a_failing_swap_is_no_refusal() -> None:
    engine = loaded(config(swap="raise"))
    with pytest.raises(RuntimeError, match="planted fault: swap to two fails"):
        engine.swap(config("runs/two", swap="raise"))


def test_only_chosen_checkpoints_go_wrong() -> None:
    wanted = config(swap="raise", swap_at=["two"])
    engine = loaded(wanted)
    engine.swap(replace(wanted, model="runs/three"))
    with pytest.raises(RuntimeError, match="two"):
        engine.swap(replace(wanted, model="runs/two"))


def test_swaps_go_wrong_as_often_as_they_were_told_to_whichever_engines_they_are(tmp_path: Path) -> None:
    wanted = replace(config(swap="refuse", swap_times=2), fault_state=str(tmp_path))
    engines = [loaded(wanted) for _ in range(3)]
    for engine in engines[:2]:
        with pytest.raises(SwapRefused):
            engine.swap(replace(wanted, model="runs/two"))
    for engine in engines:
        engine.swap(replace(wanted, model="runs/two"))
    with pytest.raises(ValueError, match="need a directory to count in"):
        make_engine(config(swap="refuse", swap_times=1)).check()


@pytest.mark.parametrize(("kind", "ends"), [("crash", -11), ("hang", None)])
def test_a_swap_that_crashes_or_hangs_takes_its_process_along(kind: str, ends: int | None) -> None:
    program = f"""
from proctor.engines import EngineConfig
from proctor.engines.registry import make_engine
config = EngineConfig("scripted", "one", options={{"swap": {kind!r}}})
engine = make_engine(config)
engine.load()
print("loaded", flush=True)
engine.swap(config)
print("swapped", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "loaded\n"
    if ends is None:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.5)
        child.kill()
    out, _ = child.communicate(timeout=30)
    assert out == ""
    assert child.returncode == (-9 if ends is None else ends)


def test_more_than_the_model_differs() -> None:
    engine = loaded(config())
    with pytest.raises(SwapRefused, match="differs in `batch_size`"):
        engine.swap(replace(config("runs/two"), batch_size=3))
    with pytest.raises(SwapRefused, match="differs in `faults`"):
        engine.swap(replace(config("runs/two"), faults=(Fault("blank", rows=(1,)),)))


def test_faults_are_those_of_the_checkpoint_and_spare_probes(tmp_path: Path) -> None:
    plain = config("runs/one")
    engine = loaded(replace(plain, faults=(Fault("reject", every=1),), fault_state=str(tmp_path)))
    rejected = answers(engine, [ask(1)])[1].failure
    assert rejected is not None
    assert rejected.kind is ErrorKind.INFER_REJECTED
    assert told(engine) == told(loaded(plain))
    engine.swap(replace(plain, model="runs/two"))
    assert answers(engine, [ask(1)])[1].failure is None
    engine.swap(replace(plain, model="runs/two", faults=(Fault("blank", rows=(1,)),)))
    found = answers(engine, [ask(1), ask(2)])
    assert found[1].text == ""
    assert found[2].text


def test_a_server_is_not_swapped() -> None:
    wanted = EngineConfig("openai", "one", options={"base_url": "http://127.0.0.1:9"})
    able = capabilities(wanted)
    assert not able.swap
    with pytest.raises(SwapRefused) as refused:
        make_engine(wanted).swap(replace(wanted, model="two"))
    assert refused.value.reason == able.why_no_swap == "the server's weights are not this engine's to change"


def test_the_spec_plants_swaps() -> None:
    spec = ScriptedEngineSpec(kind="scripted", checkpoints=["a"], swap="stale", swap_at=["b"])  # type: ignore[list-item]
    wanted = engine_config(spec, Checkpoint(name="a", path="a"))
    assert (wanted.options["swap"], list(wanted.options["swap_at"])) == ("stale", ["b"])
    make_engine(wanted).check()
    assert capabilities(wanted).swap
