"""One row in vLLM: how it enters, what it is sampled with, and what comes out."""

from __future__ import annotations

from typing import Any

from proctor.engines.base import EngineDied
from proctor.engines.chat import Chat
from proctor.engines.prepare import Prepared, prepare
from proctor.engines.refusal import Refused, check_length, one_line, rejected
from proctor.engines.sampling import row_seed
from proctor.rows import ErrorKind, Failure, Request, Response
from proctor.rows.exchange import FinishReason


def add_row(engine: Any, chat: Chat, request: Request) -> None:
    """Hands a request to vLLM's `LLMEngine`, under its row id.

    Raises:
        Refused: the row cannot be run; the engine and the other rows are as before.
        EngineDied: vLLM's engine core is dead.
    """
    row = prepare(request, chat)
    rendered: dict[str, Any] = {}
    try:
        rendered = _rendered(engine, chat, row)
        check_length(len(rendered["prompt_token_ids"]), request.sampling.max_tokens, engine.model_config.max_model_len)
        engine.add_request(str(request.id), rendered, _sampling_params(request))
    except Exception as error:
        _forget_images(engine, rendered)
        raise _verdict(error) from error


def response_of(request_id: int, output: Any) -> Response:
    """The response of a finished request, from vLLM's `RequestOutput`."""
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


def _rendered(engine: Any, chat: Chat, row: Prepared) -> dict[str, Any]:
    """The row as vLLM's own input: tokens with the images expanded, and processed pixels."""
    from vllm.renderers.inputs.preprocess import parse_model_prompt

    prompt: dict[str, Any] = {"prompt": row.text}
    if row.images:
        prompt["multi_modal_data"] = {"image": row.images}
    tokenization = engine.renderer.default_cmpl_tok_params
    if not chat.needs_special_tokens(row.text):
        tokenization = tokenization.with_kwargs(add_special_tokens=False)
    (rendered,) = engine.renderer.render_cmpl([parse_model_prompt(engine.model_config, prompt)], tokenization)
    found: dict[str, Any] = rendered
    return found


def _forget_images(engine: Any, rendered: dict[str, Any]) -> None:
    """Takes a refused row's images out of vLLM's cache of images that the engine has: it never got these."""
    cache = engine.renderer.mm_processor_cache
    if cache is not None:
        for hashes in rendered.get("mm_hashes", {}).values():
            for image in hashes:
                cache.invalidate(image)


def _verdict(error: Exception) -> Refused:
    from vllm.exceptions import VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError

    if isinstance(error, Refused):
        return error
    if isinstance(error, EngineDeadError):
        raise EngineDied(one_line(error)) from error
    if isinstance(error, (ValueError, VLLMClientError)):
        return rejected(f"vLLM does not take the row: {one_line(error)}")
    return Refused(ErrorKind.INFER_FAILED, one_line(error))


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


def _chosen_logprobs(answer: Any) -> tuple[float, ...] | None:
    if answer.logprobs is None:
        return None
    return tuple(
        float(by_token[token].logprob) for token, by_token in zip(answer.token_ids, answer.logprobs, strict=True)
    )
