"""What a transformers model remembers of a prompt, in its cache and outside it; and which models remember too much.

All of it has to travel, or the model is refused: a decode side that lacks some of it still writes fluent text
(ATOM #2154: 69 of 93 layers went on from zeros, and a benchmark of arithmetic did not notice).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
import xxhash
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from proctor.rows import UserError
from proctor.transfer.devices.cpu import CpuStream
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.identity import content_id
from proctor.transfer.kv.block import cut, write
from proctor.transfer.kv.layout import KEY, VALUE, Layout
from proctor.transfer.tensors import NAMES, as_bytes, plan

STATE: Final = "state."
"""Before the names of tensors that modules keep as plain attributes, e.g. the position offsets of Qwen-VL."""
PLAIN: Final = frozenset(
    {"do_sample", "bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "_from_model_config"}
)
"""What a generation configuration may say: the first token is chosen outside of `generate`, which would apply more."""
_SUM_BYTES = 4 << 20
_UNSTEADY_ROPE = frozenset({"dynamic", "longrope"})


def check_model(model: Any) -> None:
    """Raises: UserError: the model cannot be split in prefill and decode, and why."""
    config = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise _refused("it is an encoder-decoder: its cross attention keeps a cache of its own")
    if unsteady := sorted(_UNSTEADY_ROPE.intersection(_rope_types(config.get_text_config()))):
        raise _refused(f"its rotary embedding ({unsteady[0]}) changes with the longest prompt seen so far")
    check_cache(DynamicCache(config=config))
    extra = sorted(set(model.generation_config.to_diff_dict()) - PLAIN)
    if extra or model.generation_config.do_sample:
        raise UserError(
            f"its generation configuration asks for more than greedy decoding: {', '.join(extra) or 'do_sample'}",
            where="model",
            fix="give the model a plain GenerationConfig; sampling belongs in a logits processor",
        )


def check_cache(cache: Any) -> None:
    """Raises: UserError: the cache is not plain keys and values of every position in every layer."""
    if type(cache) is not DynamicCache:
        raise _refused(f"its cache is a {type(cache).__name__}")
    odd = sorted({type(layer).__name__ for layer in cache.layers if type(layer) is not DynamicLayer})
    if odd:
        raise _refused(
            f"it has layers that keep more, or less, than keys and values of every position: {', '.join(odd)}"
        )


def layout_of(model: Any, name: str) -> Layout:
    """The layout of a model's cache.

    Args:
        model: of transformers.
        name: says which weights it has; both sides have to give the same.

    Raises:
        UserError: see `check_model`.
    """
    check_model(model)
    text = model.config.get_text_config()
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    # The attention code is part of it: the bits of a cache, and what is read from it, depend on how it was made.
    attention = getattr(text, "_attn_implementation", None)
    return Layout(
        model=f"{name} ({type(model).__name__}, attention: {attention}, torch {torch.__version__})",
        dtype=NAMES[model.dtype],
        layers=text.num_hidden_layers,
        heads=getattr(text, "num_key_value_heads", None) or text.num_attention_heads,
        head_size=head_size,
    )


def weights_id(model: Any) -> str:
    """Content id of the weights as they are loaded: names, types, shapes and bytes (`identity.content_id`)."""
    parts = cut(plan(model.state_dict(), by_name=True), _SUM_BYTES)
    room, stream = torch.empty(_SUM_BYTES, dtype=torch.uint8), CpuStream()
    return content_id(parts.manifest, _SUM_BYTES, [write(parts, piece, room, stream) for piece in parts.pieces])


def cached(cache: Any) -> dict[str, torch.Tensor]:
    """A cache's tensors by the names of a block: (row, head, position, element) each.

    Raises:
        UserError: see `check_cache`.
    """
    check_cache(cache)
    found = {}
    for number, layer in enumerate(cache.layers):
        found[KEY.format(number)], found[VALUE.format(number)] = layer.keys, layer.values
    return found


def cache_from(tensors: Mapping[str, torch.Tensor], layers: int, config: Any) -> Any:
    """The cache again: built by the cache's own `update`, layer by layer."""
    cache = DynamicCache(config=config)
    for number in range(layers):
        cache.update(tensors[KEY.format(number)], tensors[VALUE.format(number)], number)
    return cache


def remembered(model: Any) -> dict[str, torch.Tensor]:
    """Tensors that modules keep as plain attributes, by `STATE`, path and name."""
    return {f"{STATE}{path}": value for path, value in _attributes(model) if isinstance(value, torch.Tensor)}


def remember(model: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Sets what `remembered` gave.

    Raises:
        TransferError: ``MISMATCH``: this model has no such place.
    """
    for name, value in tensors.items():
        if name.startswith(STATE):
            path, _, attribute = name.removeprefix(STATE).rpartition(".")
            try:
                module = model.get_submodule(path)
            except AttributeError:
                raise TransferError(Reason.MISMATCH, f"this model has no {path} to keep its {attribute}") from None
            setattr(module, attribute, value)


class Steady:
    """Notices what a prompt changes in a model that would not travel: buffers, and numbers that modules keep.

    What modules keep in lists and dictionaries of their own is not looked at.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._before = _fingerprint(model)

    def check(self) -> None:
        """Raises: UserError: the prompt has changed something that stays behind."""
        after = _fingerprint(self._model)
        changed = sorted(name for name in after if name not in self._before or after[name] != self._before[name])
        if changed:
            raise _refused(f"a prompt changes what it keeps outside its cache: {', '.join(changed[:5])}")


def _fingerprint(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: (tuple(buffer.shape), xxhash.xxh3_64_intdigest(memoryview(as_bytes(buffer).cpu().numpy())))
        for name, buffer in model.named_buffers()
    }
    return found | {path: value for path, value in _attributes(model) if isinstance(value, int | float | str)}


def _attributes(model: Any) -> Iterator[tuple[str, Any]]:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            yield (f"{path}.{name}" if path else name), value


def _rope_types(text: Any) -> set[str]:
    """Every ``rope_type`` that the configuration names, for all layers or for a kind of layer."""
    given = [getattr(text, name, None) or {} for name in ("rope_parameters", "rope_scaling")]
    nested = [value for parameters in given for value in parameters.values() if isinstance(value, dict)]
    return {str(parameters.get("rope_type", "")) for parameters in (*given, *nested)}


def _refused(why: str) -> UserError:
    return UserError(f"prefill and decode cannot be split: {why}", where="model", fix="run it in one process")
