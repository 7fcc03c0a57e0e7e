"""Public reports of answers that are wrong, planted: the audit tells them from rounding, and names the setting.

Reports of engines that do not give the same answer twice are in ``test_reports.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.audit.bench import Asking, EngineOrder
from proctor.audit.compare import compare
from proctor.audit.conduct import Auditor
from proctor.audit.model import Comparison, Observation
from proctor.rows import UserError
from proctor.spec import build_spec
from proctor.tasks.differences import mcnemar
from proctor.tasks.statistics import wilson
from tests.audit.planted import audited, evident, in_process, own_answers, spec_of, threshold
from tests.engines.tiny import picture

COMPILED = {"name": "compile", "default": False, "values": [True]}
PICTURES = [picture(8 + row, 8, format_="PNG") for row in range(10)]
ARMS = {"arms": ["batch", "compile", "images"]}


# --- one setting of the engine


def test_vllm_41758_speculation_parts_all_answers_at_byte_27_of_a_server_that_tells_texts(tmp_path: Path) -> None:
    """20 of 20 pairs differ with n-gram speculation, none in the control; there are no token ids."""
    words = [
        f"{chr(48 + number)}{'x' * 7}" for number in range(64)
    ]  # a space follows: 9 bytes a word, another first one
    lost = {"loses": 30.0, "step": 3, "knobs": {"speculation": "ngram"}}
    knob = {"name": "speculation", "default": "off", "values": ["ngram"]}
    server = {"text_only": True, "words": words, "vocabulary": 64, "shortest": 6, "longest": 12}
    arms = {"arms": ["repeat", "restart", "speculation"]}
    audit, lab = audited(tmp_path, lost, rows=20, knobs=[knob], audit=arms, **server)
    assert audit.verdict.kind == "isolated"
    assert audit.verdict.causes == (("speculation",),)
    assert audit.verdict.nature == "unknown", "a text says nothing of rounding"
    seen = lab.comparison("speculation=ngram")
    assert seen.token_equal is None
    assert len(seen.flips) == seen.rows == 40
    assert {len(flip.texts[0][: flip.position].encode()) for flip in seen.flips} == {27}
    assert any("positions count characters" in remark for remark in seen.remarks)
    assert evident(audit, "40 of 40 pairs of answers part, at character 27")
    assert lab.comparison("repeat").flips == lab.comparison("restart=on").flips == ()


def test_vllm_43617_a_compiled_encoder_loses_its_input_and_requests_succeed(tmp_path: Path) -> None:
    """Deepstack input lost under compile (sglang #33726 under graph replay): no error, and accuracy drops."""
    right = own_answers(tmp_path, pictures=PICTURES)
    effect = {"blind": True, "knobs": {"compile": True}}
    audit, lab = audited(tmp_path, effect, knobs=[COMPILED], pictures=PICTURES, answers=right, audit=ARMS)
    assert audit.verdict.causes == (("compile",),)
    assert audit.verdict.nature == "wrong results"
    assert all(one.failure is None for one in lab.observations("compile=on"))
    assert evident(audit, "compile=on: 10 rows score worse and 0 better")
    # Four arms, as in sglang's control: without the setting blank images change every answer, with it none.
    assert lab.comparison("images=blank").differs
    assert not lab.comparison("compile=on x images=blank").differs
    assert audit.effects[0].blind == tuple(range(10))
    assert "With compile=on 10 rows are answered as if they had no images." in audit.verdict.sentence


def test_vllm_23207_a_compiled_encoder_is_blind_at_other_sizes_than_that_of_its_warm_up(tmp_path: Path) -> None:
    """Dynamic slicing went wrong (mended in #27760): one size shows nothing, a sample of sizes does."""
    questions = [f"What is on road {row}?{' Look again.' * (row % 2)}" for row in range(10)]
    effect = {"blind": True, "length": 7, "knobs": {"compile": True}}
    settings: dict[str, Any] = {"knobs": [COMPILED], "pictures": PICTURES, "audit": ARMS}
    audit, lab = audited(tmp_path, effect, questions=questions, **settings)
    assert audit.verdict.causes == (("compile",),)
    assert audit.verdict.nature == "wrong results"
    odd = (1, 3, 5, 7, 9)
    assert audit.effects[0].blind == odd
    assert {flip.row_id for flip in lab.comparison("compile=on").flips} == set(odd)
    same_size, _ = audited(tmp_path, effect, **settings)
    assert same_size.verdict.kind == "no effect found"


@pytest.mark.parametrize(("nats", "nature"), [(0.5, "wrong results"), (0.0, "rounding")])
def test_pytorch_168126_the_level_of_compilation_is_named_and_judged(tmp_path: Path, nats: float, nature: str) -> None:
    """In bfloat16 inductor is far off and ``aot_eager`` is not (also #168186, #159239); the reference tells how far."""
    levels = {"name": "compile_backend", "default": "eager", "values": ["aot_eager", "inductor"]}
    effect = {"ulps": 1.0, "nats": nats, "dtypes": ["bfloat16"], "knobs": {"compile_backend": "inductor"}}
    arms = {"arms": ["batch", "compile_backend"]}
    audit, lab = audited(tmp_path, effect, dtype="bfloat16", knobs=[levels], audit=arms)
    assert audit.verdict.causes == (("compile_backend",),)
    assert "compile_backend=inductor" in audit.verdict.sentence
    assert not lab.comparison("compile_backend=aot_eager").differs
    assert audit.verdict.nature == nature


def test_sam2_517_after_too_many_shapes_the_compiled_model_is_the_eager_one(tmp_path: Path) -> None:
    """The limit of recompilations (also diffusers #11360, #5495): the same process answers otherwise later on."""
    compiled = {**COMPILED, "default": True, "values": [False]}
    effect = {"ulps": 8.0, "served": 8, "knobs": {"compile": True}}
    audit, _ = audited(tmp_path, effect, knobs=[compiled], audit={"arms": ["repeat", "compile"]})
    assert audit.verdict.kind == "run-to-run"
    assert "compile=off ends it" in audit.verdict.sentence


def test_two_modules_of_one_class_whose_shared_graph_crashes_cost_only_the_compiled_arm(tmp_path: Path) -> None:
    """Guards dropped, weights of two shapes: the engine does not start at all with the setting."""
    starts = []

    @contextmanager
    def start(order: EngineOrder) -> Iterator[Asking]:
        if order.config.options["numerics"].get("settings", {}).get("compile"):
            starts.append(order)
            raise UserError("the engine does not work: expected size 1024==4096", where="audit")
        with in_process(order) as engine:
            yield engine

    plain = spec_of(tmp_path, {"ulps": 8.0, "batch": 4}, knobs=[COMPILED], audit={"arms": ["batch", "compile"]})
    audit, _ = Auditor(build_spec(plain), start=start).run()
    assert audit.verdict.causes == (("batch",),)
    assert threshold(audit, "batch") == (3, 4)
    assert "expected size 1024==4096" in dict(audit.verdict.untried)["compile=on"]
    assert len(starts) == 1, "what does not start is not tried again"
    nothing = spec_of(tmp_path, knobs=[COMPILED], audit={"arms": ["batch", "compile"]})
    unknown, _ = Auditor(build_spec(nothing), start=start).run()
    assert (unknown.verdict.kind, unknown.exit_code) == ("could not tell", 3)
    assert "in compile=on 10 of 10 rows got no answer" in unknown.verdict.sentence


# --- batches


def test_vllm_22103_cascade_attention_on_an_a100_answers_10_of_18(tmp_path: Path) -> None:
    """A wrong result and no rounding (also #17652): 18 of 18 are right alone, 10 in a batch with a long prefix."""
    prefix = " ".join(["Mind the rules of the road."] * 50)
    questions = [f"{prefix} What is on road {row}?" for row in range(18)]
    exam: dict[str, Any] = {"questions": questions, "batch_size": 18, "longest": 12}
    cascade = {"loses": 30.0, "batch": 14, "prefix": 256, "every": 9, "below": 4}
    right = own_answers(tmp_path, **exam)
    audit, lab = audited(tmp_path, cascade, answers=right, audit={"arms": ["batch", "order"]}, **exam)
    assert audit.verdict.kind == "isolated"
    assert audit.verdict.causes == (("batch",),)
    assert threshold(audit, "batch") == (13, 14)
    assert evident(audit, "a hint and no proof", "108 multiprocessors")
    assert audit.verdict.nature == "wrong results"
    assert "Rounding does not explain its size." in audit.verdict.sentence
    seen = lab.comparison("batch=18")
    assert {flip.row_id for flip in seen.flips if flip.suspicious} == {row for row in range(18) if row % 9 < 4}
    assert seen.score_flips == (8, 0)
    assert seen.mcnemar == pytest.approx(2 * 0.5**8)
    assert evident(audit, "8 rows score worse and 0 better (McNemar p = 0.0078)")


# --- scores: two runs of a benchmark with different batch sizes


def scored(arm: str, right: Sequence[bool]) -> list[Observation]:
    return [
        Observation(arm=arm, round=0, row_id=row, text=str(row), parsed=str(good), score=float(good))
        for row, good in enumerate(right)
    ]


def benchmark(rows: int, kept: int, worse: int, better: int) -> Comparison:
    """Rows right on both sides, right on the first alone, right on the second alone, and wrong on both."""
    wrong = [False] * (rows - kept - worse - better)
    first = [True] * (kept + worse) + [False] * better + wrong
    second = [True] * kept + [False] * worse + [True] * better + wrong
    return compare(scored("batch=8", second), scored("batch=1", first))


@pytest.mark.parametrize("better", [0, 40])
def test_lm_eval_1645_two_figures_that_close_are_no_evidence(better: int) -> None:
    """HellaSwag, 10,042 rows: 0.6128 against 0.6124 is 4 rows, however many changed both ways."""
    right = 6154
    found = benchmark(10_042, right - better - 4, better + 4, better)
    assert found.score_flips == (better + 4, better)
    assert found.score_change is not None
    change, low, high = found.score_change
    assert change == pytest.approx(0.6124 - 0.6128, abs=5e-5)
    assert low < 0 <= high
    assert found.mcnemar is not None
    assert found.mcnemar > 0.1


def test_opencompass_1097_164_problems_do_not_tell_three_batch_sizes_apart() -> None:
    """Pass@1 of 31.71, 30.49 and 29.27 %: 52, 50 and 48 of 164."""
    assert [round(100 * right / 164, 2) for right in (52, 50, 48)] == [31.71, 30.49, 29.27]
    intervals = [wilson(right, 164)[:2] for right in (52, 50, 48)]
    for low, high in intervals:
        assert low is not None
        assert high is not None
        assert low < 0.2927 < 0.3171 < high
    for fewer in (50, 48):
        found = benchmark(164, fewer, 52 - fewer, 0)
        assert found.mcnemar is not None
        assert found.mcnemar > 0.1
        assert found.parsed_equal is not None
        assert found.parsed_equal.of - found.parsed_equal.hits == 52 - fewer


@pytest.mark.parametrize("net", [2, 4])
def test_a_small_net_change_is_no_evidence_whatever_it_is_made_of(net: int) -> None:
    """Only totals were reported: no split into rows that got worse and rows that got better makes them evidence."""
    assert all(mcnemar(net + better, better) > 0.1 for better in range(100))


def test_the_same_scores_from_enough_rows_in_one_direction_are_evidence() -> None:
    found = benchmark(164, 44, 8, 0)
    assert found.mcnemar is not None
    assert found.mcnemar < 0.01
