"""Train the demo's tiny Qwen3-VL from nothing on a CPU.

    OMP_NUM_THREADS=1 python -m proctor.demo.train --out runs/demo-training

draws its training scenes from number 10,000,000 on in a side process, evaluates on the held-out scenes 0-255 as it
goes, and leaves a bf16 checkpoint per evaluation in `OUT/step-XXXX/` and one line per evaluation in `OUT/log.jsonl`.
The same command again resumes from the last evaluation. `docs/demo-model.md` has the time it takes and the curve.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer

from proctor.demo.batches import Batch, training_batch
from proctor.demo.evaluate import evaluate, tensors
from proctor.demo.model import WEIGHTS_FILE, new_model, save_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import Qwen3VLForConditionalGeneration

FIRST_TRAINING_SCENE = 10_000_000
_BATCHES_AHEAD = 8
_RESUME_FILE = "resume.pt"


@dataclass(frozen=True, slots=True)
class Schedule:
    """What decides the weights that come out, together with the code and the library versions."""

    steps: int = 1000
    rows: int = 32
    learning_rate: float = 1.5e-3
    warm_up: int = 50
    evaluate_every: int = 50
    evaluate_rows: int = 256
    seed: int = 0

    def rate(self, step: int) -> float:
        """Learning rate at `step`: linear warm-up, then a cosine down to zero."""
        if step < self.warm_up:
            return self.learning_rate * (step + 1) / self.warm_up
        progress = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))

    def numbers(self, step: int) -> range:
        """The scenes of one step; no scene is seen twice."""
        first = FIRST_TRAINING_SCENE + step * self.rows
        return range(first, first + self.rows)


DEFAULT = Schedule()


def train(out: Path, schedule: Schedule) -> Qwen3VLForConditionalGeneration:
    """Train to the end of the schedule, from the last evaluation in `out` if there is one."""
    out.mkdir(parents=True, exist_ok=True)
    model = new_model(schedule.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=schedule.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    start = _resume(out / _RESUME_FILE, model, optimizer)
    losses: list[float] = []
    with _batches(schedule, start) as batches:
        for step, batch in enumerate(batches, start=start):
            losses.append(_learn(model, optimizer, batch, schedule.rate(step)))
            done = step + 1
            if done % schedule.evaluate_every == 0 or done == schedule.steps:
                _evaluate(out, model, done, schedule.evaluate_rows, loss=sum(losses) / len(losses))
                _save_state(out / _RESUME_FILE, model, optimizer, done)
                losses.clear()
    return model


def _learn(
    model: Qwen3VLForConditionalGeneration, optimizer: torch.optim.Optimizer, batch: Batch, rate: float
) -> float:
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss: torch.Tensor = model.train()(**tensors(batch)).loss
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


@contextmanager
def _batches(schedule: Schedule, start: int) -> Iterator[Iterator[Batch]]:
    """Batches from `start` on, drawn ahead in one side process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:

        def draw_ahead() -> Iterator[Batch]:
            waiting: deque[Future[Batch]] = deque()
            for step in range(start, schedule.steps):
                waiting.append(pool.submit(training_batch, schedule.numbers(step)))
                if len(waiting) > _BATCHES_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

        yield draw_ahead()


def _evaluate(out: Path, model: Qwen3VLForConditionalGeneration, step: int, rows: int, loss: float) -> None:
    save_weights(model, out / f"step-{step:04d}" / WEIGHTS_FILE)
    accuracy = asdict(evaluate(model.eval(), range(rows)))
    line = json.dumps({"step": step, "loss": round(loss, 4), **accuracy, "cpu_s": round(time.process_time(), 1)})
    with (out / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(line + "\n")
    typer.echo(line)


def _save_state(
    path: Path, model: Qwen3VLForConditionalGeneration, optimizer: torch.optim.Optimizer, step: int
) -> None:
    partial = path.with_suffix(".partial")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, partial)
    partial.replace(path)


def _resume(path: Path, model: Qwen3VLForConditionalGeneration, optimizer: torch.optim.Optimizer) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def main(
    out: Annotated[Path, typer.Option(help="Where checkpoints and log.jsonl go.")],
    steps: Annotated[int, typer.Option(min=1, help="Length of the schedule.")] = DEFAULT.steps,
    seed: Annotated[int, typer.Option(help="Seed of the fresh weights.")] = DEFAULT.seed,
) -> None:
    """Train the demo's tiny Qwen3-VL on synthetic driving scenes."""
    torch.set_num_threads(1)
    train(out, Schedule(steps=steps, seed=seed))


if __name__ == "__main__":
    typer.run(main)
