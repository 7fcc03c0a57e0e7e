from __future__ import annotations

from proctor.engines.sampling import cut_at_stop, row_seed, stop_position
from tests.engines.tiny import ask


def test_a_rows_seed_depends_on_the_run_and_the_row_only():
    seeds = {(seed, id_): row_seed(ask(id_, seed=seed)) for seed in range(20) for id_ in range(50)}
    assert len(set(seeds.values())) == len(seeds)
    assert row_seed(ask(7, text="another question", seed=3, temperature=0.5)) == seeds[3, 7]
    assert all(0 <= seed < 2**63 for seed in seeds.values())


def test_the_first_stop_text_ends_the_answer():
    assert cut_at_stop("wet; curve left; clear", ["clear", "; "]) == "wet"
    assert cut_at_stop("wet", ["; "]) == "wet"
    assert cut_at_stop("; wet", ["; "]) == ""
    assert stop_position("wet", []) == -1
