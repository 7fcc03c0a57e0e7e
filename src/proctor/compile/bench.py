"""A whole bench: the workload of a spec, measured in several processes, one after another."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from proctor.compile.collected import Collected
from proctor.compile.model import Measured
from proctor.compile.orders import Explained, Options, Order, Piece, Workload
from proctor.compile.process import pieces
from proctor.compile.sequence import sittings
from proctor.compile.whole_engines import Contest, measure_whole
from proctor.compile.workload import workload
from proctor.engines.base import EngineConfig
from proctor.engines.compiling.presets import BLOCKS
from proctor.engines.compiling.settings import Compile, EncoderSwitches
from proctor.engines.config import engine_config, environment
from proctor.rows import Event, UserError
from proctor.spec import Checkpoint, RunSpec
from proctor.supervise import preflight
from proctor.supervise.asking import Asking, EngineOrder, supervised

__all__ = ["Advance", "Options", "Progress", "checkpoint_of", "explain", "measure"]
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""Where inductor, and the caches beside it, keep what they have compiled."""
MOST_OF_A_GPU, HALF_OF_A_GPU = 0.9, 0.45
"""Share of a GPU's memory that vLLM takes unless it is told otherwise, and one that two engines can have."""


class Advance(NamedTuple):
    """How far a bench is.

    Attributes:
        process: that is at work, from 0, of `processes`.
        doing: what it is at.
    """

    process: int
    processes: int
    doing: str


Progress = Callable[[Advance], None]


def measure(
    spec: RunSpec,
    options: Options | None = None,
    progress: Progress | None = None,
    *,
    checkpoint: str | None = None,
    collected: Collected | None = None,
) -> Measured:
    """Measures what compiling does for the engine of a spec. Writes nothing.

    Args:
        spec: the run that is planned.
        options: how much is measured.
        progress: is told of every step.
        checkpoint: which model; None: the first.
        collected: takes everything in as it is told: after an interruption it holds what was measured until then.

    Raises:
        UserError: the engine cannot be measured, or nothing could be.
    """
    options, told = options or Options(), collected if collected is not None else Collected()
    chosen, heard = checkpoint_of(spec, checkpoint), progress or (lambda _: None)
    if spec.engine.kind not in ("transformers", "vllm"):
        what = f"engine {spec.engine.kind!r} has no vision encoder that could be compiled"
        raise UserError(what, where="engine.kind", fix="transformers or vllm")
    work = workload(spec, options.sample)
    told.rows = work.rows if options.rows is None else options.rows
    told.shapes = tuple(unit.shape for unit in work.units)
    told.subject.update(_subject(spec, chosen, options))
    told.note(work.notes)
    if spec.engine.kind == "vllm":
        _measure_whole(spec, chosen, work, options, heard, told)
    else:
        _measure(spec, chosen, work, options, heard, told)
    return told.measured()


def explain(
    spec: RunSpec,
    targets: tuple[str, ...] = (),
    progress: Progress | None = None,
    *,
    checkpoint: str | None = None,
    seconds: float = 900.0,
) -> list[Explained]:
    """Where the graphs of each target break, and of the encoder as a whole; nothing is timed.

    Raises:
        UserError: the engine is not transformers, or the model cannot be loaded.
    """
    if spec.engine.kind != "transformers":
        what = f"only models of the transformers engine can be looked into, not those of {spec.engine.kind}"
        raise UserError(what, where="engine.kind")
    chosen, told = checkpoint_of(spec, checkpoint), Collected()
    work = workload(spec, sample=4)
    config, how = settings_of(spec, chosen, Options(targets=targets))
    order = Order(task="explain", config=replace(config, batch_size=1), units=work.units[:1], how=how)
    with _folder() as folder:
        _run(order, spec, folder, seconds, progress or (lambda _: None), told, 1)
    return told.explained


def checkpoint_of(spec: RunSpec, name: str | None) -> Checkpoint:
    """The checkpoint of this name; the first for None.

    Raises:
        UserError: there is none of it.
    """
    names = [one.name for one in spec.engine.checkpoints]
    if name is not None and name not in names:
        raise UserError(f"no checkpoint {name!r}", where="engine.checkpoints", fix=f"one of {', '.join(names)}")
    return spec.engine.checkpoints[0 if name is None else names.index(name)]


