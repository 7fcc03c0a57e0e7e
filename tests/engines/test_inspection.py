from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.engines.base import EngineConfig
from proctor.engines.capabilities import Capabilities, capabilities
from proctor.engines.inspection import Inspection, inspect
from proctor.engines.knobs import Knob, knobs_of
from proctor.engines.surroundings import Gpu, Site, look
from tests.engines.fake_vllm import vllm_site, write_vllm

CONFIG = EngineConfig("vllm", "models/none", dtype="bfloat16")
GPU = Gpu("a GPU", 9.0)
ENCODER = "compilation_config.compile_mm_encoder"


def read(home: Path, *gpus: Gpu) -> Inspection:
    return inspect(CONFIG, {}, vllm_site(home, *gpus))


def line(home: Path, where: str) -> str:
    """The source line that a ``file:line`` names."""
    name, _, number = where.partition(":")
    return (home / name).read_text().splitlines()[int(number) - 1].strip()


def test_a_switch_that_is_read_works(tmp_path: Path) -> None:
    home = write_vllm(tmp_path)
    found = read(home, GPU)
    assert (found.device, found.versions["vllm"]) == ("cuda", "9.9.9")
    for name in ("disable_cascade_attn", "attention_backend", "kv_cache_dtype", "async_scheduling", ENCODER):
        switch = found.switch(name)
        assert (name, switch.exists, switch.effect) == (name, True, "works")
    assert line(home, found.switch("disable_cascade_attn").where).startswith("cascade =")
    assert line(home, found.switch("VLLM_CPU_ATTN_SPLIT_KV").where).startswith("split =")


def test_a_switch_that_the_version_lacks_does_not_exist(tmp_path: Path) -> None:
    found = read(
        write_vllm(tmp_path, envs="environment_variables = {}", engine__arg_utils="class EngineArgs:\n    x: int")
    )
    assert not any(switch.exists for switch in found.switches if not switch.name.startswith("compilation_config."))
    assert not found.switch("never heard of").exists


def test_a_field_that_says_so_has_no_effect(tmp_path: Path) -> None:
    model = '''
        class ModelConfig:
            disable_cascade_attn: bool = True
            """Deprecated: cascade attention has been removed, so this has no effect."""
    '''
    home = write_vllm(tmp_path, config__model=model)
    switch = read(home, GPU).switch("disable_cascade_attn")
    assert (switch.exists, switch.effect) == (True, "no effect")
    assert "cascade attention has been removed" in switch.why
    assert line(home, switch.where).startswith("disable_cascade_attn")


def test_a_message_that_says_so_does_as_well(tmp_path: Path) -> None:
    arguments = """
        MESSAGE = ("--enforce-eager is deprecated "
                   "and has no effect.")
        class EngineArgs:
            enforce_eager: bool = False
    """
    switch = read(write_vllm(tmp_path, engine__arg_utils=arguments), GPU).switch("enforce_eager")
    assert (switch.effect, switch.why) == ("no effect", "--enforce-eager is deprecated and has no effect.")


def test_what_nobody_reads_is_not_called_working(tmp_path: Path) -> None:
    found = read(write_vllm(tmp_path, v1__worker="", config__vllm="", compilation__breakable_cudagraph=""), GPU)
    assert found.switch("disable_cascade_attn").effect == "unknown"
    assert found.switch("VLLM_CPU_ATTN_SPLIT_KV").effect == "no effect"


def test_a_platform_may_overrule_a_switch(tmp_path: Path) -> None:
    home = write_vllm(tmp_path)
    found = read(home)
    assert found.device == "cpu"
    assert (found.switch("async_scheduling").effect, found.switch("attention_backend").effect) == ("no effect",) * 2
    assert line(home, found.switch("async_scheduling").where) == "scheduler_config.async_scheduling = False"
    assert "CPU_ATTN, CPU_MLA" in found.switch("attention_backend").why
    # Set under a condition only: nothing that always holds.
    assert found.switch("enable_prefix_caching").effect == "works"


