"""Lets the rows of one `generate` call choose and stop each in its own way.

transformers samples a whole batch from one random state and stops all rows by one rule. Here every row has its own
temperature, draws, stop texts and token limit: the choice is made in the scores (Gumbel-max: the arg max of scores
plus Gumbel noise is a draw from their softmax), so a row's draws come from its own generator whatever runs beside it.
A row with forced tokens is steered in the same place; log-probabilities are always those of the scores before that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import LogitsProcessor, StoppingCriteria

from proctor.engines.base import Reporter
from proctor.engines.sampling import row_seed, stop_position
from proctor.rows import Request, Sampling
from proctor.rows.exchange import FinishReason, TopLogprobs


@dataclass(slots=True)
class Row:
    """What one row has generated so far; `generator` is set where the row is sampled."""

    sampling: Sampling
    generator: Any = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    @property
    def top_logprobs(self) -> TopLogprobs | None:
        """The most likely tokens at each position; None where not asked for."""
        return tuple(self.top) if self.sampling.top_logprobs else None


def new_row(request: Request, device: Any) -> Row:
    """A row before its first token."""
    if request.sampling.temperature == 0 or request.sampling.forced:
        return Row(request.sampling)
    return Row(request.sampling, torch.Generator(device).manual_seed(row_seed(request)))


class Choose(LogitsProcessor):
    """Makes the arg max that follows choose what each row is to choose.

    A sampled row gets its noise added, so that the arg max is that row's draw; a row with forced tokens gets scores
    that leave one token only.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self.scores: Any = None
        """The scores before any change, float32 (rows, vocabulary)."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:  # noqa: ARG002 (the base class's signature)
        """The scores, changed where a row is sampled or forced."""
        self.scores = scores
        drawn = scores
        for number, row in enumerate(self._rows):
            if row.finish_reason is not None or (row.generator is None and not row.sampling.forced):
                continue
            drawn = scores.clone() if drawn is scores else drawn
            if row.generator is None:
                drawn[number] = _only(scores[number], row.sampling.forced[len(row.token_ids)])
            else:
                drawn[number] = _with_noise(scores[number], row.sampling, row.generator)
        return drawn


def _only(scores: Any, token: int) -> Any:
    steered = torch.full_like(scores, -torch.inf)
    steered[token] = 0.0
    return steered


def _with_noise(scores: Any, sampling: Sampling, generator: Any) -> Any:
    scores = scores / sampling.temperature
    if sampling.top_p < 1:
        scores = _nucleus(scores, sampling.top_p)
    exponential = torch.empty_like(scores).exponential_(generator=generator)
    return scores - exponential.clamp_min(torch.finfo(scores.dtype).tiny).log()


def _nucleus(scores: Any, top_p: float) -> Any:
    """Rules out every token outside the smallest set, most likely first, that holds `top_p` of the probability."""
    ordered, order = scores.sort(descending=True)
    shares = ordered.softmax(-1)
    outside = shares.cumsum(-1) - shares >= top_p
    return scores.index_fill(0, order[outside], -torch.inf)


class Finish(StoppingCriteria):
    """Takes down each row's new token and says which rows are done."""

    def __init__(
        self, rows: Sequence[Row], choose: Choose, tokenizer: Any, end_ids: Collection[int], report: Reporter
    ) -> None:
        self._rows, self._choose, self._tokenizer = rows, choose, tokenizer
        self._end_ids = frozenset(end_ids)
        self._report = report

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:  # noqa: ARG002 (the base class's signature)
        """Which rows are done, as booleans (rows,)."""
        chosen = input_ids[:, -1]
        logprobs = self._logprobs()
        of_chosen = [] if logprobs is None else logprobs.gather(1, chosen[:, None])[:, 0].tolist()
        top = self._top(logprobs)
        open_rows = 0
        for number, token in enumerate(chosen.tolist()):
            row = self._rows[number]
            if row.finish_reason is not None:
                continue
            open_rows += 1
            row.token_ids.append(token)
            if row.sampling.logprobs:
                row.logprobs.append(float(of_chosen[number]))
            if row.sampling.top_logprobs:
                row.top.append(top[number][: row.sampling.top_logprobs])
            row.finish_reason = self._reason(row)
        self._report(open_rows)
        return torch.tensor([row.finish_reason is not None for row in self._rows], device=input_ids.device)

    def _logprobs(self) -> Any:
        """Of the whole vocabulary, float32 (rows, vocabulary), from the scores before any change; None if unwanted."""
        if not any(row.sampling.logprobs or row.sampling.top_logprobs for row in self._rows):
            return None
        return torch.log_softmax(self._choose.scores, dim=-1)

    def _top(self, logprobs: Any) -> list[tuple[tuple[int, float], ...]]:
        """The most likely tokens of every row, as many as the row that wants most wants; equals by ascending id."""
        most = max((row.sampling.top_logprobs for row in self._rows), default=0)
        if not most:
            return []
        values, ids = logprobs.topk(min(most, logprobs.shape[-1]), dim=-1)
        return [
            tuple(sorted(zip(tokens, found, strict=True), key=lambda pair: (-pair[1], pair[0])))
            for tokens, found in zip(ids.tolist(), values.tolist(), strict=True)
        ]

    def _reason(self, row: Row) -> FinishReason | None:
        if row.sampling.forced:
            return self._forced_reason(row)
        if row.token_ids[-1] in self._end_ids:
            return "stop"
        if row.sampling.stop and stop_position(decoded(self._tokenizer, row.token_ids), row.sampling.stop) >= 0:
            return "stop"
        return "length" if len(row.token_ids) >= row.sampling.max_tokens else None

    def _forced_reason(self, row: Row) -> FinishReason | None:
        if len(row.token_ids) < len(row.sampling.forced):
            return None
        return "stop" if row.token_ids[-1] in self._end_ids else "length"


def decoded(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Tokens as text, without special tokens and without any tidying of spaces."""
    text: str = tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text
