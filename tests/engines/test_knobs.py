from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.engines.base import EngineConfig
from proctor.engines.capabilities import capabilities
from proctor.engines.knobs import Knob, knobs_of, turned
from proctor.engines.surroundings import Gpu, Package, Site
from tests.engines.planted import alone, asked, differing, planted, together

CONFIG = EngineConfig("vllm", "models/one", options={"seed": 1, "compilation_config": {"level": 3}})


def by_name(config: EngineConfig, site: Site | None = None, **env: str) -> dict[str, Knob]:
    knobs = knobs_of(config, env, site)
    found = {knob.name: knob for knob in knobs}
    assert len(found) == len(knobs)
    assert all(knob.baseline not in knob.values for knob in knobs)
    return found


# --- turning


def test_knobs_are_turned_where_they_are() -> None:
    option = Knob(name="eager", what="", place="option", key="enforce_eager")
    assert turned(CONFIG, {}, option, True)[0].options == {**CONFIG.options, "enforce_eager": True}
    dtype = Knob(name="dtype", what="", place="config")
    assert turned(CONFIG, {}, dtype, "float16") == (replace(CONFIG, dtype="float16"), {})
    threads = Knob(name="threads", what="", place="env", key="OMP_NUM_THREADS")
    assert turned(CONFIG, {"A": "1"}, threads, 2) == (CONFIG, {"A": "1", "OMP_NUM_THREADS": "2"})
    assert turned(CONFIG, {"OMP_NUM_THREADS": "2"}, threads, None) == (CONFIG, {})
    for place in ("traffic", "process"):
        assert turned(CONFIG, {"A": "1"}, Knob(name="x", what="", place=place), 1) == (CONFIG, {"A": "1"})


def test_a_switch_in_the_environment_is_written_as_a_number() -> None:
    knob = Knob(name="SPLIT", what="", place="env")
    assert turned(CONFIG, {}, knob, True)[1] == {"SPLIT": "1"}
    assert turned(CONFIG, {}, knob, False)[1] == {"SPLIT": "0"}


def test_a_dot_goes_into_a_mapping_and_leaves_the_rest_alone() -> None:
    knob = Knob(name="compile", what="", place="option", key="compilation_config.compile_mm_encoder")
    on, _ = turned(CONFIG, {}, knob, True)
    assert on.options == {"seed": 1, "compilation_config": {"level": 3, "compile_mm_encoder": True}}
    assert turned(on, {}, knob, None)[0] == CONFIG
    bare = EngineConfig("vllm")
    assert turned(turned(bare, {}, knob, True)[0], {}, knob, None)[0] == bare
    assert CONFIG.options == {"seed": 1, "compilation_config": {"level": 3}}


# --- scripted


def test_the_scripted_engine_declares_what_is_planted() -> None:
    knobs = [
        {"name": "block", "default": 64, "values": [128, 256, 512], "ordered": True},
        {"name": "FAST", "default": False, "values": [True], "env": True},
    ]
    config = planted({"at_least": {"block": 256}, "ulps": 4.0}, knobs=knobs)
    found = by_name(config)
    assert list(found) == ["block", "FAST", "dtype", "restart"]
    assert found["block"].ordered
    assert found["dtype"].control
    assert by_name(config, FAST="1")["FAST"].baseline is True
    expected = alone(config, asked(range(5)))
    for value, hit in ((128, 0), (256, 5), (512, 5)):
        changed, _ = turned(config, {}, found["block"], value)
        assert len(differing(alone(changed, asked(range(5))), expected)) == hit
    moved, _ = turned(config, {}, found["block"], 512)
    assert by_name(moved)["block"].values == (64, 128, 256)
    coarse, _ = turned(config, {}, found["dtype"], "bfloat16")
    assert len(differing(alone(coarse, asked(range(5))), expected)) == 5


def test_two_planted_knobs_may_have_an_effect_only_together() -> None:
    knobs = [{"name": name, "default": False, "values": [True]} for name in ("one", "two")]
    config = planted({"knobs": {"one": True, "two": True}, "ulps": 4.0}, knobs=knobs)
    found, rows = by_name(config), asked(range(5))
    expected = together(config, rows)
    for turn, hit in ((["one"], 0), (["two"], 0), (["one", "two"], 5)):
        changed = config
        for name in turn:
            changed, _ = turned(changed, {}, found[name], True)
        assert len(differing(together(changed, rows), expected)) == hit


