"""What events, lanes and GPUs are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from proctor.trace import Trace, short_name
from proctor.trace.export.tracks import NO_STREAM, process_name
from proctor.trace.model import Gpu, tid_of
from proctor.trace.timeline.events import Event, Kind, Reader
from proctor.trace.timeline.lanes import KINDS, Events, Lane
from proctor.view.formats import clip

_LONGEST = 400


class Named(NamedTuple):
    """An event of a timeline: `key` names it in an address, `short` fits where little room is."""

    key: str
    short: str
    event: Event


def named(trace: Trace, events: Events, places: Iterable[int]) -> dict[int, Named]:
    """The events at some places among all, by place, with their names read from the file."""
    reader, found = Reader(trace), dict[int, Named]()
    by_kind: dict[Kind, dict[int, int]] = {}
    for place in places:
        by_kind.setdefault(KINDS[events.kinds[place]], {})[int(events.ids[place])] = place
    for kind, ids in by_kind.items():
        for number, event in reader.some(kind, list(ids)).items():
            found[ids[number]] = Named(f"{kind}:{number}", short_of(event), event)
    return found


def short_of(event: Event) -> str:
    """A name in some words."""
    return short_kernel(event.name, 80) if event.kind is Kind.KERNEL else clip(event.name, 80)


def short_kernel(name: str, room: int) -> str:
    """A kernel's name in at most `room` characters, fit for a page."""
    return clip(short_name(name, room), room)


def lane_name(lane: Lane, threads: Mapping[int, str]) -> str:
    """``stream 7, kernels`` or ``CUDA calls, thread 1234 python``."""
    if lane.device is not None:
        stream = "no one stream" if lane.stream == NO_STREAM else f"stream {lane.stream}"
        return f"{stream}, {lane.group}"
    if lane.thread is None:
        return f"{lane.group}, no thread"
    known = threads.get(lane.thread, "")
    name = known if known.startswith("thread ") else f"thread {tid_of(lane.thread)} {known}".rstrip()
    return f"{lane.group}, {clip(name, _LONGEST)}"


def place_name(trace: Trace, lane: Lane) -> str:
    """The GPU with its process, or the process."""
    process = process_name(trace, lane.process)
    if lane.device is None:
        return f"Threads of {process}"
    return f"GPU {lane.device} {trace.gpu(lane.device, lane.process).name}".rstrip() + f", of {process}"


def thread_names(trace: Trace) -> dict[int, str]:
    """The names that threads were given, by ``globalTid``."""
    ids = dict(trace.rows("SELECT thread, name FROM threads WHERE name IS NOT NULL LIMIT 20000"))
    texts = trace.text(ids.values())
    return {thread: texts[name] for thread, name in ids.items()}


def gpu_names(gpus: Iterable[Gpu]) -> list[str]:
    """Each physical GPU once, as far as they can be told apart: ``2 x NVIDIA H100 80GB HBM3, 132 SMs``."""
    kinds: dict[str, set[object]] = {}
    for gpu in gpus:
        name = gpu.name or "not described by the trace"
        kinds.setdefault(f"{name}, {gpu.sm_count} SMs" if gpu.sm_count else name, set()).add(gpu.uuid or gpu.device)
    return [text if len(which) == 1 else f"{len(which)} x {text}" for text, which in kinds.items()]