def test_switches_that_cancel_each_other_are_followed_through_the_sources(tmp_path: Path) -> None:
    home = write_vllm(tmp_path)
    found = {conflict.switches[0]: conflict for conflict in read(home, GPU).conflicts}
    assert set(found) == {"VLLM_BATCH_INVARIANT", "VLLM_USE_BREAKABLE_CUDAGRAPH", "enforce_eager"}
    assert {conflict.loser for conflict in found.values()} == {ENCODER}
    assert [line(home, where) for where in found["VLLM_BATCH_INVARIANT"].where] == [
        'os.environ["VLLM_USE_BREAKABLE_CUDAGRAPH"] = "1"',
        "self.compilation_config.mode = CompilationMode.NONE",
        "self.do_not_compile = self.mode in [CompilationMode.NONE] or not enable_compile",
    ]
    assert len(found["enforce_eager"].where) == 2


def test_a_condition_that_is_negated_is_no_cause(tmp_path: Path) -> None:
    config = """
        class VllmConfig:
            def post(self):
                if not self.model_config.enforce_eager:
                    self.compilation_config.mode = CompilationMode.NONE
    """
    assert read(write_vllm(tmp_path, config__vllm=config), GPU).conflicts == ()


def test_without_the_gate_there_is_no_conflict(tmp_path: Path) -> None:
    assert read(write_vllm(tmp_path, compilation__decorators="x = 1"), GPU).conflicts == ()


def test_a_file_that_cannot_be_parsed_is_passed_over(tmp_path: Path) -> None:
    found = read(write_vllm(tmp_path, v1__odd="def disable_cascade_attn(:"), GPU)
    assert found.switch("disable_cascade_attn").effect == "works"


def test_nothing_is_said_where_vllm_is_not_installed() -> None:
    assert inspect(CONFIG, {}, Site(python="3.11")).switches == ()


def test_engines_without_a_package_have_nothing_to_read() -> None:
    assert inspect(EngineConfig("scripted")).switches == ()
    assert inspect(EngineConfig("openai")) == Inspection()


# --- knobs and capabilities that follow from it


def knobs(home: Path, *gpus: Gpu, config: EngineConfig = CONFIG, triton: bool = True, **env: str) -> dict[str, Knob]:
    return {knob.name: knob for knob in knobs_of(config, env, vllm_site(home, *gpus, triton=triton))}


def test_only_what_makes_sense_on_the_device_is_tried(tmp_path: Path) -> None:
    home = write_vllm(tmp_path)
    on_cpu, on_gpu = knobs(home), knobs(home, GPU, GPU)
    tried = {name for name, knob in on_gpu.items() if knob.values} - {
        name for name, knob in on_cpu.items() if knob.values
    }
    assert tried == {
        "VLLM_BATCH_INVARIANT",
        "VLLM_USE_V2_MODEL_RUNNER",
        "async_scheduling",
        "attention_backend",
        "kv_cache_dtype",
    }
    assert on_cpu["VLLM_CPU_ATTN_SPLIT_KV"].values == (False,)
    assert on_gpu["VLLM_CPU_ATTN_SPLIT_KV"].untried == (("", "on a CPU only"),)
    assert on_cpu["async_scheduling"].untried[0][1].endswith("(platforms/cpu.py:9)")
    # FLASHINFER is in this version, but its package is not here.
    assert on_gpu["attention_backend"].values == ("FLASH_ATTN",)
    assert "FLASHINFER" in dict(on_gpu["attention_backend"].untried)
    # This version has no such option, so devices cannot be added.
    assert on_gpu["tensor_parallel_size"].values == ()
    assert all(knob.values or knob.untried for knob in [*on_cpu.values(), *on_gpu.values()])


def test_hardware_that_is_too_old_and_packages_that_are_missing_are_named(tmp_path: Path) -> None:
    home = write_vllm(tmp_path)
    old = knobs(home, Gpu("old", 7.5))
    assert "compute capability 8.0" in old["VLLM_BATCH_INVARIANT"].untried[0][1]
    assert "compute capability 8.9" in dict(old["kv_cache_dtype"].untried)["fp8"]
    assert knobs(home, GPU, triton=False)["VLLM_BATCH_INVARIANT"].untried == (("", "its kernels need Triton"),)


