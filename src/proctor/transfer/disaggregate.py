"""Prefill and decode of a transformers model in two processes, with the tokens and logits of one, bit for bit.

`prefill` reads the prompts of some rows and gives a block with everything that their answers depend on; a
`proctor.transfer.kv.sender.Sender` ships it; `decode` goes on from it. Both sides run `generate` of the model itself,
so positions, masks and everything else are made where they are made in one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from proctor.rows import UserError
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv.block import Block
from proctor.transfer.kv.inbox import Received
from proctor.transfer.kv.model_state import (
    Steady,
    cache_from,
    cached,
    check_model,
    layout_of,
    remember,
    remembered,
    weights_id,
)

__all__ = ["Continued", "decode", "layout_of", "prefill", "weights_id"]

_IDS, _MASK, _LOGITS, _POSITIONS = "input_ids", "attention_mask", "logits", "position_ids"
_GROWING: Final = ("token_type_ids", "mm_token_type_ids")
"""Inputs with one element for each position, which `generate` makes longer: by the last element, and by zeros."""
_PROMPT_ONLY: Final = frozenset(
    {"pixel_values", "pixel_values_videos", "pixel_attention_mask", "image_grid_thw", "video_grid_thw",
     "image_sizes", "second_per_grid_ts"}
)  # fmt: skip
"""Inputs whose whole effect is in the cache once the prompt is read."""


class Continued(NamedTuple):
    """What decoding gives.

    Attributes:
        sequences: int64 (rows, prompt and answer); rows that have ended are filled up with the padding token.
        logits: float32 (rows, vocabulary) for every token of the answer, before any processor; empty if not wanted.
    """

    sequences: torch.Tensor
    logits: tuple[torch.Tensor, ...]


def prefill(model: Any, inputs: Mapping[str, torch.Tensor], request: str) -> Block:
    """Reads the prompts of the rows of `inputs`.

    Args:
        model: a decoder of transformers, in evaluation mode, with a plain generation configuration.
        inputs: what its processor or tokenizer made, padded on the left, on the model's device.
        request: the block's id.

    Returns:
        A block with keys and values, tokens, mask, positions, the last position's logits, and whatever tensors the
        model keeps outside its cache.

    Raises:
        UserError: the model or an input cannot be split, with the reason.
    """
    check_model(model)
    _check_inputs(inputs)
    steady, seen = Steady(model), dict[str, Any]()
    hook = model.register_forward_pre_hook(lambda _module, _args, given: seen.update(given), with_kwargs=True)
    try:
        with torch.inference_mode():
            out = model.generate(**inputs, max_new_tokens=1, return_dict_in_generate=True, output_logits=True)
    finally:
        hook.remove()
    steady.check()
    ids = inputs[_IDS]
    tensors = cached(out.past_key_values) | remembered(model)
    tensors |= {_IDS: ids, _LOGITS: out.logits[0], _MASK: inputs.get(_MASK, torch.ones_like(ids))}
    tensors |= {name: inputs[name] for name in _GROWING if inputs.get(name) is not None}
    if seen.get(_POSITIONS) is not None:
        tensors[_POSITIONS] = seen[_POSITIONS]
    return Block(request=request, tokens=tuple(ids.flatten().tolist()), position=ids.shape[1], tensors=tensors)


def decode(
    model: Any,
    received: Received,
    limit: int,
    *,
    processors: Sequence[LogitsProcessor] = (),
    criteria: Sequence[StoppingCriteria] = (),
    logits: bool = False,
) -> Continued:
    """Writes the answers of a block's rows, greedily after `processors`.

    Args:
        model: the same model as on the other side (the two sides' layouts were compared when they met).
        received: what came.
        limit: most tokens of an answer.
        processors: as `generate` takes them.
        criteria: as `generate` takes them; the model's own end tokens end a row, too.
        logits: whether logits are wanted.

    Raises:
        TransferError: ``MISMATCH``: something that every block has is not there.
        UserError: the model cannot be split.
    """
    check_model(model)
    if limit < 1:
        raise UserError(f"{limit} tokens are no answer", where="limit", fix="take at least 1")
    tensors = {name: tensor.to(model.device) for name, tensor in received.tensors.items()}
    _check_whole(received, tensors)
    with torch.inference_mode():
        raw = tensors[_LOGITS]
        scores = LogitsProcessorList(processors)(tensors[_IDS], raw)
        ids = torch.cat([tensors[_IDS], scores.argmax(-1)[:, None]], dim=-1)
        ended = (
            StoppingCriteriaList(criteria)(ids, scores) if criteria else torch.zeros_like(ids[:, 0], dtype=torch.bool)
        )
        ends = _end_ids(model)
        ended |= torch.isin(ids[:, -1], torch.tensor(ends, dtype=torch.int64, device=ids.device))
        first = (raw,) if logits else ()
        if limit == 1 or bool(ended.all()):
            return Continued(ids, first)
        remember(model, tensors)
        out = model.generate(
            ids,
            **_longer_by_one(tensors),
            past_key_values=cache_from(tensors, model.config.get_text_config().num_hidden_layers, model.config),
            max_new_tokens=limit - 1,
            logits_processor=[*processors, _PadEnded(ended, _padding(model, ends))],
            stopping_criteria=[*criteria, _Ended(ended)],
            return_dict_in_generate=True,
            output_logits=logits,
        )
    return Continued(out.sequences, first + tuple(out.logits or ()))


def _check_inputs(inputs: Mapping[str, torch.Tensor]) -> None:
    known = {_IDS, _MASK, *_GROWING, *_PROMPT_ONLY}
    if unknown := sorted(set(inputs) - known):
        raise UserError(
            f"prefill and decode cannot be split: nothing is known of what {', '.join(unknown)} does to the answer",
            where="inputs",
            fix="run the model in one process",
        )
    if _IDS not in inputs:
        raise UserError("there are no token ids", where="inputs", fix="give input_ids")


def _check_whole(received: Received, tensors: Mapping[str, torch.Tensor]) -> None:
    if missing := sorted({_IDS, _MASK, _LOGITS} - set(tensors)):
        raise TransferError(Reason.MISMATCH, f"{received.request}: the block lacks {', '.join(missing)}")
    ids, key = tensors[_IDS], tensors["layer.0.key"]
    if tuple(ids.flatten().tolist()) != received.tokens or ids.shape != (key.shape[0], received.position):
        raise TransferError(Reason.MISMATCH, f"{received.request}: the block's tokens are not those of its prompt")
    if key.shape[2] != received.position:
        raise TransferError(
            Reason.MISMATCH, f"{received.request}: {key.shape[2]} positions are cached, not {received.position}"
        )


def _longer_by_one(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs for prompt and first token, made longer as `generate` does it after each step."""
    mask = tensors[_MASK]
    longer = {_MASK: torch.cat([mask, mask.new_ones((len(mask), 1))], dim=-1)}
    if _POSITIONS in tensors:
        positions = tensors[_POSITIONS]
        longer[_POSITIONS] = torch.cat([positions, positions[..., -1:] + 1], dim=-1)
    for name in _GROWING:
        if name in tensors:
            last = tensors[name][:, -1:]
            longer[name] = torch.cat(
                [tensors[name], torch.zeros_like(last) if name.startswith("mm_") else last], dim=-1
            )
    return longer


def _end_ids(model: Any) -> list[int]:
    ids = model.generation_config.eos_token_id
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


def _padding(model: Any, ends: Sequence[int]) -> int | None:
    """What `generate` fills rows up with that have ended."""
    own: int | None = model.generation_config.pad_token_id
    return own if own is not None else next(iter(ends), None)


class _PadEnded(LogitsProcessor):
    """Rows that ended with their first token get padding, as they would within one call of `generate`."""

    def __init__(self, ended: torch.Tensor, padding: int | None) -> None:
        self._ended, self._padding = ended, padding

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 (the base class's signature)
        if self._padding is None or not bool(self._ended.any()):
            return scores
        padded = torch.full_like(scores, -torch.inf)
        padded[:, self._padding] = 0.0
        return torch.where(self._ended[:, None], padded, scores)


class _Ended(StoppingCriteria):
    """Rows that ended with their first token stay so."""

    def __init__(self, ended: torch.Tensor) -> None:
        self._ended = ended

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:  # noqa: ARG002 (the base class's signature)
        return self._ended
