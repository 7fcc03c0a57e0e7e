from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.engines.base import EngineConfig, IterFeed
from proctor.engines.capabilities import capabilities
from proctor.engines.knobs import knobs_of, turned
from proctor.engines.transformers import TransformersEngine
from proctor.rows import ErrorKind, Request, Response, UserError
from tests.engines.ties import logprobs_after
from tests.engines.tiny import answers, ask, ask_scene, picture

pytestmark = pytest.mark.model


def config(directory: Path, **changes: Any) -> EngineConfig:
    return EngineConfig("transformers", str(directory), dtype="float32", **{"batch_size": 8, **changes})


def loaded(directory: Path, **changes: Any) -> TransformersEngine:
    engine = TransformersEngine(config(directory, **changes))
    engine.check()
    engine.load()
    return engine


@pytest.fixture(scope="module")
def engine(random_model: Path) -> Iterator[TransformersEngine]:
    engine = loaded(random_model, max_model_len=256)
    yield engine
    engine.close()


def kinds(found: dict[int, Response]) -> dict[int, ErrorKind | None]:
    return {id_: response.failure and response.failure.kind for id_, response in found.items()}


def test_rows_of_one_to_three_images_are_answered(engine: TransformersEngine):
    found = answers(engine, [ask_scene(number, max_tokens=4) for number in range(12)])
    assert {len(response.token_ids) for response in found.values()} == {4}
    assert {response.prompt_tokens for response in found.values()} == {30, 44, 58}
    assert {response.finish_reason for response in found.values()} == {"length"}
    assert all(response.text is not None and response.logprobs is None for response in found.values())


def test_a_batch_answers_as_its_rows_do_alone(engine: TransformersEngine):
    requests = [ask_scene(number, max_tokens=8) for number in range(12)]
    together = answers(engine, requests)
    for request in requests:
        assert answers(engine, [request])[request.id].token_ids == together[request.id].token_ids


def test_every_row_has_its_own_token_limit(engine: TransformersEngine):
    found = answers(engine, [ask_scene(number, max_tokens=1 + number) for number in range(8)])
    assert [len(found[number].token_ids) for number in range(8)] == list(range(1, 9))


def test_rows_without_images_are_answered_beside_others(engine: TransformersEngine):
    found = answers(engine, [ask(0, max_tokens=3), ask(1, [picture()], max_tokens=3), ask(2, max_tokens=3)])
    assert set(kinds(found).values()) == {None}
    assert found[0].prompt_tokens == found[2].prompt_tokens
    assert found[0].token_ids == found[2].token_ids


def test_one_bad_row_does_not_fail_its_neighbours(engine: TransformersEngine):
    good = {number: ask_scene(number, max_tokens=4) for number in range(4)}
    bad = {
        10: ask(10, [picture()], text="long " * 300),
        11: ask(11, [picture(4000, 4)]),
        12: ask(12, [picture()], slots=2),
        13: ask(13, [], slots=1),
        14: ask(14, [b"no image"]),
        15: ask(15, [picture(1, 1)]),
        16: ask(16, [picture()], max_tokens=256),
    }
    found = answers(engine, [*good.values(), *bad.values()])
    assert kinds(found) == {
        **dict.fromkeys(good, None),
        **dict.fromkeys(bad, ErrorKind.INFER_REJECTED),
        14: ErrorKind.PREPARE_DECODE,
    }
    alone = answers(engine, good.values())
    assert {number: found[number].token_ids for number in good} == {n: alone[n].token_ids for n in good}


@pytest.mark.parametrize(
    ("error", "kind"), [(RuntimeError, ErrorKind.INFER_FAILED), (ValueError, ErrorKind.INFER_REJECTED)]
)
def test_a_processor_that_raises_on_one_row_costs_that_row(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch, error: type[Exception], kind: ErrorKind
):
    processor = engine._loaded.processor

    def picky(*, text: list[str], **arguments: Any) -> Any:
        if any("poison" in one for one in text):
            raise error("no poison please")
        return processor(text=text, **arguments)

    monkeypatch.setattr(engine._loaded, "processor", picky)
    requests = [ask(id_, [picture()], text="poison" if id_ == 2 else "fine", max_tokens=2) for id_ in range(4)]
    found = answers(engine, requests)
    assert kinds(found) == {0: None, 1: None, 2: kind, 3: None}
    assert found[2].failure
    assert "no poison please" in found[2].failure.message


