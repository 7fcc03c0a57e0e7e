"""Whether checkpoints can follow each other in one engine: told before a run, by configurations and headers."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.engines.base import EngineConfig, SwapRefused
from proctor.engines.capabilities import capabilities
from proctor.engines.surroundings import look
from proctor.engines.swap_check import check_outlines, outline_of
from proctor.rows import UserError


def check_sequence(
    configs: Mapping[str, EngineConfig], env: Mapping[str, str] | None = None, python: str | None = None
) -> None:
    """Looks at every checkpoint as one that would follow the first.

    Args:
        configs: configuration of the engine by name of the checkpoint.
        env: environment variables of its process.
        python: its interpreter; None is this one.

    Raises:
        UserError: this engine takes over no other checkpoint, or one of them differs in more than its weights.
    """
    fix = "write engine.mode: restart, or leave that checkpoint to a run of its own"
    first, *others = configs
    declared = capabilities(configs[first], env, look(configs[first].kind, python))
    if not declared.swap:
        raise UserError(f"this engine takes over no other checkpoint: {declared.why_no_swap}", where="engine.mode",
                        fix="write engine.mode: restart")  # fmt: skip
    if configs[first].kind == "scripted":
        return
    for name in [first, *others]:
        try:
            outline = outline_of(configs[name].model)
            check_outlines(outline_of(configs[first].model), outline, configs[name].dtype)
        except SwapRefused as refusal:
            what = f"{name} cannot follow {first} in the same engine: {refusal}"
            raise UserError(what, where="engine.checkpoints", fix=fix) from refusal
