"""How good a checkpoint is on held-out scenes: greedy answers, compared field by field with the truth.

    OMP_NUM_THREADS=1 python -m proctor.demo.evaluate

prints the table of `docs/demo-model.md` for the checkpoints that ship with the package.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, fields
from math import dist, nan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
import typer
from transformers import AutoModelForImageTextToText

from proctor.demo.batches import Batch, question_batch, shared_tokenizer
from proctor.demo.scenes import scene, target
from proctor.demo.weights import model_dirs
from proctor.tasks.base import ParseError
from proctor.tasks.driving_answer import DrivingAnswer, answer_of, read_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transformers import Qwen3VLForConditionalGeneration

HELD_OUT = range(256)
MAX_NEW_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of all rows; `ade` is in metres, over the readable rows and the waypoints that both sides have."""

    exact: float
    surface: float
    curvature: float
    obstacle: float
    readable: float
    ade: float


def evaluate(
    model: Qwen3VLForConditionalGeneration, numbers: Sequence[int] = HELD_OUT, *, system: bool = False
) -> Accuracy:
    """Accuracy of greedy answers on the scenes `numbers`."""
    texts = greedy_answers(model, numbers, system=system)
    truths = [answer_of(target(scene(number))) for number in numbers]
    read = [(got, want) for text, want in zip(texts, truths, strict=True) if (got := _read(text))]

    def share(right: Callable[[DrivingAnswer, DrivingAnswer], bool]) -> float:
        return sum(right(got, want) for got, want in read) / len(truths)

    return Accuracy(
        exact=share(lambda got, want: got == want),
        surface=share(lambda got, want: got.surface == want.surface),
        curvature=share(lambda got, want: got.curvature == want.curvature),
        obstacle=share(lambda got, want: got.obstacle == want.obstacle),
        readable=len(read) / len(truths),
        ade=fmean(_distance(got, want) for got, want in read) if read else nan,
    )


def greedy_answers(
    model: Qwen3VLForConditionalGeneration, numbers: Sequence[int], *, system: bool = False, rows: int = 64
) -> list[str]:
    """The model's answer to each scene, in order, `rows` scenes at a time."""
    texts: list[str] = []
    for start in range(0, len(numbers), rows):
        batch = question_batch(numbers[start : start + rows], system=system)
        inputs = tensors(batch, dtype=model.dtype)
        inputs.pop("labels")
        with torch.inference_mode():
            output = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        replies = output[:, batch.input_ids.shape[1] :]
        texts += shared_tokenizer().batch_decode(replies, skip_special_tokens=True)
    return texts


def tensors(batch: Batch, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """The batch as torch tensors, pixels in `dtype`."""
    arrays = {field.name: torch.from_numpy(getattr(batch, field.name)) for field in fields(batch)}
    arrays["pixel_values"] = arrays["pixel_values"].to(dtype)
    return arrays


def _read(text: str) -> DrivingAnswer | None:
    try:
        return read_answer(text)
    except ParseError:
        return None


def _distance(got: DrivingAnswer, want: DrivingAnswer) -> float:
    """Mean distance in metres over the waypoints that both sides have."""
    return fmean(dist(a, b) for a, b in zip(got.waypoints, want.waypoints, strict=False))


def main() -> None:
    """Print the accuracy of every shipped checkpoint as a Markdown table."""
    torch.set_num_threads(1)
    typer.echo(
        "| checkpoint | exact | surface | curvature | obstacle | readable | ADE (m) |\n|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as out:
        for name, directory in model_dirs(Path(out)).items():
            model = AutoModelForImageTextToText.from_pretrained(directory).eval()
            *percent, ade = asdict(evaluate(model)).values()
            typer.echo(f"| {name} | {' | '.join(f'{value:.1%}' for value in percent)} | {ade:.3f} |")


if __name__ == "__main__":
    typer.run(main)
