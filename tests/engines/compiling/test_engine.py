"""`compile` in the transformers engine: what it answers, what it tells, and what a swap leaves of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.engines import news
from proctor.engines.base import EngineConfig, IterFeed
from proctor.engines.compiling.settings import Compile
from proctor.engines.news import News
from proctor.engines.transformers import TransformersEngine
from proctor.rows import UserError
from tests.engines.tiny import answers, ask_scene
from tests.supervise.helpers import Supervised

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]
torch = pytest.importorskip("torch", reason="needs the `transformers` extra")
pytest.importorskip("transformers", reason="needs the `transformers` extra")

BLOCKS = Compile(targets=("blocks",), backend="eager")
ROWS = [ask_scene(number, max_tokens=18, logprobs=True) for number in range(9)]


@pytest.fixture
def told() -> Iterator[list[News]]:
    found: list[News] = []
    news.listen(found.append)
    yield found
    news.listen(None)


def config(directory: Path, **changes: Any) -> EngineConfig:
    return EngineConfig("transformers", str(directory), dtype="float32", batch_size=3, **changes)


def loaded(directory: Path, **changes: Any) -> TransformersEngine:
    engine = TransformersEngine(config(directory, **changes))
    engine.check()
    engine.load()
    return engine


@pytest.mark.slow
def test_compiled_it_answers_the_same_and_tells_what_it_took(checkpoints: list[Path], told: list[News]):
    """By the `eager` back end, which computes what the model does: to the last bit of the log-probabilities."""
    expected = answers(loaded(checkpoints[-1]), ROWS)
    assert told == []
    engine = loaded(checkpoints[-1], compile=Compile(backend="eager"))
    assert [one.kind for one in told] == ["compile.done"]
    assert told[0].data["targets"] == "patch_embed, blocks, deepstack_mergers, merger"
    assert told[0].data["graphs"] == 4
    assert told[0].data["breaks"] == 0
    assert told[0].seconds is not None
    assert told[0].seconds > 0
    assert answers(engine, ROWS) == expected
    assert len(told) == 1  # rows of one, two and three images need no other graph


@pytest.mark.slow
def test_after_a_swap_the_same_code_runs_the_other_weights(checkpoints: list[Path], told: list[News]):
    expected = answers(loaded(checkpoints[-1]), ROWS)
    engine = loaded(checkpoints[0], compile=BLOCKS)
    before = engine._loaded._model
    assert answers(engine, ROWS) != expected
    engine.swap(config(checkpoints[-1], compile=BLOCKS))
    assert engine._loaded._model is not before
    compiled = [name for name, module in engine._loaded._model.named_modules() if module._compiled_call_impl]
    assert compiled == [f"model.visual.blocks.{number}" for number in range(3)]
    assert answers(engine, ROWS) == expected
    assert [one.kind for one in told] == ["compile.done"]


@pytest.mark.slow
def test_a_limit_that_is_hit_at_work_is_told(trained_model: Path, told: list[News]):
    """One graph for the warm-up's first picture; static sizes make every other one a new graph."""
    expected = answers(loaded(trained_model), ROWS)
    how = Compile(targets=("merger",), backend="eager", dynamic=False, recompile_limit=3)
    engine = loaded(trained_model, compile=how)
    assert answers(engine, ROWS) == expected
    kinds = [one.kind for one in told]
    assert kinds[0] == "compile.done"
    assert kinds[-1] == "compile.fell_back"
    assert kinds.count("compile.fell_back") == 1
    assert told[-1].data == {"target": "merger", "recompile_limit": 3}
    assert told[-1].action == "runs eagerly"
    again = [one for one in told if one.kind == "compile.again"]
    assert all("size mismatch" in one.message for one in again)


@pytest.mark.slow
def test_in_a_child_the_news_become_events_and_a_counter(trained_model: Path, tmp_path: Path):
    how = Compile(targets=("merger",), backend="eager", dynamic=False, recompile_limit=1)
    engine = Supervised(config(trained_model, compile=how), tmp_path, load_seconds=200.0, stall_seconds=100.0)
    try:
        found = list(engine.supervisor.answer(ROWS))
    finally:
        engine.supervisor.close()
    assert all(response.failure is None for response in found)
    done, fallen = engine.event("compile.done"), engine.event("compile.fell_back")
    assert done.engine == fallen.engine == "engine"
    assert done.duration is not None
    assert done.data["graphs"] == 1
    assert fallen.action == "runs eagerly"
    assert fallen.data["target"] == "merger"
    assert engine.supervisor.counters.fallbacks == 1
    assert engine.event("engine.closed").data["fallbacks"] == 1


def test_a_target_that_is_not_there_keeps_the_engine_from_starting(trained_model: Path):
    with pytest.raises(UserError, match="called 'attention'"):
        loaded(trained_model, compile=Compile(targets=("attention",), backend="eager"))


@pytest.mark.slow
def test_what_turns_out_to_be_impossible_at_work_ends_the_engine_and_blames_no_row(
    trained_model: Path, monkeypatch: pytest.MonkeyPatch
):
    engine = loaded(trained_model)

    def refuses(*_: object) -> None:
        raise UserError("merger cannot be compiled", where="engine.compile.targets", fix="leave it out")

    monkeypatch.setattr(engine._loaded, "_generate", refuses)
    with pytest.raises(UserError, match="merger cannot be compiled"):
        list(engine.stream(IterFeed(iter(ROWS)), lambda tokens: None))


@pytest.mark.slow
def test_without_it_nothing_of_it_is_even_imported(trained_model: Path):
    code = (
        "import sys; from tests.engines.compiling.test_engine import *\n"
        f"engine = loaded(Path({str(trained_model)!r})); answers(engine, ROWS[:1])\n"
        "assert all(module._compiled_call_impl is None for module in engine._loaded._model.modules())\n"
        "print(sorted(name for name in sys.modules if name.startswith('proctor.engines.compiling.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "['proctor.engines.compiling.settings']"


def test_a_model_without_a_vision_encoder_is_refused(tmp_path: Path):
    from tests.engines.other_models import write_text_model

    with pytest.raises(UserError, match="takes no images") as caught:
        loaded(write_text_model(tmp_path), compile=BLOCKS)
    assert caught.value.where == "engine.compile"


@pytest.mark.slow
def test_an_encoder_whose_inner_states_are_read_by_hooks_answers_the_same(tmp_path: Path, told: list[News]):
    """LLaVA takes the images from the last block but one, which transformers hears of by hooks on the blocks."""
    from tests.engines.other_models import write_llava

    directory = write_llava(tmp_path)
    rows = [ask_scene(number, max_tokens=6, logprobs=True) for number in range(6)]
    expected = answers(loaded(directory), rows)
    engine = loaded(directory, compile=Compile(backend="eager"))
    hooked = [name for name, module in engine._loaded._model.named_modules() if module._forward_hooks]
    assert any(name.endswith("layers.0") for name in hooked)
    assert any(name.endswith("layers.0.self_attn") for name in hooked)  # as before: out of the compiler's way only
    assert told[0].data["targets"] == "embeddings, blocks, projector"
    assert answers(engine, rows) == expected
