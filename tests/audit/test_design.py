"""The design: one change an arm, the right reference, interleaved rounds, an honest cost, and what is left out."""

from __future__ import annotations

import pytest

from proctor.audit.design import cost_of, make_design, name_of
from proctor.audit.model import BASELINE, Design
from proctor.audit.traffic import traffic_knobs
from proctor.engines.knobs import Knob
from proctor.rows import UserError
from proctor.spec import AuditSpec

ENGINE = (
    Knob(name="dtype", what="number format", place="config", values=("bfloat16",), control=True),
    Knob(name="SPLIT", what="a switch", place="env", values=(0,)),
    Knob(name="tp", what="parallel", place="option", untried=(("2", "one processor here"),)),
)
ROWS = (0, 4, 9)


def design_of(batch_size: int = 4, **settings: object) -> Design:
    spec = AuditSpec.model_validate(settings)
    return make_design(spec, (*traffic_knobs(spec, batch_size), *ENGINE), ROWS)


def test_every_arm_differs_from_its_reference_in_one_knob() -> None:
    design = design_of()
    for arm in design.arms:
        if arm.against:
            reference = design.arm(arm.against).changes
            turned = {name for name, value in arm.changes.items() if reference.get(name) != value}
            assert len(turned) == (arm.name not in (BASELINE, "repeat")), arm.name


def test_what_changes_the_question_is_asked_alone_on_the_other_side() -> None:
    design = design_of(prefix_words=[30])
    assert design.arm("prefix=30 x batch=4").against == "prefix=30"
    assert design.arm("prefix=30").against == ""


def test_neighbours_and_order_are_compared_with_a_batch_of_the_same_size() -> None:
    design = design_of()
    for name in ("batch=4 x order=shuffled", "batch=4 x neighbours=copies"):
        assert design.arm(name).against == "batch=4"


def test_every_round_has_every_arm_once_in_an_order_of_its_own() -> None:
    design = design_of(rounds=3)
    rounds = [[s.arm for s in design.sittings if s.round == number] for number in range(3)]
    names = sorted(arm.name for arm in design.arms)
    assert all(sorted(found) == names for found in rounds)
    assert len({tuple(found) for found in rounds}) == 3
    assert design.sittings == design_of(rounds=3).sittings
    assert design.sittings != design_of(rounds=3, seed=1).sittings


def test_references_are_there_even_if_their_knob_is_not_wanted() -> None:
    design = design_of(arms=["order"])
    assert {arm.name for arm in design.arms} == {
        "baseline", "repeat", "batch=4", "batch=4 x order=reversed", "batch=4 x order=shuffled",
    }  # fmt: skip


def test_what_is_not_tried_is_listed_with_the_reason() -> None:
    nothing = "no other value to try here"
    assert dict(design_of().untried) == {
        "tp=2": "one processor here",
        "top": nothing,
        "seed": nothing,
        "images": nothing,
    }
    left_out = dict(design_of(arms=["repeat", "batch"]).untried)
    assert left_out["order"] == left_out["dtype"] == "left out by audit.arms"
    assert "batch" not in left_out


def test_a_knob_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"audit\.arms: there is no knob 'bacth' .*repeat, batch, .*SPLIT"):
        design_of(arms=["bacth"])


def test_the_cost_counts_starts_requests_and_neighbours() -> None:
    design = design_of(arms=["batch", "SPLIT"], batches=[2, 4])
    shared = cost_of(design, AuditSpec(), max_tokens=10, shared=True)
    # baseline, repeat, batch=2 (3 rows and a neighbour), batch=4 (3 and a neighbour), SPLIT=0; two rounds
    assert shared.sittings == 10
    assert shared.requests == 2 * (3 + 3 + 4 + 4 + 3)
    assert shared.most_tokens == 10 * shared.requests
    assert shared.engine_starts == 4
    assert cost_of(design, AuditSpec(), max_tokens=10, shared=False).engine_starts == 10


def test_names_say_what_is_turned() -> None:
    assert name_of({}) == "baseline"
    assert name_of({"batch": 8, "logprobs": False, "dtype": None}) == "batch=8 x logprobs=off x dtype=default"
