"""What is asked in an arm: sizes of waves, neighbours, order, prefix."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proctor.audit.traffic import COMPANY, Wave, traffic_knobs, waves
from proctor.engines.knobs import Value
from proctor.rows import Message, Request, Sampling, TextPart
from proctor.spec import AuditSpec

REQUESTS = [Request(row, (Message("user", (TextPart(f"question {row}"),)),)) for row in (3, 5, 8, 13, 21)]


def made(**changes: Value) -> list[Wave]:
    return waves(REQUESTS, changes, seed=7, top=2)


def probes(found: list[Wave]) -> list[int]:
    return [asked.request.id for wave in found for asked in wave if asked.probe]


def text(request: Request) -> str:
    part = request.prompt[0].parts[0]
    assert isinstance(part, TextPart)
    return part.text


def test_the_baseline_asks_one_row_after_another() -> None:
    found = made()
    assert [len(wave) for wave in found] == [1, 1, 1, 1, 1]
    assert probes(found) == [3, 5, 8, 13, 21]
    assert all(asked.request.sampling.logprobs for wave in found for asked in wave)
    assert {asked.request.sampling.top_logprobs for wave in found for asked in wave} == {2}


def test_every_wave_is_full_and_every_row_is_looked_at_once() -> None:
    found = made(batch=3)
    assert [len(wave) for wave in found] == [3, 3]
    assert probes(found) == [3, 5, 8, 13, 21]
    (filler,) = [asked.request for asked in found[1] if not asked.probe]
    assert filler.id >= COMPANY
    assert text(filler) == "question 3"


def test_a_batch_larger_than_the_sample_is_filled_with_its_rows() -> None:
    (wave,) = made(batch=12)
    assert len(wave) == 12
    assert len({asked.request.id for asked in wave}) == 12
    assert sorted(asked.probe for asked in wave) == [False] * 7 + [True] * 5


def test_copies_stand_beside_their_own_row() -> None:
    found = made(batch=4, neighbours="copies")
    assert [len(wave) for wave in found] == [4] * 5
    for wave in found:
        assert len({text(asked.request) for asked in wave}) == 1
        assert sum(asked.probe for asked in wave) == 1


def test_long_neighbours_are_longer_than_the_row() -> None:
    for wave in made(batch=2, neighbours="long"):
        probe, neighbour = wave
        assert probe.probe
        assert len(text(neighbour.request)) > 10 * len(text(probe.request))


@pytest.mark.parametrize("order", ["reversed", "shuffled"])
def test_an_order_moves_rows_and_loses_none(order: str) -> None:
    found = probes(made(batch=2, order=order))
    assert found != [3, 5, 8, 13, 21]
    assert sorted(found) == [3, 5, 8, 13, 21]
    assert probes(made(batch=2, order=order)) == found


def test_a_longer_prefix_begins_with_a_shorter_one_and_the_question_follows() -> None:
    short, long = (made(prefix=words)[0][0].request for words in (10, 40))
    assert text(long).startswith(text(short).strip())
    assert len(text(long).split()) == 40
    assert short.prompt[0].parts[1:] == REQUESTS[0].prompt[0].parts


def test_the_observer_arm_asks_for_no_log_probabilities() -> None:
    for (asked,) in made(logprobs=False):
        assert not asked.request.sampling.logprobs
        assert asked.request.sampling.top_logprobs == 0


def test_an_effect_can_be_tried_without_the_texts_that_end_answers() -> None:
    ending = [replace(request, sampling=Sampling(stop=("###",))) for request in REQUESTS]
    for stop, expected in ((None, ("###",)), (False, ())):
        asked = [one for wave in waves(ending, {"stop": stop}, seed=0, top=2) for one in wave]
        assert {one.request.sampling.stop for one in asked} == {expected}
    assert {knob.name: knob.values for knob in traffic_knobs(AuditSpec(), 4, stops=True)}["stop"] == (False,)
    assert knob_values(4)["stop"] == ()


def knob_values(batch_size: int, spec: AuditSpec | None = None) -> dict[str, tuple[Value, ...]]:
    return {knob.name: knob.values for knob in traffic_knobs(spec or AuditSpec(), batch_size)}


def test_batches_are_powers_of_two_up_to_the_engines_own_size() -> None:
    assert knob_values(16)["batch"] == (2, 4, 8, 16)
    assert knob_values(24)["batch"] == (2, 4, 8, 16, 24)
    assert knob_values(16, AuditSpec(batches=[3, 5, 99]))["batch"] == (3, 5)


def test_an_engine_that_takes_one_row_at_a_time_has_no_company() -> None:
    values = knob_values(1)
    assert values["batch"] == values["neighbours"] == values["order"] == ()


def test_a_batch_that_the_engine_does_not_hold_is_not_tried_and_says_why() -> None:
    (batch,) = [knob for knob in traffic_knobs(AuditSpec(batches=[4, 8, 64]), 8) if knob.name == "batch"]
    assert batch.values == (4, 8)
    assert batch.untried == (("64", "more than engine.batch_size, 8"),)