def test_settings_are_turned_away_from_where_they_stand(tmp_path: Path) -> None:
    home = write_vllm(tmp_path)
    options = {"enable_prefix_caching": False, "enforce_eager": True, "max_num_batched_tokens": 128}
    found = knobs(home, GPU, config=EngineConfig("vllm", options=options), VLLM_CPU_ATTN_SPLIT_KV="0")
    assert found["enable_prefix_caching"].values == (True,)
    assert found["enforce_eager"].values == (False,)
    assert found["max_num_batched_tokens"].values == ()
    assert found["VLLM_CPU_ATTN_SPLIT_KV"].baseline is False


def test_an_encoder_is_not_compiled_in_vain(tmp_path: Path) -> None:
    home = write_vllm(tmp_path / "vllm")
    (tmp_path / "config.json").write_text(json.dumps({"vision_config": {}}))
    config = EngineConfig("vllm", str(tmp_path))
    assert knobs(home, GPU, config=config)["compile_mm_encoder"].values == (True,)
    eager = knobs(home, GPU, config=EngineConfig("vllm", str(tmp_path), options={"enforce_eager": True}))
    assert eager["compile_mm_encoder"].values == ()
    assert "config/vllm.py" in eager["compile_mm_encoder"].untried[0][1]
    assert knobs(home, config=config)["compile_mm_encoder"].untried == (("", "for GPUs only"),)
    assert "compile_mm_encoder" not in knobs(home, GPU)


def can(home: Path, *gpus: Gpu, triton: bool = True, **env: str) -> Capabilities:
    return capabilities(CONFIG, env, vllm_site(home, *gpus, triton=triton))


def test_replay_is_declared_only_where_it_runs(tmp_path: Path) -> None:
    home = write_vllm(tmp_path)
    assert can(home, GPU).replay
    assert can(home, GPU).replay_options == {"enable_trace_replay": True}
    assert can(home, GPU).top_logprobs == 33
    for refused, why in (
        (can(home), "CPU"),
        (can(home, GPU, triton=False), "Triton"),
        (can(home, GPU, VLLM_USE_V2_MODEL_RUNNER="0"), "VLLM_USE_V2_MODEL_RUNNER=0"),
    ):
        assert not refused.replay
        assert why in refused.why_no_replay
    older = write_vllm(tmp_path / "older", engine__arg_utils="class EngineArgs:\n    x: int = 1")
    assert can(older, GPU).why_no_replay == "this vLLM has no trace replay"


# --- the real packages


@pytest.mark.vllm
def test_the_installed_vllm(vllm_python: Path) -> None:
    site = look("vllm", str(vllm_python))
    found = inspect(CONFIG, {}, site)
    assert found.device == "cpu"
    assert found.versions["vllm"].startswith("0.")
    home = site.home("vllm")
    assert home is not None
    for name in ("async_scheduling", "disable_cascade_attn", "attention_backend"):
        switch = found.switch(name)
        assert (name, switch.exists, switch.effect) == (name, True, "no effect")
        assert line(home, switch.where)
    split = found.switch("VLLM_CPU_ATTN_SPLIT_KV")
    assert split.effect == "works"
    assert "VLLM_CPU_ATTN_SPLIT_KV" in line(home, split.where)
    conflicts = {conflict.switches[0]: conflict for conflict in found.conflicts}
    assert set(conflicts) == {"VLLM_BATCH_INVARIANT", "VLLM_USE_BREAKABLE_CUDAGRAPH", "enforce_eager"}
    assert "VLLM_USE_BREAKABLE_CUDAGRAPH" in line(home, conflicts["VLLM_BATCH_INVARIANT"].where[0])
    knob = {knob.name: knob for knob in knobs_of(CONFIG, {}, site)}
    assert knob["VLLM_CPU_ATTN_SPLIT_KV"].values == (False,)
    assert not capabilities(CONFIG, {}, site).replay


@pytest.mark.model
def test_the_installed_transformers(trained_model: Path) -> None:
    config = EngineConfig("transformers", str(trained_model))
    site = look("transformers")
    found = inspect(config, {}, site)
    assert found.switch("attn_implementation=sdpa").effect == "works"
    home = site.home("transformers")
    assert home is not None
    assert line(home, found.switch("attn_implementation=sdpa").where) == "_supports_sdpa = True"
    assert {knob.name: knob.values for knob in knobs_of(config, {}, site)}["attention"] == ("eager",)