def settings_of(spec: RunSpec, checkpoint: Checkpoint, options: Options) -> tuple[EngineConfig, Compile]:
    """The engine without faults and with nothing compiled, and how its targets are to be compiled.

    Unless somebody names targets of their own all are measured: which of them to name is what a bench is for.
    """
    config = replace(engine_config(spec.engine, checkpoint), faults=())
    how: Compile = config.compile or Compile()
    named = () if set(how.targets) <= {BLOCKS} else how.targets
    how = replace(how, targets=options.targets or named, backend=options.backend or how.backend)
    return replace(config, compile=None, encoder=None), how


def _measure(
    spec: RunSpec, checkpoint: Checkpoint, work: Workload, options: Options, progress: Progress, told: Collected
) -> None:
    config, how = settings_of(spec, checkpoint, options)
    told.subject.update(backend=how.backend, dynamic=how.dynamic, fullgraph=how.fullgraph)
    with _folder() as folder:
        for number, processes, only in sittings(options, told):
            order = Order(
                task="bench",
                config=config,
                units=work.units,
                how=how,
                process=number,
                cache="warm" if number else "cold",
                rounds=options.rounds,
                warmups=options.warmups,
                answers=options.answers,
                agreement=options.agreement,
                only=only,
            )
            _run(order, spec, folder, options.seconds, progress, told, processes)
            if not told.anything:  # the next process could compile nothing either
                return


def _measure_whole(
    spec: RunSpec, checkpoint: Checkpoint, work: Workload, options: Options, progress: Progress, told: Collected
) -> None:
    config = replace(engine_config(spec.engine, checkpoint), faults=())
    switches = config.encoder or EncoderSwitches(encoder=True)
    python, env = environment(spec.engine)
    limits = spec.limits
    progress(Advance(0, options.processes, "asking the engine whether it can"))
    preflight(replace(config, encoder=switches), python, env)
    beside = float(str(config.options.get("gpu_memory_utilization", MOST_OF_A_GPU))) <= HALF_OF_A_GPU
    if not beside:
        told.note([f"engines ran one after another: there is room for two with gpu_memory_utilization {HALF_OF_A_GPU}"])
    with _folder() as folder:

        def start(config: EngineConfig, listen: Callable[[Event], None]) -> AbstractContextManager[Asking]:
            order = EngineOrder(
                config=config,
                env={**env, **_caches(folder)},
                python=python,
                stall_seconds=limits.stall_seconds,
                load_seconds=limits.load_seconds,
            )
            return supervised(order, name="compile", listen=listen)

        def say(number: int, doing: str) -> None:
            progress(Advance(number, options.processes, doing))

        contest = Contest(replace(config, encoder=None), switches, start, beside, _dtype(config))
        measure_whole(contest, work, options, say, told)


def _dtype(config: EngineConfig) -> str:
    """The number format of the weights; that of the model's own configuration for ``auto``."""
    if config.dtype != "auto":
        return config.dtype
    try:
        described = json.loads((Path(config.model) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""  # a name of a model, and not its directory: then no changed answer is a near-tie
    return str(described.get("dtype") or described.get("torch_dtype") or "")


def _run(
    order: Order, spec: RunSpec, folder: Path, seconds: float, progress: Progress, told: Collected, processes: int
) -> None:
    """Runs one process. If it fails before anything was measured at all, that is the user's to know."""
    python, env = environment(spec.engine)
    for piece in pieces(order, folder, seconds=seconds, python=python, env={**env, **_caches(folder)}):
        told.add(piece)
        if piece.trouble:
            _fail(piece, order, told)
        if piece.doing:
            progress(Advance(order.process, processes, piece.doing))


def _fail(piece: Piece, order: Order, told: Collected) -> None:
    if piece.mistake:
        raise UserError(piece.trouble, where=piece.where, fix=piece.fix)
    trouble = f"process {order.process} did not end its work: {piece.trouble}"
    if not told.anything:
        raise UserError(trouble, where="compile")
    told.note([trouble])


def _caches(folder: Path) -> dict[str, str]:
    """Caches of the bench's own, empty at first, whatever the user has kept of earlier compilations."""
    names = {CACHE_VARIABLE: "inductor", "TRITON_CACHE_DIR": "triton", "VLLM_CACHE_ROOT": "vllm"}
    return {variable: str(folder / name) for variable, name in names.items()}


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="proctor-compile-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _subject(spec: RunSpec, checkpoint: Checkpoint, options: Options) -> dict[str, Any]:
    return {
        "model": checkpoint.name,
        "path": checkpoint.path,
        "engine": spec.engine.kind,
        "batch_size": spec.engine.batch_size,
        "processes": options.processes,
        "rounds": options.rounds,
        "warm-up rounds": options.warmups,
        "processors": os.cpu_count(),
    }
