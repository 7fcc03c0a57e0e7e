"""One row in vLLM: how it enters, what it is sampled with, and what comes out."""

from __future__ import annotations

from typing import Any

from proctor.engines.base import EngineDied
from proctor.engines.chat import Chat
from proctor.engines.prepare import Prepared, prepare
from proctor.engines.refusal import Refused, check_length, one_line, rejected
from proctor.engines.sampling import row_seed
from proctor.rows import ErrorKind, Failure, Request, Response
from proctor.rows.exchange import FinishReason, TopLogprobs


def add_row(engine: Any, chat: Chat, request: Request) -> None:
    """Hands a request to vLLM's `LLMEngine`, under its row id.

    Raises:
        Refused: the row cannot be run; the engine and the other rows are as before.
        EngineDied: vLLM's engine core is dead.
    """
    if request.sampling.forced and not getattr(engine.model_config, "enable_trace_replay", False):
        raise rejected("this vLLM was not started to replay tokens (enable_trace_replay): it cannot follow forced ones")
    row = prepare(request, chat)
    rendered: dict[str, Any] = {}
    try:
        rendered = _rendered(engine, chat, row)
        check_length(len(rendered["prompt_token_ids"]), request.sampling.limit, engine.model_config.max_model_len)
        engine.add_request(str(request.id), rendered, _sampling_params(request))
    except Exception as error:
        _forget_images(engine, rendered)
        raise _verdict(error) from error


def response_of(request: Request, output: Any) -> Response:
    """The response of a finished request, from vLLM's `RequestOutput`."""
    answer = output.outputs[0]
    reasons: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
    reason = reasons.get(answer.finish_reason)
    if reason is None:
        message = f"vLLM ended the request early: {answer.finish_reason or 'no reason given'}"
        return Response.failed(request.id, Failure(ErrorKind.INFER_FAILED, message))
    return Response(
        id=request.id,
        text=answer.text,
        token_ids=tuple(answer.token_ids),
        logprobs=_chosen_logprobs(answer) if request.sampling.logprobs else None,
        top_logprobs=_top_logprobs(answer, request.sampling.top_logprobs) if request.sampling.top_logprobs else None,
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
    wanted = sampling.logprobs or sampling.top_logprobs > 0
    # An older vLLM does not know the name: there, nothing can be forced.
    replay = {"trace_decode_token_ids": list(sampling.forced)} if sampling.forced else {}
    return SamplingParams(
        max_tokens=sampling.limit,
        temperature=sampling.temperature,
        top_p=sampling.top_p if drawn else 1.0,
        seed=row_seed(request) if drawn else None,
        stop=list(sampling.stop) or None,
        logprobs=sampling.top_logprobs if wanted else None,  # 0: of the chosen token only
        **replay,
    )


def _chosen_logprobs(answer: Any) -> tuple[float, ...] | None:
    if answer.logprobs is None:
        return None
    return tuple(
        float(by_token[token].logprob) for token, by_token in zip(answer.token_ids, answer.logprobs, strict=True)
    )


def _top_logprobs(answer: Any, wanted: int) -> TopLogprobs | None:
    """vLLM tells the most likely tokens and, if it is not among them, the chosen one: only the former are kept."""
    if answer.logprobs is None:
        return None
    return tuple(
        tuple(sorted(((token, float(found.logprob)) for token, found in by_token.items()), key=_rank)[:wanted])
        for by_token in answer.logprobs
    )


def _rank(pair: tuple[int, float]) -> tuple[float, int]:
    return -pair[1], pair[0]
