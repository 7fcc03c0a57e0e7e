"""One model in transformers: rows in, answers out, a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig
from transformers.utils.logging import disable_progress_bar

from proctor.engines.base import EngineConfig, Reporter, unheard
from proctor.engines.chat import Chat
from proctor.engines.compiling.settings import Compile
from proctor.engines.hf_processor import load_processor, takes_images
from proctor.engines.hf_weights import load_model, successor
from proctor.engines.prepare import Prepared, prepare
from proctor.engines.refusal import Refused, check_length, rejected
from proctor.engines.row_decoding import Choose, Finish, Row, decoded, new_row
from proctor.engines.sampling import cut_at_stop
from proctor.rows import Request, Response, UserError

if TYPE_CHECKING:
    from proctor.engines.compiling.inside import CompiledParts

PROCESSOR_OPTION = "mm_processor_kwargs"
"""Arguments for the processor's call (e.g. `max_pixels`), under the name that vLLM uses for the same thing."""
PADDING_OPTION = "pad_to_multiple_of"
"""Prompts are padded on the left to a multiple of so many tokens, also where a row is alone."""


class HFModel:
    """A loaded model with its processor.

    Args:
        config: the engine's configuration; its options go to `from_pretrained`, `mm_processor_kwargs` to the processor.
        processor: one that is loaded already.
        model: one that is loaded already.
        parts: what is compiled of that model.

    Raises:
        UserError: what the configuration wants compiled is not there or cannot be compiled.
    """

    def __init__(
        self, config: EngineConfig, *, processor: Any = None, model: Any = None, parts: CompiledParts | None = None
    ) -> None:
        disable_progress_bar()
        directory = Path(config.model)
        options = dict(config.options)
        self._processor_arguments: dict[str, Any] = options.pop(PROCESSOR_OPTION, {})
        self._padding = {name: options.pop(name) for name in (PADDING_OPTION,) if name in options}
        trusted = bool(options.get("trust_remote_code", False))
        images = takes_images(directory, trust_remote_code=trusted)
        self.processor = processor or load_processor(directory, images=images, trust_remote_code=trusted)
        self.chat = Chat(self.processor, takes_images=images)
        self._options = options
        if model is None:
            model = load_model(directory, config.dtype, config.device, options, images=images)
        self._model = model
        self._end_ids = _end_ids(self._model, self.chat.tokenizer)
        self._model.generation_config = _plain_generation(self._model.generation_config, self.chat.tokenizer)
        self.max_len = _longest(self._model, config.max_model_len)
        self._parts = parts
        if config.compile is not None and parts is None:
            self._compile(config.compile)

    def successor(self, config: EngineConfig, tensors: Mapping[str, Any] | None, *, same_processor: bool) -> HFModel:
        """The same with another checkpoint, which takes this one's place: use this one no more.

        Args:
            config: this one's, but for the model's directory.
            tensors: the other checkpoint's weights, which it may go on using; None: they are read from its directory.
            same_processor: whether its tokenizer, processor and template are the same.

        Raises:
            SwapRefused: nothing has changed.
        """
        images = self.chat.takes_images
        processor = self.processor if same_processor else None
        model = successor(self._model, Path(config.model), config.dtype, self._options, tensors, images=images)
        parts = None if self._parts is None else self._parts.moved(self._model, model)
        return HFModel(config, processor=processor, model=model, parts=parts)

    def _compile(self, how: Compile) -> None:
        from proctor.engines.compiling.inside import CompiledParts

        if not self.chat.takes_images:
            raise UserError(
                "the model takes no images: it has no vision encoder", where="engine.compile", fix="leave it out"
            )
        parts = CompiledParts(self._model, how)
        parts.warm_up(self._try)
        self._parts = parts

    def _try(self, requests: Sequence[Request]) -> None:
        """Runs requests whose answers do not matter; a model that does not take them is left as it is."""
        try:
            self.answers([prepare(request, self.chat) for request in requests], unheard)
        except Refused:
            return

    def answers(self, rows: Sequence[Prepared], report: Reporter) -> list[Response]:
        """Answers a batch of rows that either all bring images or all bring none; too long rows are refused unrun."""
        inputs, refusals = self._fitting_inputs(rows)
        running = [row for row in rows if row.request.id not in refusals]
        done = self._generate(running, inputs, report) if running else []
        if self._parts is not None:
            self._parts.tell_changes()
        return [refusal.response(request_id) for request_id, refusal in refusals.items()] + done

    def _fitting_inputs(self, rows: Sequence[Prepared]) -> tuple[Any, dict[int, Refused]]:
        inputs = self._inputs(rows)
        refusals: dict[int, Refused] = {}
        for row, length in zip(rows, inputs["attention_mask"].sum(1).tolist(), strict=True):
            try:
                check_length(length, row.request.sampling.limit, self.max_len)
                self._check_forced(row.request.sampling.forced)
            except Refused as refusal:
                refusals[row.request.id] = refusal
        if refusals:
            running = [row for row in rows if row.request.id not in refusals]
            inputs = self._inputs(running) if running else inputs
        return inputs, refusals

    def _check_forced(self, forced: Sequence[int]) -> None:
        vocabulary = self._model.config.get_text_config().vocab_size
        if any(not 0 <= token < vocabulary for token in forced):
            raise rejected(f"a forced token is not one of the model's {vocabulary}")
        if any(token in self._end_ids for token in forced[:-1]):
            raise rejected("the forced tokens go on after one that ends an answer")

    def _inputs(self, rows: Sequence[Prepared]) -> Any:
        texts = [row.text for row in rows]
        arguments: dict[str, Any] = {"padding": True, "return_tensors": "pt", **self._padding}
        if not self.chat.needs_special_tokens(texts[0]):
            arguments["add_special_tokens"] = False
        if not self.chat.takes_images:
            return self.processor(texts, return_token_type_ids=False, **arguments)
        images = [row.images for row in rows] if rows[0].images else None
        try:
            return self.processor(images=images, text=texts, **arguments, **self._processor_arguments)
        except ValueError as error:
            if len(rows) > 1:
                raise
            raise rejected(f"the model's processor does not take the row: {error}") from error

    def _generate(self, rows: Sequence[Prepared], inputs: Any, report: Reporter) -> list[Response]:
        inputs = self._on_device(inputs)
        state = [new_row(row.request, self._model.device) for row in rows]
        choose = Choose(state)
        finish = Finish(state, choose, self.chat.tokenizer, self._end_ids, report)
        with torch.inference_mode():
            self._model.generate(
                **inputs,
                max_new_tokens=max(row.sampling.limit for row in state),
                logits_processor=[choose],
                stopping_criteria=[finish],
            )
        lengths = inputs["attention_mask"].sum(1).tolist()
        return [self._response(*answered) for answered in zip(rows, state, lengths, strict=True)]

    def _on_device(self, inputs: Any) -> Any:
        if self.chat.takes_images:
            return inputs.to(self._model.device, dtype=self._model.dtype)  # the type is for pixels only
        return inputs.to(self._model.device)

    def _response(self, row: Prepared, state: Row, prompt_tokens: int) -> Response:
        return Response(
            id=row.request.id,
            text=self._text(state),
            token_ids=tuple(state.token_ids),
            logprobs=tuple(state.logprobs) if state.sampling.logprobs else None,
            top_logprobs=state.top_logprobs,
            finish_reason=state.finish_reason,
            prompt_tokens=prompt_tokens,
        )

    def _text(self, state: Row) -> str:
        text = decoded(self.chat.tokenizer, state.token_ids)
        # A character whose bytes are not all there yet is no part of the answer (vLLM holds it back as well).
        return cut_at_stop(text, () if state.sampling.forced else state.sampling.stop).rstrip("\ufffd")


def _end_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every token that ends an answer: the model's own list and the tokenizer's, as vLLM has it."""
    own = model.generation_config.eos_token_id
    ids = [own] if isinstance(own, int) else list(own or ())
    return list(dict.fromkeys([*ids, tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else ids))


def _plain_generation(own: Any, tokenizer: Any) -> GenerationConfig:
    """Greedy and without penalties: only the row's own `Sampling` decides, not what the model's makers recommend."""
    return GenerationConfig(
        do_sample=False,
        bos_token_id=own.bos_token_id,
        eos_token_id=own.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _longest(model: Any, wanted: int | None) -> int:
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    limits = [limit for limit in (own, wanted) if limit is not None]
    return min(limits) if limits else 2**31
