"""vLLM's switches for its encoder: as arguments, refused where they cannot work, and as a running engine has them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.engines.base import EngineConfig
from proctor.engines.compiling.settings import EncoderSwitches
from proctor.engines.vllm_arguments import engine_arguments
from proctor.engines.vllm_encoder import check_encoder, effects, encoder_arguments
from proctor.engines.vllm_worker import SwapExtension
from proctor.rows import UserError
from tests.engines.fake_vllm import write_vllm
from tests.engines.in_vllm import run_jobs, vllm_config
from tests.engines.vllm_child import Jobs

COMPILATION = """
    class CompilationConfig:
        compile_mm_encoder: bool = False
        cudagraph_mm_encoder: bool = False
        encoder_cudagraph_token_budgets: list[int] = field(default_factory=list)
        encoder_cudagraph_max_vision_items_per_batch: int = 0
"""
ARGUMENTS = """
    class EngineArgs:
        mm_encoder_tp_mode: str = "weights"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write_vllm(tmp_path, config__compilation=COMPILATION, engine__arg_utils=ARGUMENTS)


def config(options: dict[str, Any] | None = None, **switches: Any) -> EngineConfig:
    return EngineConfig("vllm", "models/one", options=options or {}, encoder=EncoderSwitches(**switches))


def refusal(home: Path, wanted: EngineConfig, *, on_cpu: bool = False) -> UserError:
    with pytest.raises(UserError) as caught:
        check_encoder(wanted, home, "9.9.9", on_cpu=on_cpu)
    return caught.value


def test_switches_become_arguments():
    wanted = config(encoder=True, graphs=True, graph_budgets=(64, 256), graph_max_images=8, parallel="data")
    assert encoder_arguments(wanted) == {
        "compilation_config": {
            "compile_mm_encoder": True,
            "cudagraph_mm_encoder": True,
            "encoder_cudagraph_token_budgets": [64, 256],
            "encoder_cudagraph_max_vision_items_per_batch": 8,
        },
        "mm_encoder_tp_mode": "data",
    }


def test_what_is_not_asked_for_is_not_set():
    assert encoder_arguments(config()) == {}
    assert encoder_arguments(EngineConfig("vllm")) == {}


def test_the_users_own_compilation_config_is_added_to():
    own = {"compilation_config": {"cudagraph_mode": "NONE"}}
    wanted = config(own, encoder=True)
    arguments = engine_arguments(wanted, on_cpu=False, takes_images=True)
    assert arguments["compilation_config"] == {"cudagraph_mode": "NONE", "compile_mm_encoder": True}
    assert own == {"compilation_config": {"cudagraph_mode": "NONE"}}


def test_what_this_version_has_is_accepted(home: Path):
    check_encoder(config(encoder=True, graphs=True, graph_budgets=(64,), parallel="data"), home, "9.9.9", on_cpu=False)


def test_what_it_has_not_is_refused(home: Path):
    error = refusal(home, config(graphs=True, graph_max_frames=4))
    assert error.where == "engine.compile.graph_max_frames"
    assert "vLLM 9.9.9 has no compilation_config.encoder_cudagraph_max_frames_per_batch" in error.what


@pytest.mark.parametrize(
    ("options", "switches", "words"),
    [
        ({"compilation_config": {"compile_mm_encoder": True}}, {"encoder": True}, "compile_mm_encoder as well"),
        ({"mm_encoder_tp_mode": "data"}, {"parallel": "data"}, "mm_encoder_tp_mode as well"),
        ({"compilation_config": 3}, {"encoder": True}, "is 3, to which nothing can be added"),
        ({"enforce_eager": True}, {"encoder": True}, "no effect with engine.options.enforce_eager"),
        ({"enforce_eager": True}, {"graphs": True}, "no effect with engine.options.enforce_eager"),
    ],
)
def test_options_that_say_otherwise_are_refused(
    home: Path, options: dict[str, Any], switches: dict[str, Any], words: str
):
    assert words in refusal(home, config(options, **switches)).what


@pytest.mark.parametrize(("switch", "words"), [("encoder", "fails at the first image"), ("graphs", "on a CPU")])
def test_on_a_cpu_they_are_refused_with_the_reason(home: Path, switch: str, words: str):
    error = refusal(home, config(**{switch: True}), on_cpu=True)
    assert error.where == f"engine.compile.{switch}"
    assert words in error.what


class Engine:
    """What is looked at of a running engine."""

    def __init__(self, worker: dict[str, Any] | None, mode: str = "VLLM_COMPILE", **changes: Any) -> None:
        settings = {"asked": True, "eager": False, "parallel": "data", "ranks": 2, "device": "cuda", "lora": None}
        settings |= changes
        self._worker = worker
        self.vllm_config = SimpleNamespace(
            compilation_config=SimpleNamespace(
                compile_mm_encoder=settings["asked"],
                cudagraph_mm_encoder=settings["asked"],
                mode=SimpleNamespace(name=mode),
            ),
            model_config=SimpleNamespace(
                enforce_eager=settings["eager"],
                multimodal_config=SimpleNamespace(mm_encoder_tp_mode=settings["parallel"]),
            ),
            parallel_config=SimpleNamespace(tensor_parallel_size=settings["ranks"]),
            device_config=SimpleNamespace(device_type=settings["device"]),
            lora_config=settings["lora"],
        )

    def collective_rpc(self, name: str) -> list[dict[str, Any]]:
        assert name == "proctor_encoder"
        if self._worker is None:
            raise NotImplementedError(name)
        return [self._worker]


