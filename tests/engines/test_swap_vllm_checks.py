"""The engine's side of a swap in vLLM, without vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.engines import EngineConfig, SwapRefused, sequence_check
from proctor.engines.capabilities import capabilities
from proctor.engines.surroundings import Site
from proctor.engines.vllm import VllmEngine
from proctor.engines.vllm_arguments import engine_arguments
from proctor.engines.vllm_swap import check_ready, replace_weights
from proctor.engines.vllm_worker import EXTENSION, SwapExtension
from proctor.rows import UserError
from tests.engines.fake_vllm import vllm_site, write_vllm

CONFIG = EngineConfig("vllm", "nowhere")


class Engine:
    """What a swap uses of vLLM's engine."""

    def __init__(self, *answers: str, busy: bool = False, stuck: bool = False) -> None:
        self.calls: list[Any] = []
        self._answers, self._busy, self._stuck = answers, busy, stuck

    def collective_rpc(self, method: str, args: tuple[str, ...]) -> list[Any]:
        self.calls.append((method, *args))
        return list(self._answers)

    def has_unfinished_requests(self) -> bool:
        return self._busy

    def reset_prefix_cache(self) -> bool:
        self.calls.append("prefix")
        return not self._stuck

    def reset_mm_cache(self) -> None:
        self.calls.append("mm")

    def reset_encoder_cache(self) -> None:
        self.calls.append("encoder")


def test_every_cache_is_emptied_after_the_weights_are_replaced() -> None:
    engine = Engine()
    replace_weights(engine, "model", "path")
    assert engine.calls == [("proctor_swap", "model", "path"), "prefix", "mm", "encoder"]


def test_a_cache_that_stays_full_is_no_swap() -> None:
    with pytest.raises(RuntimeError, match="did not empty its prefix cache"):
        replace_weights(Engine(stuck=True), "model", "")


def test_every_worker_is_asked_before_anything_changes() -> None:
    engine = Engine("", "no published weights: gone")
    with pytest.raises(SwapRefused, match="no published weights: gone"):
        check_ready(engine, "path")
    assert engine.calls == [("proctor_why_no_swap", "path")]
    check_ready(Engine("", ""), "")


def test_requests_in_flight_are_not_served_by_two_checkpoints() -> None:
    engine = Engine(busy=True)
    with pytest.raises(SwapRefused, match="requests are in flight"):
        check_ready(engine, "")
    assert engine.calls == []


def test_an_engine_without_the_interfaces_is_refused() -> None:
    with pytest.raises(SwapRefused, match="this vLLM's engine has no collective_rpc"):
        check_ready(object(), "")


def test_a_worker_says_what_it_lacks() -> None:
    class Old:
        def reload_weights(self) -> None: ...

    class New:
        def reload_weights(self, weights_iterator: Any = None, weights_path: Any = None) -> None: ...

    worker: Any = SwapExtension()
    for runner in (object(), Old()):
        worker.model_runner = runner
        assert "no reload_weights that takes weights" in worker.proctor_why_no_swap("")
    worker.model_runner = New()
    assert worker.proctor_why_no_swap("") == ""
    assert worker.proctor_why_no_swap("no path").startswith("no published weights: ")


def test_an_engine_that_is_torn_answers_nothing() -> None:
    engine = VllmEngine(CONFIG)
    engine._torn = True
    with pytest.raises(RuntimeError, match="has to be started anew"):
        next(engine.stream(None, print))  # type: ignore[arg-type]


def test_the_workers_are_extended_where_proctor_is() -> None:
    def extension(**options: Any) -> Any:
        wanted = EngineConfig("vllm", "nowhere", options=options)
        return engine_arguments(wanted, on_cpu=False, takes_images=False).get("worker_extension_cls")

    assert extension() == extension(distributed_executor_backend="mp") == EXTENSION
    assert extension(distributed_executor_backend="ray") is None
    assert extension(worker_extension_cls="mine.Own") == "mine.Own"
    module, _, name = EXTENSION.rpartition(".")
    assert (SwapExtension.__module__, SwapExtension.__name__) == (module, name)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, ""),
        ({"quantization": "fp8"}, "no swap with the option quantization='fp8'"),
        ({"enable_lora": True}, "no swap with the option enable_lora=True"),
        ({"load_format": "dummy"}, "no swap with the option load_format='dummy'"),
        ({"worker_extension_cls": "mine.Own"}, "no swap with the option worker_extension_cls='mine.Own'"),
        ({"speculative_config": {"model": "draft"}}, "no swap with the option speculative_config={'model': 'draft'}"),
    ],
)
def test_capabilities_say_what_stands_in_the_way(options: dict[str, Any], why: str, tmp_path: Path) -> None:
    home = write_vllm(tmp_path, v1__worker__gpu_worker="class Worker:\n    def reload_weights(self): ...\n")
    able = capabilities(EngineConfig("vllm", "nowhere", options=options), {}, vllm_site(home))
    assert (able.swap, able.why_no_swap) == (not why, why)


def test_a_version_that_cannot_reload_is_told(tmp_path: Path) -> None:
    able = capabilities(CONFIG, {}, vllm_site(write_vllm(tmp_path)))
    assert (able.swap, able.why_no_swap) == (False, "this vLLM cannot reload weights")
    assert capabilities(CONFIG, {}, Site()).why_no_swap == "vLLM is not installed"


def test_before_a_run_the_engines_own_environment_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Proctor's own has no vLLM, as a rule."""
    home = write_vllm(tmp_path, v1__worker__gpu_worker="class Worker:\n    def reload_weights(self): ...\n")
    installed = {"/its/own/python": vllm_site(home)}
    monkeypatch.setattr(sequence_check, "look", lambda _, python=None: installed.get(python, Site()))
    configs = {name: EngineConfig("vllm", str(tmp_path / name)) for name in ("one", "two")}
    with pytest.raises(UserError, match="takes over no other checkpoint: vLLM is not installed"):
        sequence_check.check_sequence(configs)
    with pytest.raises(UserError, match="cannot follow one in the same engine"):  # there are no files
        sequence_check.check_sequence(configs, {}, "/its/own/python")
