"""Runs a model in vLLM, fed continuously: a row enters as soon as another has left."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proctor.engines.base import EngineConfig, Feed, Reporter
from proctor.engines.chat import Chat
from proctor.engines.model_directory import check_model_directory
from proctor.engines.prepare import prepare
from proctor.engines.refusal import Refused, check_length, one_line, rejected
from proctor.engines.sampling import row_seed
from proctor.engines.torchvision_shim import declare_missing_operators
from proctor.engines.vllm_arguments import check_arguments, engine_arguments, set_environment
from proctor.engines.vllm_cpu import quiet_and_eager
from proctor.rows import ErrorKind, Failure, Request, Response, UserError
from proctor.rows.exchange import FinishReason


class VllmEngine:
    """Image-text-to-text models and text models in vLLM's engine, in this process.

    Requests are added one by one, so whatever is wrong with one has an owner: vLLM's own `generate` fails the whole
    call for one bad row, and answers without a word when a prompt names more images than it brings.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._engine: Any = None
        self._chat: Chat | None = None

    def check(self) -> None:
        """Looks at the model directory, and at the options by the installed vLLM's own argument list.

        Raises:
            UserError: what is wrong.
        """
        check_model_directory(self._config.model)
        _prepare_import()
        check_arguments(self._config)
        _check_device(self._config.device)

    def load(self) -> None:
        """Starts vLLM's engine."""
        _prepare_import()
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        from proctor.engines.hf_processor import load_processor, takes_images

        directory = Path(self._config.model)
        trusted = bool(self._config.options.get("trust_remote_code", False))
        images = takes_images(directory, trust_remote_code=trusted)
        processor = load_processor(directory, images=images, trust_remote_code=trusted)
        self._chat = Chat(processor, takes_images=images)
        on_cpu = _platform() == "cpu"
        arguments = engine_arguments(self._config, on_cpu=on_cpu, takes_images=images)
        if on_cpu and arguments["enforce_eager"]:
            quiet_and_eager()
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))

    def stream(self, feed: Feed, report: Reporter) -> Iterator[Response]:
        """Answers every request of `feed`; takes new ones whenever one has left, without waiting for the others."""
        running: dict[str, _Running] = {}
        while True:
            room = self._config.batch_size - len(running)
            requests = feed.take(room, wait=not running) if room > 0 else []
            if not requests and not running:
                return
            for request in requests:
                refusal = self._add(request, running)
                if refusal is not None:
                    yield Response.failed(request.id, refusal)
            if running:
                yield from self._step(running, report)

    def close(self) -> None:
        """Ends vLLM's engine, and its processes where it has any."""
        if self._engine is not None:
            self._engine.engine_core.shutdown()
        self._engine = self._chat = None
        gc.collect()

    def _add(self, request: Request, running: dict[str, _Running]) -> Failure | None:
        """Hands a request to vLLM; a failure if it cannot be run."""
        if self._engine is None or self._chat is None:
            raise RuntimeError("stream() before load()")
        try:
            prompt = self._prompt(request, self._chat)
            self._engine.add_request(str(request.id), prompt, _sampling_params(request))
        except Refused as refusal:
            return refusal.failure
        except ValueError as error:  # vLLM's validation errors are ValueErrors
            return rejected(f"vLLM does not take the row: {one_line(error)}").failure
        except Exception as error:
            return Failure(ErrorKind.INFER_FAILED, one_line(error))
        running[str(request.id)] = _Running(request.id)
        return None

    def _prompt(self, request: Request, chat: Chat) -> Any:
        """The request as vLLM's own input: tokens with images expanded, and processed pixels."""
        from vllm.renderers.inputs.preprocess import parse_model_prompt

        row = prepare(request, chat)
        prompt: dict[str, Any] = {"prompt": row.text}
        if row.images:
            prompt["multi_modal_data"] = {"image": row.images}
        renderer = self._engine.renderer
        tokenization = renderer.default_cmpl_tok_params
        if not chat.needs_special_tokens(row.text):
            tokenization = tokenization.with_kwargs(add_special_tokens=False)
        model_config = self._engine.model_config
        (rendered,) = renderer.render_cmpl([parse_model_prompt(model_config, prompt)], tokenization)
        prompt_tokens = len(rendered["prompt_token_ids"])
        check_length(prompt_tokens, request.sampling.max_tokens, model_config.max_model_len)
        return rendered

    def _step(self, running: dict[str, _Running], report: Reporter) -> Iterator[Response]:
        tokens = 0
        done = []
        for output in self._engine.step():
            row = running.get(output.request_id)
            if row is None:
                continue
            tokens += row.new_tokens(output)
            if output.finished:
                done.append(_response(row.id, output))
                del running[output.request_id]
        report(tokens)
        yield from done


class _Running:
    """A request inside vLLM and how many of its tokens have been reported."""

    def __init__(self, request_id: int) -> None:
        self.id = request_id
        self._reported = 0

    def new_tokens(self, output: Any) -> int:
        now = len(output.outputs[0].token_ids)
        new, self._reported = now - self._reported, now
        return new


def _prepare_import() -> None:
    set_environment()
    declare_missing_operators()


def _platform() -> str:
    from vllm.platforms import current_platform

    return str(current_platform.device_type)


def _check_device(wanted: str) -> None:
    there = _platform()
    if wanted not in ("auto", there):
        raise UserError(
            f"this vLLM runs on {there or 'no device'}, not on {wanted}", where="engine.device", fix="set it to auto"
        )


def _sampling_params(request: Request) -> Any:
    from vllm import SamplingParams

    sampling = request.sampling
    drawn = sampling.temperature > 0
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p if drawn else 1.0,
        seed=row_seed(request) if drawn else None,
        stop=list(sampling.stop) or None,
        logprobs=0 if sampling.logprobs else None,
    )


def _response(request_id: int, output: Any) -> Response:
    answer = output.outputs[0]
    reasons: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
    reason = reasons.get(answer.finish_reason)
    if reason is None:
        message = f"vLLM ended the request early: {answer.finish_reason or 'no reason given'}"
        return Response.failed(request_id, Failure(ErrorKind.INFER_FAILED, message))
    return Response(
        id=request_id,
        text=answer.text,
        token_ids=tuple(answer.token_ids),
        logprobs=_chosen_logprobs(answer),
        finish_reason=reason,
        prompt_tokens=len(output.prompt_token_ids),
    )


def _chosen_logprobs(answer: Any) -> tuple[float, ...] | None:
    if answer.logprobs is None:
        return None
    return tuple(
        float(by_token[token].logprob) for token, by_token in zip(answer.token_ids, answer.logprobs, strict=True)
    )