def test_running_out_of_memory_halves_the_batch(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch):
    import torch

    generate = engine._loaded._model.generate
    sizes: list[int] = []

    def small(**arguments: Any) -> Any:
        sizes.append(len(arguments["input_ids"]))
        if sizes[-1] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return generate(**arguments)

    monkeypatch.setattr(engine._loaded._model, "generate", small)
    assert engine._batches
    monkeypatch.setattr(engine._batches, "largest", None)
    found = answers(engine, [ask_scene(number, max_tokens=2) for number in range(8)])
    assert set(kinds(found).values()) == {None}
    assert sizes == [8, 4, 2, 2, 2, 2]


def test_logprobs_are_those_of_the_chosen_tokens(engine: TransformersEngine):
    wanted, unwanted = ask_scene(0, max_tokens=5, logprobs=True), ask_scene(1, max_tokens=5)
    found = answers(engine, [wanted, unwanted])
    assert found[1].logprobs is None
    logprobs = found[0].logprobs
    assert logprobs is not None
    assert len(logprobs) == 5
    # A greedy choice is the most likely of 512 tokens.
    assert all(-6.24 < logprob <= 0 for logprob in logprobs)


def test_logprobs_of_a_sampled_row_are_those_of_the_model(engine: TransformersEngine):
    """Not of the distribution after temperature: a row drawn when hot has low ones."""
    hot = answers(engine, [ask_scene(0, max_tokens=20, logprobs=True, temperature=50.0)])[0].logprobs
    greedy = answers(engine, [ask_scene(0, max_tokens=20, logprobs=True)])[0].logprobs
    assert hot is not None
    assert greedy is not None
    assert sum(hot) < sum(greedy)


def test_the_most_likely_tokens_are_told_in_order(engine: TransformersEngine):
    two, five, none = ask_scene(0, max_tokens=5, top_logprobs=2), ask_scene(1, max_tokens=5, top_logprobs=5), ask(2)
    found = answers(engine, [two, replace(five, sampling=replace(five.sampling, logprobs=True)), none])
    assert (found[0].logprobs, found[2].top_logprobs) == (None, None)
    assert found[0].top_logprobs is not None
    assert [len(position) for position in found[0].top_logprobs] == [2] * 5
    assert [position[0][0] for position in found[0].top_logprobs] == list(found[0].token_ids)
    assert found[1].top_logprobs is not None
    assert [len(position) for position in found[1].top_logprobs] == [5] * 5
    for logprob, token, position in zip(
        found[1].logprobs or (), found[1].token_ids, found[1].top_logprobs, strict=True
    ):
        assert position[0] == (token, logprob)
        assert [value for _, value in position] == sorted((value for _, value in position), reverse=True)


def test_the_whole_vocabulary_is_a_distribution(engine: TransformersEngine):
    (position,) = answers(engine, [ask_scene(0, max_tokens=1, top_logprobs=10_000)])[0].top_logprobs or ()
    assert len({token for token, _ in position}) == len(position) == 512
    assert sum(math.exp(value) for _, value in position) == pytest.approx(1, abs=1e-5)


def test_forced_tokens_are_chosen_and_scored_by_the_model(engine: TransformersEngine):
    wanted = {"max_tokens": 8, "logprobs": True, "top_logprobs": 3}
    free = answers(engine, [ask_scene(0, **wanted)])[0]
    again = answers(engine, [ask_scene(0, **wanted, forced=free.token_ids)])[0]
    assert again == free
    odd = (*free.token_ids[:3], 100, 101, 102)
    forced = answers(engine, [ask_scene(0, **wanted, forced=odd, temperature=1.0, stop=(free.text or "",))])[0]
    assert forced.token_ids == odd
    assert forced.finish_reason == "length"
    assert forced.logprobs is not None
    assert forced.top_logprobs is not None
    assert free.logprobs is not None
    assert free.top_logprobs is not None
    assert forced.logprobs[:3] == free.logprobs[:3]
    assert forced.top_logprobs[:4] == free.top_logprobs[:4]
    assert forced.logprobs[3] < free.logprobs[3]


def test_a_forced_answer_is_scored_as_the_models_own_forward_pass_does(engine: TransformersEngine):
    """An oracle beside the engine: prompt and answer in one pass."""
    tokens = (40, 41, 42, 43)
    request = ask_scene(3, logprobs=True, forced=tokens)
    told = answers(engine, [request])[3].logprobs
    assert told is not None
    for place, token in enumerate(tokens):
        expected = logprobs_after(engine._loaded, request, tokens[:place])[token]
        assert told[place] == pytest.approx(float(expected), abs=1e-4)