def test_a_scripted_engine_without_numerics_has_only_its_process() -> None:
    assert list(by_name(EngineConfig("scripted"))) == ["restart"]
    can = capabilities(EngineConfig("scripted"))
    assert (can.token_ids, can.logprobs, can.top_logprobs, can.replay) == (False, False, 0, False)
    full = capabilities(planted())
    assert (full.token_ids, full.replay, full.reference) == (True, True, "float64")
    assert not full.caches_prompts
    assert capabilities(planted({"warm": 3})).caches_prompts


def test_a_server_has_no_knobs_and_cannot_replay() -> None:
    config = EngineConfig("openai", "m", options={"base_url": "http://127.0.0.1/v1"})
    assert knobs_of(config, {}) == ()
    can = capabilities(config)
    assert (can.token_ids, can.top_logprobs, can.replay, can.restart) == (False, 20, False, False)
    assert can.why_no_replay


# --- transformers


def model(directory: Path, dtype: str | None = "float32", **more: Any) -> str:
    about = {"model_type": "tiny", **({} if dtype is None else {"text_config": {"dtype": dtype}}), **more}
    (directory / "config.json").write_text(json.dumps(about))
    return str(directory)


def transformers_site(directory: Path, source: str, **site: Any) -> Site:
    home = directory / "transformers"
    (home / "models" / "tiny").mkdir(parents=True)
    (home / "models" / "tiny" / "modeling_tiny.py").write_text(source)
    package = Package(str(home), "transformers", "9.9")
    return Site(python="3.11", packages={"transformers": package, **site.pop("packages", {})}, cpus=4, **site)


def test_transformers_turns_attention_padding_threads_and_format(tmp_path: Path) -> None:
    site = transformers_site(tmp_path, "class A:\n    _supports_sdpa = True\n    _supports_flash_attn = True\n")
    config = EngineConfig("transformers", model(tmp_path))
    found = by_name(config, site, OMP_NUM_THREADS="1")
    assert list(found) == ["attention", "padding", "threads", "dtype", "restart"]
    assert (found["attention"].baseline, found["attention"].values) == ("sdpa", ("eager",))
    assert [value for value, _ in found["attention"].untried] == ["flash_attention_2"]
    assert (found["threads"].baseline, found["threads"].values) == (1, (2, 4))
    assert (found["dtype"].values, found["dtype"].control) == (("bfloat16",), True)
    assert found["padding"].values == (64,)
    eager = by_name(replace(config, options={"attn_implementation": "eager"}), site)["attention"]
    assert (eager.baseline, eager.values) == ("eager", ("sdpa",))
    assert capabilities(config, {}, site).reference == "float64"
    assert capabilities(replace(config, dtype="bfloat16"), {}, site).reference == "float32"


def test_transformers_tries_flash_attention_where_it_is(tmp_path: Path) -> None:
    packages = {"flash_attn": Package("/x", "flash-attn", "2.8")}
    gpus = (Gpu("a GPU", 9.0),)
    source = "class A:\n    _supports_sdpa = True\n    _supports_flash_attn = True\n"
    site = transformers_site(tmp_path, source, packages=packages, gpus=gpus)
    config = EngineConfig("transformers", model(tmp_path))
    assert by_name(config, site)["attention"].values == ("eager", "flash_attention_2")
    assert by_name(replace(config, device="cpu"), site)["attention"].values == ("eager",)


def test_transformers_does_not_try_what_a_model_does_not_declare(tmp_path: Path) -> None:
    site = transformers_site(tmp_path, "class A:\n    _supports_sdpa = False\n")
    knob = by_name(EngineConfig("transformers", model(tmp_path)), site)["attention"]
    assert (knob.baseline, knob.values) == ("eager", ())
    assert "sdpa" in dict(knob.untried)


@pytest.mark.parametrize(("dtype", "control"), [("float32", "bfloat16"), ("bfloat16", "float32"), (None, "float32")])
def test_the_control_is_another_format_than_the_models_own(tmp_path: Path, dtype: str | None, control: str) -> None:
    site = transformers_site(tmp_path, "")
    knobs = by_name(EngineConfig("transformers", model(tmp_path, dtype)), site)
    assert knobs["dtype"].values == (control,)


def test_a_model_that_is_not_there_has_knobs_all_the_same(tmp_path: Path) -> None:
    assert "dtype" in by_name(EngineConfig("transformers", str(tmp_path / "none")), transformers_site(tmp_path, ""))
