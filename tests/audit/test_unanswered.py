"""Arms without answers: the audit says which rows, and why, and takes nothing for equal that was not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.audit.bench import Asking, EngineOrder
from proctor.audit.conduct import Audit
from proctor.audit.standing import conduct_audit
from proctor.rows import ErrorKind, Failure, Request, Response
from proctor.spec import build_spec
from proctor.view.audit import write_audit_page
from tests.audit.planted import in_process, spec_of

Refuses = Callable[[EngineOrder, Sequence[Request], Request], bool]
EFFECT = {"batch": 3, "nats": 0.5}
NOISE = {"batch": 2, "ulps": 8.0, "noise": True}
SPLIT = {"name": "SPLIT", "default": 1, "values": [0], "env": True}
WHY = "the prompt has 3,004 tokens, and max_model_len is 2,048."


class Refusing:
    """An engine that does not take some requests."""

    def __init__(self, engine: Asking, order: EngineOrder, refuses: Refuses) -> None:
        self.versions = engine.versions
        self._engine, self._order, self._refuses = engine, order, refuses

    def ask(self, requests: Sequence[Request]) -> list[Response]:
        refused = Failure(ErrorKind.INFER_REJECTED, WHY)
        return [
            Response.failed(asked.id, refused) if self._refuses(self._order, requests, asked) else answer
            for asked, answer in zip(requests, self._engine.ask(requests), strict=True)
        ]


def audited(
    folder: Path, refuses: Refuses, *effects: dict[str, Any], arms: Sequence[str] = ("batch",), **settings: Any
) -> Audit:
    """An audit of six rows, written down with its page."""

    @contextmanager
    def start(order: EngineOrder) -> Iterator[Asking]:
        with in_process(order) as engine:
            yield Refusing(engine, order, refuses)

    plain = spec_of(folder, *effects, rows=6, batch_size=4, audit={"arms": list(arms)}, **settings)
    audit = conduct_audit(build_spec(plain), None, folder / "run" / "audit", start=start)
    page = Path(write_audit_page(folder / "run" / "audit")).read_text()
    assert (WHY.rstrip(".") in page) == any(WHY.rstrip(".") in text for text in words(audit))
    return audit


def words(audit: Audit) -> list[str]:
    return [audit.verdict.sentence, *audit.verdict.evidence, *(why for _, why in audit.verdict.untried)]


def in_waves_of(size: int) -> Refuses:
    return lambda _, requests, __: len(requests) == size


@pytest.mark.parametrize("effects", [(), (EFFECT,)])
def test_an_engine_that_answers_nothing_is_told_with_its_rows_and_its_words(
    tmp_path: Path, effects: tuple[dict[str, Any], ...]
) -> None:
    audit = audited(tmp_path, lambda *_: True, *effects, arms=[])
    assert (audit.verdict.kind, audit.exit_code) == ("could not tell", 3)
    assert audit.verdict.sentence == (
        "Could not tell: no row got an answer twice; 6 of 6 rows got no answer: rows 0, 1, 2, 3, 4, 5, infer.rejected "
        "(row 0: the prompt has 3,004 tokens, and max_model_len is 2,048)."
    )
    assert audit.verdict.evidence == ()
    assert audit.verdict.ruled_out == ()
    assert sum(shown.rounds for shown in audit.arms) == len(audit.design.sittings), "there is nothing to search for"


def test_an_arm_without_answers_is_no_arm_without_effect(tmp_path: Path) -> None:
    audit = audited(tmp_path, lambda _, requests, __: len(requests) > 1, EFFECT, arms=["batch", "order", "cache"])
    assert (audit.verdict.kind, audit.exit_code) == ("could not tell", 3)
    told = audit.verdict.sentence
    assert told.startswith(
        "Could not tell: in batch=2, batch=4, batch=4 x order=reversed and 1 more 6 of 6 rows got no"
    )
    assert "rows 0, 1, 2, 3, 4, 5, infer.rejected (row 0: the prompt has" in told
    assert "The rest: No effect found: 6 rows gave the same" in told
    assert "in all 3 comparisons (30 pairs)" in told, "repeat, cache, and the baseline's rounds"
    assert "6 of 6 rows" in dict(audit.verdict.untried)["batch=4"]
    assert [ruled.partition(":")[0] for ruled in audit.verdict.ruled_out] == ["cache"]


def test_a_value_without_answers_is_neither_with_the_effect_nor_without(tmp_path: Path) -> None:
    planned = audited(tmp_path, in_waves_of(2), EFFECT)
    (found,) = planned.verdict.thresholds
    assert (found.below, found.above) == (1, 4), "2 is planned and silent, and halves the way to 4"
    assert "6 of 6 rows" in dict(planned.verdict.untried)["batch=2"]
    searched = audited(tmp_path, in_waves_of(3), EFFECT)
    (found,) = searched.verdict.thresholds
    assert (found.below, found.above) == (2, 4)
    assert "6 of 6 rows" in dict(searched.verdict.untried)["batch=3"]
    noisy = audited(tmp_path, in_waves_of(3), {**NOISE, "batch": 3})
    (found,) = noisy.verdict.thresholds
    assert (found.below, found.above) == (2, 4)


def test_a_setting_that_silences_an_engine_ends_nothing(tmp_path: Path) -> None:
    def refuses(order: EngineOrder, requests: Sequence[Request], _: Request) -> bool:
        return order.env.get("SPLIT") == "0" and len(requests) > 1

    for effect in (EFFECT, NOISE):
        audit = audited(tmp_path, refuses, effect, arms=["batch", "SPLIT"], knobs=[SPLIT])
        assert audit.verdict.kind in ("isolated", "run-to-run")
        assert not any("SPLIT" in remedy.setting for remedy in audit.remedies)
        assert any("SPLIT=0" in arm and "6 of 6 rows" in why for arm, why in audit.verdict.untried)


def test_rows_without_an_answer_are_named_beside_those_that_have_one(tmp_path: Path) -> None:
    audit = audited(tmp_path, lambda _, __, request: request.id in (1, 4), EFFECT)
    assert audit.verdict.kind == "isolated"
    clue = "batch=4: 2 of 6 rows got no answer: rows 1, 4, infer.rejected (row 1: the prompt has 3,004 tokens"
    assert any(told.startswith(clue) for told in audit.verdict.evidence)


def test_a_control_without_answers_is_not_called_blind(tmp_path: Path) -> None:
    audit = audited(tmp_path, lambda order, *_: order.config.dtype == "float16", arms=["dtype"])
    controls = [shown for shown in audit.arms if shown.arm.layer == "control"]
    assert controls
    assert audit.verdict.kind == "no effect found"
    assert not any("was not seen" in clue for clue in audit.verdict.evidence)


def test_many_rows_are_counted_and_not_all_listed(tmp_path: Path) -> None:
    from proctor.audit.lab import Lab
    from proctor.audit.model import Arm, Observation
    from proctor.audit.unanswered import unanswered

    class Seen(Lab):
        def __init__(self) -> None:
            self.arms = {"batch=4": Arm(name="batch=4")}

        def has_sat(self, arm: str) -> bool:
            return True

        def observations(self, arm: str, rounds: object = None) -> list[Observation]:
            base = Observation(arm=arm, round=0, row_id=0)
            failed = [replace(base, row_id=row, failure=("infer.oom", f"no room for {row}")) for row in range(20)]
            return [*failed, replace(base, row_id=20), replace(base, row_id=21, text="an answer")]

    assert unanswered(Seen(), "batch=4") == (
        "21 of 22 rows got no answer: rows 0, 1, 2, 3, 4, 5, 6, 7 and 12 more, infer.oom (row 0: no room for 0); "
        "row 20, nothing in it (row 20: neither a text nor a token came back)"
    )
