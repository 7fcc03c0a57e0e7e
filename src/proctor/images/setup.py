"""From the spec of a run to what is done to its images."""

from __future__ import annotations

from proctor.images.budget import PixelBudget, QwenVLBudget, qwen_vl_budget
from proctor.images.rules import ImageRules
from proctor.rows import UserError
from proctor.spec import Checkpoint, RunSpec
from proctor.spec.engine import LocalEngineBase

_FIX = "write a number of pixels instead"


def image_rules(spec: RunSpec) -> ImageRules:
    """What is done to images; with ``resize: model`` the budget is read from the checkpoints.

    Raises:
        UserError: the budget of a checkpoint is not known, or they have different ones: rows are prepared once for all.
    """
    images = spec.images
    budget: PixelBudget | QwenVLBudget | None = None
    if images.resize == "model":
        budget = _budget_of_all(spec)
    elif images.resize is not None:
        budget = PixelBudget(images.resize)
    return ImageRules(images.max_pixels, budget, images.scale_on_decode and budget is not None)


def _budget_of_all(spec: RunSpec) -> QwenVLBudget:
    checkpoints = spec.engine.checkpoints
    budgets = {checkpoint.name: _budget(spec, checkpoint) for checkpoint in checkpoints}
    first = checkpoints[0].name
    for name, budget in budgets.items():
        if budget != budgets[first]:
            what = f"model: the checkpoints {first} and {name} have different pixel budgets"
            raise UserError(what, where="images.resize", fix=_FIX)
    return budgets[first]


def _budget(spec: RunSpec, checkpoint: Checkpoint) -> QwenVLBudget:
    engine = spec.engine
    arguments = engine.options.get("mm_processor_kwargs") if isinstance(engine, LocalEngineBase) else None
    budget = qwen_vl_budget(checkpoint.path, arguments if isinstance(arguments, dict) else None)
    if budget is None:
        what = f"model: the pixel budget of {checkpoint.name} is not known, it is none of the Qwen-VL family"
        raise UserError(what, where="images.resize", fix=_FIX)
    return budget
