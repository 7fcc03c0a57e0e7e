"""Runs a model in vLLM, fed continuously: a row enters as soon as another has left."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.engines.base import EngineConfig, EngineDied, Feed, Reporter, SwapRefused
from proctor.engines.chat import Chat
from proctor.engines.installed import check_installed
from proctor.engines.model_directory import check_model_directory
from proctor.engines.news import tell
from proctor.engines.published_weights import agreed
from proctor.engines.refusal import Refused, one_line
from proctor.engines.swap_check import Outline, check_configuration, known_outline
from proctor.engines.swap_reasons import vllm_reason
from proctor.engines.torchvision_shim import declare_missing_operators
from proctor.engines.vllm_arguments import check_arguments, check_version, engine_arguments, set_environment
from proctor.engines.vllm_cpu import quiet_and_eager
from proctor.engines.vllm_encoder import check_encoder, effects
from proctor.engines.vllm_rows import add_row, response_of
from proctor.engines.vllm_swap import check_files, check_ready, replace_weights
from proctor.rows import Request, Response, UserError


class VllmEngine:
    """Image-text-to-text models and text models in vLLM's engine, in this process or in processes of its own.

    Requests are added one by one, so whatever is wrong with one has an owner: vLLM's own `generate` fails the whole
    call for one bad row, and answers without a word when a prompt names more images than it brings.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._engine: Any = None
        self._chat: Chat | None = None
        self._outline: Outline | None = None
        self._torn = False

    def check(self) -> None:
        """Looks at the model directory, the installed vLLM, and the options by that vLLM's own argument list.

        Raises:
            UserError: what is wrong.
        """
        check_model_directory(self._config.model)
        check_installed("vllm", extra="vllm")
        self._prepare_import()
        check_version()
        check_arguments(self._config)
        _check_device(self._config.device)
        _check_encoder(self._config)

    def load(self) -> None:
        """Starts vLLM's engine."""
        self._prepare_import()
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
        self._outline = known_outline(self._config.model)
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        if self._config.encoder is not None:
            for effect in effects(self._engine, self._config.encoder, os.environ):
                said = {True: "in effect", False: "without effect", None: "not known to be in effect"}[effect.in_effect]
                tell("compile.effect", f"{effect.switch} is {said}: {effect.why}", **effect._asdict())

    def stream(self, feed: Feed, report: Reporter) -> Iterator[Response]:
        """Answers every request of `feed`; takes new ones whenever one has left, without waiting for the others."""
        if self._torn:
            raise RuntimeError("a swap has failed half-way: the engine has to be started anew")
        running: dict[str, _Running] = {}
        while True:
            room = self._config.batch_size - len(running)
            requests = feed.take(room, wait=not running) if room > 0 else []
            if not requests and not running:
                return
            for request in requests:
                try:
                    self._add(request)
                    running[str(request.id)] = _Running(request)
                except Refused as refusal:
                    yield refusal.response(request.id)
            if running:
                yield from self._step(running, report)

    def swap(self, config: EngineConfig, weights: str = "") -> None:
        """Has vLLM's workers take over another checkpoint, and empties the caches of what the old one made.

        After any exception but `SwapRefused` the engine answers nothing more.

        Raises:
            SwapRefused: another architecture, other tensors, another tokenizer, processor, template or generation
                settings, quantized weights, an option or a version that stands in the way; nothing has changed.
        """
        check_configuration(self._config, config)
        if why := vllm_reason(config):
            raise SwapRefused(why)
        # Every worker compares the bytes with their checksums.
        with agreed(self._outline, config, weights, verify=False) as (outline, _):
            check_files(self._outline, outline)
            check_ready(self._engine, weights)
            self._torn = True
            replace_weights(self._engine, config.model, weights)
            self._torn = False
        self._config, self._outline = config, outline

    def close(self) -> None:
        """Ends vLLM's engine, and its processes where it has any."""
        if self._engine is not None:
            self._engine.engine_core.shutdown()
        self._engine = self._chat = None
        gc.collect()

    def _prepare_import(self) -> None:
        set_environment(multiprocessing=self._config.multiprocessing)
        declare_missing_operators()

    def _add(self, request: Request) -> None:
        if self._engine is None or self._chat is None:
            raise RuntimeError("stream() before load()")
        add_row(self._engine, self._chat, request)

    def _step(self, running: dict[str, _Running], report: Reporter) -> Iterator[Response]:
        tokens = 0
        done: list[Response] = []
        for output in self._outputs():
            row = running[output.request_id]
            tokens += row.new_tokens(output)
            if output.finished:
                done.append(response_of(row.request, output))
                del running[output.request_id]
        if tokens:  # a step that decodes nothing is no progress: vLLM may step for ever without any
            report(tokens)
        yield from done

    def _outputs(self) -> list[Any]:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            outputs: list[Any] = self._engine.step()
        except EngineDeadError as error:
            raise EngineDied(one_line(error)) from error
        return outputs


@dataclass(slots=True)
class _Running:
    """A row inside vLLM and how many of its tokens have been reported."""

    request: Request
    reported: int = 0

    def new_tokens(self, output: Any) -> int:
        now = len(output.outputs[0].token_ids)
        new, self.reported = now - self.reported, now
        return new


def _platform() -> str:
    from vllm.platforms import current_platform

    return str(current_platform.device_type)


def _check_encoder(config: EngineConfig) -> None:
    import vllm

    check_encoder(config, Path(vllm.__file__).parent, vllm.__version__, on_cpu=_platform() == "cpu")


def _check_device(wanted: str) -> None:
    there = _platform()
    if wanted not in ("auto", there):
        raise UserError(
            f"this vLLM runs on {there or 'no device'}, not on {wanted}", where="engine.device", fix="set it to auto"
        )