def test_rows_are_forced_beside_others_that_are_not(engine: TransformersEngine):
    rows = [ask_scene(number, max_tokens=2 + number) for number in range(4)]
    alone = answers(engine, rows)
    forced = replace(rows[2], sampling=replace(rows[2].sampling, forced=(50,) * 9))
    beside = answers(engine, [rows[0], rows[1], forced, rows[3]])
    assert beside[2].token_ids == (50,) * 9
    assert all(beside[number].token_ids == alone[number].token_ids for number in (0, 1, 3))


def test_tokens_that_cannot_be_forced_cost_their_row(engine: TransformersEngine):
    rows = {
        1: ask(1, forced=(512,)),
        2: ask(2, forced=(-1,)),
        3: ask(3, forced=(2, 40)),
        4: ask(4, forced=(40,) * 256),
        5: ask(5, forced=(40, 2)),
    }
    found = answers(engine, rows.values())
    assert kinds(found) == {**dict.fromkeys((1, 2, 3, 4), ErrorKind.INFER_REJECTED), 5: None}
    assert found[5].finish_reason == "stop"


def test_padding_moves_no_token(random_model: Path):
    rows = [ask_scene(number, max_tokens=6) for number in range(4)]
    plain, padded = loaded(random_model), loaded(random_model, options={"pad_to_multiple_of": 64})
    widths = []
    take_down = padded._loaded._inputs

    def inputs(some: Any) -> Any:
        made = take_down(some)
        widths.append(made["input_ids"].shape[1])
        return made

    padded._loaded._inputs = inputs  # type: ignore[method-assign]
    for row in rows:
        one, other = answers(plain, [row])[row.id], answers(padded, [row])[row.id]
        assert (one.token_ids, one.prompt_tokens) == (other.token_ids, other.prompt_tokens)
    assert set(widths) == {64}


def test_an_answer_ends_before_the_stop_text(engine: TransformersEngine):
    free = answers(engine, [ask_scene(4, max_tokens=8)])[4]
    assert free.text
    stop = free.text[2:4]
    found = answers(engine, [ask_scene(4, max_tokens=8, stop=(stop,)), ask_scene(5, max_tokens=8)])
    assert found[4].text == free.text[: free.text.index(stop)]
    assert found[4].finish_reason == "stop"
    assert len(found[4].token_ids) < len(free.token_ids)
    assert len(found[5].token_ids) == 8


def test_sampled_rows_do_not_depend_on_their_neighbours(engine: TransformersEngine):
    requests = [ask_scene(number, max_tokens=6, temperature=1.0, top_p=0.9) for number in range(8)]
    together = answers(engine, [*requests, ask_scene(100, max_tokens=3)])
    for request in requests[:4]:
        assert answers(engine, [request])[request.id].token_ids == together[request.id].token_ids
    assert len({response.token_ids for response in together.values()}) == 9


def test_every_step_reports_its_tokens(engine: TransformersEngine):
    reports: list[int] = []
    requests = [ask_scene(number, max_tokens=1 + number) for number in range(3)]
    responses = list(engine.stream(IterFeed(iter(requests)), reports.append))
    assert reports == [3, 2, 1]
    assert sum(reports) == sum(len(response.token_ids) for response in responses)


def test_a_batch_waits_a_moment_to_be_full(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch):
    batches: list[int] = []
    run = engine._loaded.answers

    class Dripping:
        """Hands out one request at a time."""

        def __init__(self) -> None:
            self.requests = [ask_scene(number, max_tokens=1) for number in range(4)]

        def take(self, room: int, *, wait: bool) -> list[Request]:
            return [self.requests.pop(0)] if self.requests else []

    def counted(rows: Any, report: Any) -> Any:
        batches.append(len(rows))
        return run(rows, report)

    monkeypatch.setattr(engine._loaded, "answers", counted)
    assert len(list(engine.stream(Dripping(), lambda tokens: None))) == 4
    assert batches == [4]


def test_a_text_model_is_answered_too(tmp_path: Path):
    from tests.engines.other_models import write_text_model

    found = answers(loaded(write_text_model(tmp_path)), [ask(0, max_tokens=4), ask(1, [picture()], max_tokens=4)])
    assert len(found[0].token_ids) == 4
    assert kinds(found) == {0: None, 1: ErrorKind.INFER_REJECTED}


