"""The transformers engine's model in two halves: one reads prompts, the other writes answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, final

from proctor.engines.base import EngineConfig, Reporter
from proctor.engines.hf_model import HFModel
from proctor.engines.prepare import Prepared
from proctor.engines.row_decoding import Choose, Finish, new_row
from proctor.rows import Request, Response
from proctor.transfer.disaggregate import decode, layout_of, prefill, weights_id
from proctor.transfer.kv.block import Block
from proctor.transfer.kv.inbox import Received
from proctor.transfer.kv.layout import Layout
from proctor.transfer.kv.limits import Limits
from proctor.transfer.memory import free_bytes

USUAL_TOKENS: Final = 4096


class PromptsRead(NamedTuple):
    """Rows whose prompts are read.

    Attributes:
        block: for the other half; None if no row could be run.
        rows: ids of its rows, in its order.
        prompt_tokens: length of each row's prompt.
        refused: responses of the others.
    """

    block: Block | None
    rows: tuple[int, ...]
    prompt_tokens: tuple[int, ...]
    refused: list[Response]


@final
class SplitModel(HFModel):
    """Either half: both load the same model.

    Args:
        config: the engine's configuration.

    Attributes:
        layout: what both halves have to agree on.

    Raises:
        UserError: the model cannot be split.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.layout: Layout = layout_of(self._model, weights_id(self._model))

    def limits(self, rows: int, lease_seconds: float) -> Limits:
        """Room for two batches of `rows` prompts of up to `USUAL_TOKENS`, but for no more than a quarter of the memory
        that is free."""
        tokens = min(self.max_len, USUAL_TOKENS) * rows * 2
        slot_bytes = Limits().slot_bytes
        slots = min(tokens * self.layout.position_bytes, free_bytes() // 4) // slot_bytes
        return Limits(slots=max(slots, Limits().slots), slot_bytes=slot_bytes, lease_seconds=lease_seconds)

    def prefill(self, rows: Sequence[Prepared], name: str) -> PromptsRead:
        """Reads the prompts of rows that either all bring images or all bring none.

        Raises:
            UserError: an input of this model is not known to travel.
        """
        inputs, refusals = self._fitting_inputs(rows)
        refused = [refusal.response(request_id) for request_id, refusal in refusals.items()]
        running = tuple(row.request.id for row in rows if row.request.id not in refusals)
        if not running:
            return PromptsRead(None, (), (), refused)
        inputs = self._on_device(inputs)
        lengths = tuple(inputs["attention_mask"].sum(1).tolist())
        return PromptsRead(prefill(self._model, inputs, name), running, lengths, refused)

    def decode(
        self, requests: Sequence[Request], received: Received, prompt_tokens: Sequence[int], report: Reporter
    ) -> list[Response]:
        """Writes the answers of a block's rows.

        Args:
            requests: of the rows, in the block's order.
            received: the block.
            prompt_tokens: length of each row's prompt.
            report: see `Reporter`.

        Raises:
            TransferError: the block is not whole.
        """
        state = [new_row(request, self._model.device) for request in requests]
        choose = Choose(state)
        finish = Finish(state, choose, self.chat.tokenizer, self._end_ids, report)
        decode(self._model, received, max(row.sampling.limit for row in state), processors=[choose], criteria=[finish])
        rows = [Prepared(request, "", []) for request in requests]
        return [self._response(*answered) for answered in zip(rows, state, prompt_tokens, strict=True)]
