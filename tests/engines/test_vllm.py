from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from proctor.engines.registry import make_engine
from proctor.engines.sampling import cut_at_stop
from proctor.rows import ErrorKind, Response
from tests.engines.in_vllm import environment, run_jobs, vllm_config
from tests.engines.tiny import answers, ask, ask_scene, picture
from tests.engines.vllm_child import Job, Jobs, Result, Results

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(300)]

GOOD = {number: ask_scene(number, max_tokens=4) for number in range(6)}
BAD = {
    10: ask(10, [picture()], text="long " * 300),
    11: ask(11, [picture(4000, 4)]),
    12: ask(12, [picture()], slots=2),
    13: ask(13, [], slots=1),
    14: ask(14, [b"no image"]),
    15: ask(15, [picture(1, 1)]),
    16: ask(16, [picture()], max_tokens=256),
    17: ask(17, [picture()], text="What is <|image_pad|>?"),
    18: ask(18, [picture()] * 5, max_tokens=4),
}
SAMPLED = [ask_scene(number, max_tokens=6, temperature=1.0, top_p=0.9) for number in range(8)]
STOPS = tuple(map(chr, range(128)))
"""One of these is in any noise."""


@pytest.fixture(scope="module")
def everything(random_model: Path, vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All jobs of this module through one engine: starting it is what takes time."""
    jobs = [
        Job("good", list(GOOD.values())),
        Job("with bad ones", [*GOOD.values(), *BAD.values()]),
        Job("only bad ones", list(BAD.values())),
        Job("trickle", [ask_scene(number, max_tokens=12) for number in range(12)], trickle=True),
        Job("nothing", []),
        Job("limits", [ask_scene(number, max_tokens=1 + number) for number in range(8)]),
        Job("logprobs", [ask_scene(0, max_tokens=5, logprobs=True), ask_scene(1, max_tokens=5)]),
        Job("top", [ask_scene(0, max_tokens=5, logprobs=True, top_logprobs=3), ask_scene(1, max_tokens=5)]),
        Job("only top", [ask_scene(0, max_tokens=5, top_logprobs=1)]),
        Job("sampled top", [ask_scene(3, max_tokens=6, temperature=1.0, logprobs=True, top_logprobs=2)]),
        Job("too many", [ask_scene(0, max_tokens=2, top_logprobs=21), ask_scene(1, max_tokens=2)]),
        Job("forced", [ask_scene(0, forced=(40, 41)), ask_scene(1, max_tokens=2)]),
        Job("sampled together", [*SAMPLED, ask_scene(100, max_tokens=3)]),
        Job("sampled alone", SAMPLED[3:4]),
        Job("other seed", [ask_scene(3, max_tokens=6, temperature=1.0, top_p=0.9, seed=1)]),
        Job("free", [ask(1, text="What do you see?", max_tokens=24)]),
        Job("stopped", [ask(1, text="What do you see?", max_tokens=24, stop=STOPS)]),
        Job("text only", [ask(1, max_tokens=3), ask(2, [picture()], max_tokens=3)]),
        Job("refused by length", [ask(1, [picture(colour="blue")], max_tokens=256)]),
        Job("refused by vLLM", [ask(1, [picture(colour="red")] * 3, text="long " * 60, max_tokens=1)]),
        Job("again", [ask(1, [picture(colour="blue")], max_tokens=2), ask(2, [picture(colour="red")], max_tokens=2)]),
    ]
    options = {"limit_mm_per_prompt": {"image": 4, "video": 0}, "mm_processor_cache_gb": 1}
    wrong = [
        vllm_config(random_model, options={"enforce_eagr": True}),
        vllm_config(random_model, options={"max_num_seqs": 4}),
        vllm_config(random_model, device="cuda"),
    ]
    work = tmp_path_factory.mktemp("vllm")
    # Without what earlier starts left in its cache, vLLM looks at the model's class in a process of its own.
    fresh = {"VLLM_CACHE_ROOT": str(work / "cache")}
    return run_jobs(vllm_python, work, Jobs(vllm_config(random_model, options=options), jobs, wrong), **fresh)


@pytest.fixture(scope="module")
def results(everything: Results) -> dict[str, Result]:
    return everything.results


def by_id(result: Result) -> dict[int, Response]:
    found = {response.id: response for response in result.responses}
    assert len(found) == len(result.responses)
    return found


def kinds(result: Result) -> dict[int, ErrorKind | None]:
    return {id_: response.failure and response.failure.kind for id_, response in by_id(result).items()}


def test_rows_of_one_to_three_images_are_answered(results: dict[str, Result]):
    found = by_id(results["good"])
    assert {len(response.token_ids) for response in found.values()} == {4}
    assert {response.prompt_tokens for response in found.values()} == {30, 44, 58}
    assert {response.finish_reason for response in found.values()} == {"length"}
    assert all(response.text is not None and response.logprobs is None for response in found.values())


def test_one_bad_row_does_not_fail_its_neighbours(results: dict[str, Result]):
    refused = {**dict.fromkeys(BAD, ErrorKind.INFER_REJECTED), 14: ErrorKind.PREPARE_DECODE}
    assert kinds(results["with bad ones"]) == {**dict.fromkeys(GOOD, None), **refused}
    assert kinds(results["only bad ones"]) == refused
    beside, alone = by_id(results["with bad ones"]), by_id(results["good"])
    assert {number: beside[number].token_ids for number in GOOD} == {n: alone[n].token_ids for n in GOOD}


def test_a_refusal_says_why(results: dict[str, Result]):
    found = by_id(results["only bad ones"])
    said = {id_: response.failure.message for id_, response in found.items() if response.failure}
    assert "more than 256" in said[16]
    assert "256" in said[10]
    assert "4000 x 4" in said[11]
    assert said[12] == "the prompt names 2 images, 1 are given"
    assert "At most 4 image" in said[18]


def test_it_is_fed_continuously(results: dict[str, Result]):
    """Requests are taken while others are unfinished: only the first one and the end of the feed are waited for."""
    result = results["trickle"]
    assert sorted(by_id(result)) == list(range(12))
    waits = [take for take in result.takes if take.wait]
    assert [(take.unfinished, take.given) for take in waits] == [(0, 1), (0, 0)]
    taken = [take for take in result.takes if take.given]
    assert len(taken) == 12
    assert all(take.unfinished > 0 for take in taken[1:])


def test_an_empty_feed_ends_the_stream(results: dict[str, Result]):
    assert results["nothing"].responses == []


def test_every_row_has_its_own_token_limit(results: dict[str, Result]):
    found = by_id(results["limits"])
    assert [len(found[number].token_ids) for number in range(8)] == list(range(1, 9))


def test_every_token_is_reported_once(results: dict[str, Result]):
    for name in ("good", "limits", "trickle", "logprobs"):
        result = results[name]
        assert sum(result.reports) == sum(len(response.token_ids) for response in result.responses)
        assert len(result.reports) > 1


def test_logprobs_are_those_of_the_chosen_tokens(results: dict[str, Result]):
    found = by_id(results["logprobs"])
    assert found[1].logprobs is None
    logprobs = found[0].logprobs
    assert logprobs is not None
    assert len(logprobs) == len(found[0].token_ids) == 5
    assert all(-6.24 < logprob <= 0 for logprob in logprobs)


def test_the_most_likely_tokens_are_told_in_order(results: dict[str, Result]):
    found = by_id(results["top"])
    assert (found[1].logprobs, found[1].top_logprobs) == (None, None)
    assert found[0].token_ids == by_id(results["logprobs"])[0].token_ids
    assert found[0].logprobs == by_id(results["logprobs"])[0].logprobs
    assert found[0].top_logprobs is not None
    for token, logprob, top in zip(found[0].token_ids, found[0].logprobs or (), found[0].top_logprobs, strict=True):
        assert top[0] == (token, logprob)
        assert len({id_ for id_, _ in top}) == len(top) == 3
        assert [value for _, value in top] == sorted((value for _, value in top), reverse=True)
    (only,) = by_id(results["only top"]).values()
    assert only.logprobs is None
    assert only.top_logprobs == tuple(top[:1] for top in found[0].top_logprobs)


def test_a_drawn_token_is_told_beside_the_most_likely_ones(results: dict[str, Result]):
    (found,) = by_id(results["sampled top"]).values()
    assert found.top_logprobs is not None
    assert found.logprobs is not None
    assert {len(top) for top in found.top_logprobs} == {2}
    drawn = list(zip(found.token_ids, found.logprobs, found.top_logprobs, strict=True))
    assert any(token not in dict(top) for token, _, top in drawn)
    assert all(logprob <= top[1][1] for token, logprob, top in drawn if token not in dict(top))


def test_what_this_vllm_cannot_do_costs_the_row_that_asks(results: dict[str, Result]):
    assert kinds(results["too many"]) == {0: ErrorKind.INFER_REJECTED, 1: None}
    assert kinds(results["forced"]) == {0: ErrorKind.INFER_REJECTED, 1: None}
    failure = by_id(results["forced"])[0].failure
    assert failure is not None
    assert "was not started to replay tokens" in failure.message


def test_sampled_rows_do_not_depend_on_their_neighbours(results: dict[str, Result]):
    together = by_id(results["sampled together"])
    assert by_id(results["sampled alone"])[3].token_ids == together[3].token_ids
    assert by_id(results["other seed"])[3].token_ids != together[3].token_ids
    assert len({response.token_ids for response in together.values()}) == 9


def test_an_answer_ends_before_the_stop_text(results: dict[str, Result]):
    free, stopped = by_id(results["free"])[1], by_id(results["stopped"])[1]
    assert free.text
    assert stopped.text == cut_at_stop(free.text, STOPS)
    assert stopped.finish_reason == "stop"
    assert len(stopped.token_ids) < len(free.token_ids)


def test_rows_without_images_are_answered_beside_others(results: dict[str, Result]):
    assert kinds(results["text only"]) == {1: None, 2: None}


def test_a_refused_rows_image_can_come_again(results: dict[str, Result]):
    """vLLM's cache of processed images remembers what was sent to the engine: a refused row's images were not."""
    assert kinds(results["refused by length"]) == kinds(results["refused by vLLM"]) == {1: ErrorKind.INFER_REJECTED}
    assert kinds(results["again"]) == {1: None, 2: None}


def test_mistakes_are_found_by_the_installed_version(everything: Results):
    fine, typo, reserved, device = everything.mistakes
    assert fine is None
    assert typo
    assert typo.startswith("engine.options: vLLM ")
    assert typo.endswith(" has no option `enforce_eagr` (did you mean `enforce_eager`?)")
    assert reserved
    assert "set engine.batch_size instead" in reserved
    assert device
    assert "this vLLM runs on cpu, not on cuda" in device


def tokens(result: Result) -> dict[int, tuple[int, ...]]:
    return {id_: response.token_ids for id_, response in by_id(result).items()}


def test_transformers_runs_beside_a_torchvision_that_cannot_load(random_model: Path, vllm_python: Path, tmp_path: Path):
    """vLLM's environment has such a torchvision; with the operators declared, transformers uses it for images."""
    config = vllm_config(random_model, kind="transformers")
    there = run_jobs(vllm_python, tmp_path, Jobs(config, [Job("good", list(GOOD.values()))])).results["good"]
    here = make_engine(config)
    here.load()
    assert tokens(there) == {id_: response.token_ids for id_, response in answers(here, GOOD.values()).items()}


def test_forced_tokens_are_handed_on_by_the_name_that_this_vllm_has(vllm_python: Path):
    """Where it replays, that is: this build cannot, so only the request is looked at."""
    code = (
        "from proctor.engines.torchvision_shim import declare_missing_operators as d; d()\n"
        "from proctor.engines.vllm_rows import _sampling_params\n"
        "from proctor.rows import Request, Sampling\n"
        "made = _sampling_params(Request(1, (), sampling=Sampling(max_tokens=9, forced=(4, 5, 6), top_logprobs=2)))\n"
        "print(made.trace_decode_token_ids, made.max_tokens, made.logprobs)\n"
    )
    command = [str(vllm_python), "-c", code]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[4, 5, 6] 3 2"
