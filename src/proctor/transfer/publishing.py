"""From a state dict in this process to weights that every process of the node can attach to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from proctor.rows import UserError
from proctor.transfer.manifest import ALIGN, Bucket, Manifest
from proctor.transfer.published import Draft, Published
from proctor.transfer.tensors import as_bytes, plan

_WRITERS = 2
_ZEROS = memoryview(bytes(ALIGN))


def draft_for(
    tensors: Mapping[str, torch.Tensor], *, name: str = "", files: Mapping[str, bytes] = {}, prefault: bool = False
) -> Draft:
    """Reserves the memory for tensors of these names, types and shapes; see `Draft`.

    Raises:
        UserError: a tensor that is not plain memory, or no room.
    """
    return Draft(plan(tensors, by_name=True).manifest, name=name, files=files, prefault=prefault)


def publish(
    tensors: Mapping[str, torch.Tensor],
    *,
    name: str = "",
    files: Mapping[str, bytes] = {},
    draft: Draft | None = None,
) -> Published:
    """Copies tensors into shared memory and makes them readable: one pass, straight from where they are.

    Nobody may write to them meanwhile; on CUDA, work on the current stream is waited for.

    Args:
        tensors: any dtype of `tensors.DTYPES`, any strides, 0-dim and empty ones; ties are kept.
        name: what people call the checkpoint.
        files: see `Draft`.
        draft: memory that was reserved ahead by `draft_for`, which then says `name` and `files`; used up.

    Raises:
        UserError: a tensor that is not plain memory, no room, or the draft is for other tensors.
    """
    manifest, sources = plan(tensors, by_name=True)
    target = draft or Draft(manifest, name=name, files=files)
    try:
        if target.manifest != manifest:
            raise UserError("the draft was made for other names, types, shapes or ties", where=target.name or "publish")
        _put_all(target, _Gather(manifest, sources))
        return target.finish()
    except BaseException:
        target.close()
        raise


def _put_all(target: Draft, gather: _Gather) -> None:
    """Two threads copy and sum, while this one looks for what comes next; few buckets wait, as some may be copies."""
    with ThreadPoolExecutor(_WRITERS, thread_name_prefix="proctor-publish") as pool:
        under_way: deque[Future[None]] = deque()
        for bucket in target.buckets:
            if len(under_way) > _WRITERS:
                under_way.popleft().result()
            under_way.append(pool.submit(target.put, bucket, list(gather.parts(bucket))))
        for task in under_way:
            task.result()


class _Gather:
    """The bytes of buckets, taken in order, where the tensors are."""

    def __init__(self, manifest: Manifest, sources: tuple[torch.Tensor, ...]) -> None:
        self._entries, self._sources = manifest.entries, sources
        self._index, self._bytes = -1, memoryview(b"")

    def parts(self, bucket: Bucket) -> Iterator[memoryview]:
        at = bucket.start
        for index in range(bucket.first, bucket.first + bucket.count):
            entry = self._entries[index]
            if not entry.nbytes:
                continue
            start, stop = max(bucket.start, entry.offset), min(bucket.stop, entry.end)
            if start > at:
                yield _ZEROS[: start - at]
            yield self._at(index)[start - entry.offset : stop - entry.offset]
            at = stop
        if at < bucket.stop:
            yield _ZEROS[: bucket.stop - at]

    def _at(self, index: int) -> memoryview:
        """The bytes of a tensor. The last one is kept: a large one is in several buckets, and may have been copied."""
        if index != self._index:
            self._bytes = memoryview(as_bytes(self._sources[index]).cpu().numpy())
            self._index = index
        return self._bytes
