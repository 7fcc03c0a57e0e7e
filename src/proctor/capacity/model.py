"""What a model needs besides its weights, from its ``config.json``: key-value cache, activations, image tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from proctor.capacity.rowcost import ImageSize
from proctor.capacity.weights import FLOAT_BYTES, WHERE, Weights, read_weights
from proctor.images.expansion import Expansion, qwen_vl_expansion
from proctor.rows import UserError
from proctor.spec.model import MOST

_QWEN_VL = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
_DEFAULT_DTYPE = "float32"


@dataclass(frozen=True, slots=True)
class Pixels:
    """How a model of the Qwen-VL family cuts an image (its ``preprocessor_config.json``)."""

    patch: int
    merge: int
    temporal: int
    min_pixels: int
    max_pixels: int

    def expansion(self, size: ImageSize) -> Expansion:
        """What an image becomes; float32, as the processor returns it.

        Raises:
            ValueError: the model does not take the image.
        """
        return qwen_vl_expansion(
            size.height,
            size.width,
            patch=self.patch,
            merge=self.merge,
            temporal=self.temporal,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
        )


@dataclass(frozen=True, slots=True)
class Model:
    """What the planner knows of a model.

    Attributes:
        name: its ``model_type``.
        dtype: type of the weights and of the cache: what was asked for, or what ``auto`` gives.
        weights: what its files hold.
        kv_layers: layers that keep a key and a value for each token.
        kv_values: values of one layer and token: 2 x key-value heads x head size (less for MLA, which keeps one
            compressed vector).
        kv_heads: key-value heads; tensor parallelism cannot split the cache further than this.
        hidden, intermediate, vocabulary: sizes of the language model.
        vision_hidden, vision_intermediate: sizes of the image encoder, 0 without one.
        longest: most tokens that it was made for.
        pixels: how it cuts images, for the Qwen-VL family.
        missing: what its files do not tell, a line each; numbers that it leaves open are 0.
    """

    name: str
    dtype: str
    weights: Weights
    kv_layers: int
    kv_values: int
    kv_heads: int
    hidden: int
    intermediate: int
    vocabulary: int
    vision_hidden: int
    vision_intermediate: int
    longest: int
    pixels: Pixels | None
    missing: tuple[str, ...] = ()

    @property
    def value_bytes(self) -> int:
        """Bytes of a number."""
        return FLOAT_BYTES[self.dtype]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in memory."""
        return self.weights.bytes_as(self.dtype)

    @property
    def kv_token_bytes(self) -> int:
        """Bytes of key-value cache for one token: layers x (2 x key-value heads x head size) x bytes of a number."""
        return self.kv_layers * self.kv_values * self.value_bytes

    def kv_split(self, ranks: int) -> float:
        """Share of the cache that one tensor-parallel rank holds: heads are split, and repeated when they run out."""
        return max(1.0, self.kv_heads / ranks) / self.kv_heads if self.kv_heads else 1.0

    def activation_bytes(self, tokens: int, rows: int, patches: int, ranks: int = 1) -> int:
        """Estimate of what one forward pass takes besides weights and cache.

        ``tokens x (4 x hidden + 3 x intermediate / ranks) x s`` (residual, normed, attention in and out; gate, up and
        their product), ``rows x vocabulary x (4 + s)`` (logits, and in float32 for sampling), and ``patches x (4 x
        vision hidden + 2 x vision intermediate) x s`` for the image encoder.
        """
        s = self.value_bytes
        language = tokens * (4 * self.hidden + 3 * self.intermediate / ranks) * s
        logits = rows * self.vocabulary * (4 + s)
        vision = patches * (4 * self.vision_hidden + 2 * self.vision_intermediate) * s
        return round(language + logits + vision)

    def image_tokens(self, rows: Sequence[Sequence[ImageSize]]) -> tuple[int, int, int] | None:
        """Tokens, patches and bytes of ``pixel_values`` (float32) of the largest of these rows; None if not known."""
        if self.pixels is None:
            return None
        most = (0, 0, 0)
        for row in rows:
            try:
                made = [self.pixels.expansion(size) for size in row]
            except ValueError:
                continue  # a row that the model refuses takes no memory
            totals = (
                sum(e.tokens for e in made),
                sum(e.patches for e in made),
                sum(e.pixel_values_bytes for e in made),
            )
            most = max(most, totals)
        return most


