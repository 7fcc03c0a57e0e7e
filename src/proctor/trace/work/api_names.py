"""What a call of the CUDA or HIP API does to the host: whether it waits, copies, launches or allocates."""

from __future__ import annotations

import re
from enum import StrEnum


class Api(StrEnum):
    """Kinds of calls, by what they mean for the CPU's thread."""

    DEVICE_SYNC = "device-wide synchronisation"
    STREAM_SYNC = "stream synchronisation"
    EVENT_SYNC = "event synchronisation"
    BLOCKING_COPY = "blocking copy"
    COPY = "copy"
    LAUNCH = "launch"
    GRAPH_LAUNCH = "graph launch"
    MEMORY = "allocation"
    OTHER = "other"


WAITS = frozenset({Api.DEVICE_SYNC, Api.STREAM_SYNC, Api.EVENT_SYNC, Api.BLOCKING_COPY})
"""Calls that return only when the GPU has done something."""

_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
_HEAD = r"(?:cu(?:da)?|hip)"
_RULES = tuple(
    (re.compile(_HEAD + pattern), kind)
    for pattern, kind in (
        (r"(?:Device|Ctx|Thread)Synchronize", Api.DEVICE_SYNC),
        (r"StreamSynchronize", Api.STREAM_SYNC),
        (r"EventSynchronize", Api.EVENT_SYNC),
        (r"GraphLaunch", Api.GRAPH_LAUNCH),
        (r"(?:Ext)?(?:Module)?Launch(?!HostFunc)\w*", Api.LAUNCH),
        # Without Async these wait for the copy; peer-to-peer and device-to-device copies do not (CUDA's API reference,
        # "API synchronization behavior").
        (r"Memcpy(?!DtoD|Peer|3DPeer)\w*(?<!Async)", Api.BLOCKING_COPY),
        (r"Memcpy\w*", Api.COPY),
        (r"(?:Malloc|Free|Mem(?:Alloc|Free|HostAlloc|Create|Map|Unmap))\w*", Api.MEMORY),
        (r"Host(?:Alloc|Malloc|Free|Register|Unregister)\w*", Api.MEMORY),
    )
)


def kind_of_call(name: str) -> Api:
    """The kind of an API call, with or without a version's suffix (``_v3020``).

    >>> kind_of_call("cudaDeviceSynchronize_v3020")
    <Api.DEVICE_SYNC: 'device-wide synchronisation'>
    >>> kind_of_call("cuMemcpyHtoDAsync_v2")
    <Api.COPY: 'copy'>
    """
    plain = plain_name(name)
    return next((kind for pattern, kind in _RULES if pattern.fullmatch(plain)), Api.OTHER)


def plain_name(name: str) -> str:
    """The name without its version: ``cudaMemcpy_v3020`` is ``cudaMemcpy``."""
    return _SUFFIX.sub("", name)
