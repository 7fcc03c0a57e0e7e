"""Scenes as model inputs: patches, token ids and labels, padded into one batch."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from proctor.demo.model import EOS_ID, IMAGE_ID, MERGE, PAD_ID, PATCH, TEMPORAL_PATCH
from proctor.demo.scenes import HEIGHT, PROMPT, SYSTEM_TEXT, WIDTH, answer, jpeg_frames, scene
from proctor.demo.tokenizer import IMAGE_PAD, build_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

GRID = (1, HEIGHT // PATCH, WIDTH // PATCH)
TOKENS_PER_FRAME = GRID[1] * GRID[2] // MERGE**2
IGNORED_LABEL = -100


@dataclass(frozen=True, slots=True)
class Batch:
    """Numpy arrays under the names of the model's forward pass; `labels` only counts answer tokens."""

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    mm_token_type_ids: NDArray[np.int64]
    pixel_values: NDArray[np.float32]
    image_grid_thw: NDArray[np.int64]
    labels: NDArray[np.int64]


def training_batch(numbers: Sequence[int]) -> Batch:
    """Conversations with answers, padded on the right; every other scene is asked with the system text in front."""
    rows = [(prompt_ids(scene(n).frames, system=n % 2 == 0), answer_ids(answer(scene(n)))) for n in numbers]
    return _pad(rows, [jpeg for n in numbers for jpeg in jpeg_frames(scene(n))], side="right")


def question_batch(numbers: Sequence[int], *, system: bool) -> Batch:
    """Conversations that end where the answer starts, padded on the left as generation needs it."""
    rows: list[tuple[list[int], list[int]]] = [(prompt_ids(scene(n).frames, system=system), []) for n in numbers]
    return _pad(rows, [jpeg for n in numbers for jpeg in jpeg_frames(scene(n))], side="left")


@cache
def shared_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, built once per process."""
    return build_tokenizer()


@cache
def prompt_ids(frames: int, *, system: bool) -> list[int]:
    """Token ids of the question about `frames` images, each image pad repeated as often as the image has tokens."""
    text = prompt_text(frames, system=system).replace(IMAGE_PAD, IMAGE_PAD * TOKENS_PER_FRAME)
    return list(shared_tokenizer()(text)["input_ids"])


def prompt_text(frames: int, *, system: bool) -> str:
    """The rendered chat template, one image pad per image."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM_TEXT}] if system else []
    content = [{"type": "image"}] * frames + [{"type": "text", "text": PROMPT}]
    messages.append({"role": "user", "content": content})
    return str(shared_tokenizer().apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def answer_ids(text: str) -> list[int]:
    """Token ids of an answer and the end-of-turn token."""
    return [*shared_tokenizer()(text)["input_ids"], EOS_ID]


def patches(jpeg: bytes) -> NDArray[np.float32]:
    """One frame as (patches, channels * time * PATCH * PATCH), exactly as the Qwen image processor lays it out."""
    pixels = np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"), dtype=np.float32) / 127.5 - 1
    blocks = pixels.reshape(GRID[1] // MERGE, MERGE, PATCH, GRID[2] // MERGE, MERGE, PATCH, 3)
    ordered = blocks.transpose(0, 3, 1, 4, 6, 2, 5)[:, :, :, :, :, None]
    copies = np.broadcast_to(ordered, (*ordered.shape[:5], TEMPORAL_PATCH, PATCH, PATCH))
    return copies.reshape(GRID[1] * GRID[2], -1)


def _pad(
    rows: Sequence[tuple[list[int], list[int]]], jpegs: Iterable[bytes], *, side: Literal["left", "right"]
) -> Batch:
    pixel_rows = [patches(jpeg) for jpeg in jpegs]
    width = max(len(prompt) + len(reply) for prompt, reply in rows)
    input_ids = np.full((len(rows), width), PAD_ID, dtype=np.int64)
    labels = np.full_like(input_ids, IGNORED_LABEL)
    attention_mask = np.zeros_like(input_ids)
    for index, (prompt, reply) in enumerate(rows):
        length = len(prompt) + len(reply)
        start = width - length if side == "left" else 0
        input_ids[index, start : start + length] = prompt + reply
        labels[index, start + len(prompt) : start + length] = reply
        attention_mask[index, start : start + length] = 1
    return Batch(
        input_ids=input_ids,
        attention_mask=attention_mask,
        mm_token_type_ids=(input_ids == IMAGE_ID).astype(np.int64),
        pixel_values=np.concatenate(pixel_rows),
        image_grid_thw=np.array([GRID] * len(pixel_rows), dtype=np.int64),
        labels=labels,
    )
