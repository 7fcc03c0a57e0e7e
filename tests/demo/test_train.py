from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from safetensors.torch import load_file

from proctor.demo import train as training
from proctor.demo.evaluate import HELD_OUT
from proctor.demo.model import WEIGHTS_FILE
from proctor.demo.train import DEFAULT, Schedule, train

pytestmark = pytest.mark.model

TINY = Schedule(steps=4, rows=4, warm_up=2, evaluate_every=2, evaluate_rows=2)


def test_the_rate_rises_and_then_falls_to_zero() -> None:
    rates = [DEFAULT.rate(step) for step in range(DEFAULT.steps + 1)]
    peak = rates.index(max(rates))
    assert max(rates) == DEFAULT.learning_rate
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] == pytest.approx(0)


def test_training_never_sees_a_scene_twice_nor_a_held_out_one() -> None:
    seen = [number for step in range(DEFAULT.steps) for number in DEFAULT.numbers(step)]
    assert len(set(seen)) == len(seen) == DEFAULT.steps * DEFAULT.rows
    assert not set(seen) & set(HELD_OUT)


@pytest.mark.slow
def test_an_interrupted_training_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    with monkeypatch.context() as patch:  # of three side processes, which import everything, one is enough
        patch.setattr(training, "ProcessPoolExecutor", lambda workers, **_: ThreadPoolExecutor(workers))
        train(whole, TINY)
    clip, calls = torch.nn.utils.clip_grad_norm_, count(1)

    def power_cut(*args: Any) -> torch.Tensor:
        if next(calls) == 4:
            raise KeyboardInterrupt
        return clip(*args)

    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.utils, "clip_grad_norm_", power_cut)
        patch.setattr(training, "ProcessPoolExecutor", lambda workers, **_: ThreadPoolExecutor(workers))
        with pytest.raises(KeyboardInterrupt):
            train(broken, TINY)
    train(broken, TINY)

    steps = [json.loads(line)["step"] for line in (broken / "log.jsonl").read_text().splitlines()]
    assert steps == [2, 4]
    first, second = (load_file(out / "step-0004" / WEIGHTS_FILE) for out in (whole, broken))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
