"""Are two engines' greedy answers the same, or parted by a tie that rounding decides?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.engines.hf_model import HFModel
from proctor.engines.prepare import prepare
from proctor.rows import Request, Response

BOUND = 1e-3
"""Nats between the two tokens at the first difference; float32 engines differ by some 1e-6 to 1e-5."""


def logprobs_after(model: HFModel, request: Request, prefix: Sequence[int]) -> Any:
    """Log-probabilities (vocabulary,) of the token that follows the request's prompt and the answer's `prefix`."""
    import torch

    inputs = model._inputs([prepare(request, model.chat)])
    answer = torch.tensor([prefix], dtype=torch.long)
    inputs["input_ids"] = torch.cat([inputs["input_ids"], answer], dim=1)
    for name, value in (("attention_mask", 1), ("mm_token_type_ids", 0)):
        inputs[name] = torch.cat([inputs[name], torch.full_like(answer, value)], dim=1)
    with torch.inference_mode():
        return model._model(**inputs).logits[0, -1].float().log_softmax(-1)


def margin(model: HFModel, request: Request, one: Sequence[int], other: Sequence[int]) -> float:
    """Nats between the tokens at the first place where two answers differ; infinite if one just ends there."""
    place = next((n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if place is None:
        return float("inf")
    logprobs = logprobs_after(model, request, one[:place])
    return abs(float(logprobs[one[place]] - logprobs[other[place]]))


def margins(
    model: HFModel, requests: Sequence[Request], one: Mapping[int, Response], other: Mapping[int, Response]
) -> dict[int, float]:
    """The margin of every row whose answers differ."""
    pairs = {request.id: (one[request.id].token_ids, other[request.id].token_ids) for request in requests}
    return {
        request.id: margin(model, request, *pairs[request.id])
        for request in requests
        if pairs[request.id][0] != pairs[request.id][1]
    }