def read_model(
    path: str, dtype: str = "auto", *, vllm: bool = False, options: Mapping[str, Any] | None = None
) -> Model:
    """Reads a model directory. No weights are loaded. What its files do not tell is left at 0, and named in
    `Model.missing`: libraries have defaults of their own for much of a configuration.

    Args:
        path: the directory.
        dtype: ``engine.dtype``.
        vllm: whether it runs in vLLM, whose ``auto`` takes half precision for models that are stored in float32.
        options: ``engine.options``; ``mm_processor_kwargs`` may set the pixel limits.

    Raises:
        UserError: there is no such directory.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise UserError("no such model directory", where=f"{WHERE}: {path}")
    missing: list[str] = []
    content = _json(directory / "config.json", missing)
    config = content or {}
    text = Part(_part(config, "text_config") or config, directory / "config.json", missing, silent=content is None)
    vision = Part(_part(config, "vision_config") or {}, directory / "config.json", missing)
    weights, unread = read_weights(directory)
    missing += unread
    heads, hidden = text.needed("num_attention_heads"), text.needed("hidden_size")
    kv_heads = text.number("num_key_value_heads") or heads
    head_size = text.number("head_dim") or (hidden // heads if heads else 0)
    rank = text.number("kv_lora_rank")
    vision_hidden = vision.number("hidden_size") or vision.number("embed_dim")
    return Model(
        name=str(config.get("model_type", "unknown")),
        dtype=_dtype(config, text.content, dtype, vllm=vllm),
        weights=weights,
        kv_layers=_kv_layers(text.content, text.needed("num_hidden_layers")),
        kv_values=rank + text.number("qk_rope_head_dim") if rank else 2 * kv_heads * head_size,
        kv_heads=1 if rank else kv_heads,
        hidden=hidden,
        intermediate=text.number("intermediate_size") or 4 * hidden,
        vocabulary=text.needed("vocab_size"),
        vision_hidden=vision_hidden,
        vision_intermediate=vision.number("intermediate_size") or 4 * vision_hidden,
        longest=text.number("max_position_embeddings"),
        pixels=_pixels(config, directory, options or {}, missing),
        missing=tuple(missing),
    )


class Part(NamedTuple):
    """A part of a JSON file, the file, and the list of what it does not tell; with `silent` nothing is added to it."""

    content: Mapping[str, Any]
    file: Path
    missing: list[str]
    silent: bool = False

    def number(self, name: str) -> int:
        """A positive number; 0 if there is none, and a line if there is something else."""
        value = self.content.get(name)
        if value is None or (type(value) is int and 0 <= value <= MOST):
            return value or 0
        self._miss(f"{name} is {_short(value)}")
        return 0

    def needed(self, name: str) -> int:
        """A number that a line tells of if it is not there."""
        if self.content.get(name) is None:
            self._miss(f"has no {name}")
        return self.number(name)

    def _miss(self, what: str) -> None:
        if not self.silent:
            self.missing.append(f"{self.file}: {what}")


def _short(value: object) -> str:
    return f"a {type(value).__name__}" if isinstance(value, list | dict) else repr(value)[:40]


def _kv_layers(text: Mapping[str, Any], layers: int) -> int:
    """Layers of linear attention keep a state of fixed size; those with a window are counted as if it were endless."""
    kinds = text.get("layer_types")
    return layers if not isinstance(kinds, list) else sum("linear" not in str(kind) for kind in kinds)


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any], asked: str, *, vllm: bool) -> str:
    if asked != "auto":
        return asked
    stored = config.get("dtype") or config.get("torch_dtype") or text.get("dtype") or text.get("torch_dtype")
    name = str(stored or _DEFAULT_DTYPE).removeprefix("torch.")
    if name not in FLOAT_BYTES:
        name = _DEFAULT_DTYPE
    return "bfloat16" if vllm and name == "float32" else name


def _pixels(
    config: Mapping[str, Any], directory: Path, options: Mapping[str, Any], missing: list[str]
) -> Pixels | None:
    if config.get("model_type") not in _QWEN_VL:
        return None
    file = directory / "preprocessor_config.json"
    content = (_json(file, missing) or {}) if file.is_file() else {}
    own = options.get("mm_processor_kwargs")
    said = Part({**content, **own} if isinstance(own, dict) else content, file, missing)
    size = Part(_part(said.content, "size") or {}, file, missing)
    vision = Part(_part(config, "vision_config") or {}, directory / "config.json", missing)
    return Pixels(
        patch=said.number("patch_size") or vision.number("patch_size") or 16,
        merge=said.number("merge_size") or vision.number("spatial_merge_size") or 2,
        temporal=said.number("temporal_patch_size") or vision.number("temporal_patch_size") or 2,
        min_pixels=said.number("min_pixels") or size.number("shortest_edge") or 65_536,
        max_pixels=said.number("max_pixels") or size.number("longest_edge") or 16_777_216,
    )


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    part = config.get(name)
    return part if isinstance(part, dict) else None


def _json(file: Path, missing: list[str]) -> dict[str, Any] | None:
    """The object in a file; None, and a line, if there is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        missing.append(f"{file}: cannot be read: {error.strerror}")
    except (ValueError, RecursionError) as error:
        missing.append(f"{file}: not JSON: {error}")
    else:
        if isinstance(content, dict):
            return content
        missing.append(f"{file}: not a JSON object")
    return None