WORKER = {"compiled": 25, "graphs": True, "budgets": [64, 256]}


def effect(engine: Engine, key: str, value: Any = True, **env: str) -> tuple[bool | None, str]:
    (found,) = effects(engine, EncoderSwitches(**{key: value}), env)
    return found.in_effect, found.why


def test_what_is_in_effect_is_said():
    assert effect(Engine(WORKER), "encoder") == (True, "25 modules of the encoder, compilation mode VLLM_COMPILE")
    assert effect(Engine(WORKER), "graphs") == (True, "budgets of 64, 256 encoder tokens")
    assert effect(Engine(WORKER), "parallel", "data") == (True, "over 2 ranks")


@pytest.mark.parametrize(
    ("changes", "env", "cause"),
    [
        ({"eager": True}, {}, " (enforce_eager)"),
        ({}, {"VLLM_BATCH_INVARIANT": "1"}, " (VLLM_BATCH_INVARIANT=1)"),
        ({}, {"TORCH_COMPILE_DISABLE": "1"}, " (TORCH_COMPILE_DISABLE=1)"),
        ({"device": "cpu", "lora": {}}, {}, " (adapters on the CPU platform)"),
        ({}, {"VLLM_BATCH_INVARIANT": "0"}, ""),
    ],
)
def test_in_mode_none_nothing_is_compiled_and_the_cause_is_named(
    changes: dict[str, Any], env: dict[str, str], cause: str
):
    found, why = effect(Engine(WORKER, mode="NONE", **changes), "encoder", **env)
    assert found is False
    assert why.startswith(f"the compilation mode is NONE{cause}: ")


@pytest.mark.parametrize(
    ("engine", "key", "value", "words"),
    [
        (Engine(WORKER, asked=False), "encoder", True, "has it off"),
        (Engine({**WORKER, "compiled": 0}), "encoder", True, "no module of this model's encoder"),
        (Engine(WORKER, asked=False), "graphs", True, "has it off"),
        (Engine(WORKER, eager=True), "graphs", True, "enforce_eager"),
        (Engine({**WORKER, "graphs": False}), "graphs", True, "cannot be recorded"),
        (Engine(WORKER, parallel="weights"), "parallel", "data", "the model does not support data"),
        (Engine(WORKER, ranks=1), "parallel", "data", "one rank"),
    ],
)
def test_what_is_not_in_effect_is_said_with_the_reason(engine: Engine, key: str, value: Any, words: str):
    found, why = effect(engine, key, value)
    assert found is False
    assert words in why


@pytest.mark.parametrize("key", ["encoder", "graphs"])
def test_workers_that_cannot_be_asked_leave_it_open(key: str):
    found, why = effect(Engine(None), key)
    assert found is None
    assert "cannot be asked" in why


def test_a_worker_counts_what_runs_as_compiled_code():
    modules = [
        SimpleNamespace(_is_encoder=True, do_not_compile=False),
        SimpleNamespace(_is_encoder=True, do_not_compile=True),
        SimpleNamespace(_is_encoder=False, do_not_compile=False),
        SimpleNamespace(),
    ]
    worker: Any = SwapExtension()
    worker.model_runner = SimpleNamespace(get_model=lambda: SimpleNamespace(modules=lambda: modules))
    assert worker.proctor_encoder() == {"compiled": 1, "graphs": False, "budgets": []}
    manager = SimpleNamespace(token_budgets=[64])
    worker.model_runner.model_state = SimpleNamespace(encoder_runner=SimpleNamespace(cudagraph_manager=manager))
    assert worker.proctor_encoder() == {"compiled": 1, "graphs": True, "budgets": [64]}


@pytest.mark.vllm
def test_the_installed_version_has_every_switch(vllm_python: Path):
    every = config(encoder=True, graphs=True, graph_budgets=(64,), graph_max_images=4, graph_max_frames=2)
    (home,) = vllm_python.parents[1].glob("lib/python3*/site-packages/vllm")
    check_encoder(every, home, "installed", on_cpu=False)
    check_encoder(config(parallel="data"), home, "installed", on_cpu=False)


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_cpu_build_refuses_them_before_it_starts(random_model: Path, vllm_python: Path, tmp_path: Path):
    wanted = [EncoderSwitches(encoder=True), EncoderSwitches(graphs=True), EncoderSwitches(parallel="data")]
    checked = [vllm_config(random_model, encoder=switches) for switches in wanted]
    found = run_jobs(vllm_python, tmp_path, Jobs(checked[-1], [], checked)).mistakes
    started, first, second, third = found
    assert "engine.compile.encoder: vLLM's CPU build fails at the first image" in (first or "")
    assert "engine.compile.graphs: there are no CUDA graphs on a CPU" in (second or "")
    assert (started, third) == (None, None)