def test_a_model_of_another_family_is_answered_too(tmp_path: Path):
    from tests.engines.other_models import write_llava

    rows = [
        ask(0, max_tokens=4),
        ask(1, [picture()], max_tokens=4),
        ask(2, [picture(), picture(64, 200)], max_tokens=4),
    ]
    found = answers(loaded(write_llava(tmp_path)), [*rows, ask(3, [picture()], max_tokens=128)])
    assert kinds(found) == {0: None, 1: None, 2: None, 3: ErrorKind.INFER_REJECTED}
    assert [found[number].prompt_tokens for number in range(3)] == [16, 22, 28]


def test_the_models_own_sampling_recommendations_are_not_followed(random_model: Path, tmp_path: Path):
    directory = shutil.copytree(random_model, tmp_path / "model")
    recommended = {
        "do_sample": True,
        "temperature": 9.0,
        "repetition_penalty": 5.0,
        "eos_token_id": [2],
        "pad_token_id": 0,
    }
    (directory / "generation_config.json").write_text(json.dumps(recommended))
    request = ask_scene(4, max_tokens=8)
    assert answers(loaded(directory), [request])[4].token_ids == answers(loaded(random_model), [request])[4].token_ids


def test_the_models_own_length_is_the_limit_where_none_is_set(random_model: Path):
    found = answers(loaded(random_model), [ask_scene(0, max_tokens=2), ask_scene(1, max_tokens=2048)])
    assert kinds(found) == {0: None, 1: ErrorKind.INFER_REJECTED}


def test_processor_arguments_reach_the_processor(random_model: Path):
    small = {"size": {"shortest_edge": 1024, "longest_edge": 4096}}
    found = answers(loaded(random_model, options={"mm_processor_kwargs": small}), [ask(0, [picture()], max_tokens=1)])
    assert found[0].prompt_tokens is not None
    assert found[0].prompt_tokens < 30


def test_an_option_with_a_typo_is_refused(random_model: Path):
    engine = TransformersEngine(config(random_model, options={"attn_implementaton": "eager"}))
    with pytest.raises(UserError, match="did you mean `attn_implementation`"):
        engine.check()


def test_a_missing_library_is_named(random_model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"engine.python: transformers cannot be imported in .*proctor\[transformers\]"):
        TransformersEngine(config(random_model)).check()


def test_a_missing_model_is_refused():
    with pytest.raises(UserError, match="is not a directory"):
        TransformersEngine(EngineConfig("transformers", "/nowhere")).check()


def test_a_gpu_that_is_not_there_is_named(random_model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match=r"engine.device: this torch sees no GPU"):
        TransformersEngine(config(random_model, device="cuda")).load()


def test_streaming_needs_a_loaded_model(random_model: Path):
    with pytest.raises(RuntimeError, match=r"before load"):
        next(TransformersEngine(config(random_model)).stream(IterFeed(iter([])), lambda tokens: None))


def test_every_value_of_every_knob_is_taken(random_model: Path):
    """Those of the environment take effect in a process of their own only."""
    plain = config(random_model)
    rows = [ask_scene(number, max_tokens=3, logprobs=True) for number in range(3)]
    turns = [
        (knob, value) for knob in knobs_of(plain, {}) for value in knob.values if knob.place in ("config", "option")
    ]
    assert {knob.name for knob, _ in turns} == {"attention", "padding", "dtype"}
    for knob, value in turns:
        changed, _ = turned(plain, {}, knob, value)
        engine = TransformersEngine(changed)
        engine.check()
        engine.load()
        assert set(kinds(answers(engine, rows)).values()) == {None}, knob


def test_the_reference_is_more_exact(random_model: Path):
    """Of the same rows in 16, 32 and 64 bits the first two are further from the last the coarser they are."""
    rows = [ask_scene(number, max_tokens=1, logprobs=True, top_logprobs=512) for number in range(4)]

    def distribution(dtype: str) -> list[float]:
        engine = TransformersEngine(replace(config(random_model), dtype=dtype))
        engine.load()
        found = answers(engine, rows)
        return [value for row in rows for (top,) in [found[row.id].top_logprobs or ()] for _, value in sorted(top)]

    assert capabilities(config(random_model)).reference == "float64"
    exact, single, half = (distribution(dtype) for dtype in ("float64", "float32", "bfloat16"))
    far = [max(abs(a - b) for a, b in zip(some, exact, strict=True)) for some in (single, half)]
    assert 0 < far[0] < 1e-4 < far[1] < 1
