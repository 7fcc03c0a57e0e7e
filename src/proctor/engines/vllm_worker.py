"""Runs inside vLLM's workers, wherever those are: vLLM mixes this class into its own worker class.

So a swap needs neither pickled functions nor an interface of its own into other processes: vLLM calls methods of its
workers by name, with texts for arguments.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from proctor.engines.base import SwapRefused
from proctor.engines.published_weights import attached

if TYPE_CHECKING:
    import torch

EXTENSION = f"{__name__}.SwapExtension"
"""What ``worker_extension_cls`` has to be."""


class SwapExtension:
    """Methods that the workers get; called through vLLM's ``collective_rpc``."""

    def proctor_why_no_swap(self, weights: str) -> str:
        """Why this worker could not take over these weights; empty if it can. Changes nothing.

        Args:
            weights: path of published weights, or empty.
        """
        worker: Any = self
        reload: Any = getattr(worker.model_runner, "reload_weights", None)
        taken = inspect.signature(reload).parameters if reload is not None else {}
        if not {"weights_iterator", "weights_path"} <= set(taken):
            return "this vLLM's model runner has no reload_weights that takes weights by path and by name"
        if weights:
            try:
                attached(weights).close()
            except SwapRefused as refusal:
                return refusal.reason
        return ""

    def proctor_swap(self, model: str, weights: str) -> int:
        """Replaces the weights.

        Args:
            model: directory of the checkpoint.
            weights: path of its published weights; empty: vLLM reads the directory.

        Returns:
            How many tied modules were made anew from the new weights.
        """
        worker: Any = self
        if weights:
            with attached(weights, verify=False) as published:
                worker.reload_weights(weights_iterator=iter(published.tensors().items()))
            worker.vllm_config.model_config.model = model
        else:
            worker.reload_weights(weights_path=model)
        return remake_tied(worker.model_runner.get_model())

    def proctor_encoder(self) -> dict[str, Any]:
        """What this worker makes of the switches for the vision encoder.

        Returns:
            ``compiled``: how many modules of the encoder run as compiled code; ``graphs``: whether it is replayed from
            CUDA graphs, with ``budgets`` in encoder tokens.
        """
        worker: Any = self
        runner = worker.model_runner
        modules = runner.get_model().modules()
        compiled = [module for module in modules if getattr(module, "_is_encoder", False)]
        state = getattr(getattr(runner, "model_state", None), "encoder_runner", None)
        manager = getattr(runner, "encoder_cudagraph_manager", None) or getattr(state, "cudagraph_manager", None)
        return {
            "compiled": len([module for module in compiled if not module.do_not_compile]),
            "graphs": manager is not None,
            "budgets": list(getattr(manager, "token_budgets", ())),
        }


def remake_tied(model: torch.nn.Module) -> int:
    """Has every module that shares a parameter with another one do its work after loading again.

    A module that got no tensor of its own is left as it was by vLLM's reload, which is right for the parameter that
    it shares, but not for what it has made of it: on a CPU a tied head keeps its packed copy of the old embedding, and
    answers with it (seen with vLLM 0.32; the only sign is a line in the log).

    Returns:
        How many modules did.
    """
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

    owners: defaultdict[int, list[Any]] = defaultdict(list)
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners[id(parameter)].append(module)
    tied = {id(module): module for sharing in owners.values() if len(sharing) > 1 for module in sharing}
    remade = [
        module for module in tied.values() if isinstance(getattr(module, "quant_method", None), QuantizeMethodBase)
    ]
    for module in remade:
        module.quant_method.process_weights_after_loading(module)
    return len(remade)
