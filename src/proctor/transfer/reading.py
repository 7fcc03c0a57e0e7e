"""Reads checkpoints from files into shared memory, several buckets at a time, with a checksum of every byte."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import xxhash

from proctor.storage.connect import StorageOptions
from proctor.transfer.checkpoint import Checkpoint, open_checkpoint
from proctor.transfer.identities import Identities
from proctor.transfer.identity import content_id
from proctor.transfer.manifest import Bucket
from proctor.transfer.published import BUCKET_BYTES, Draft, Published

Take = Callable[[Bucket, memoryview], None]
"""Takes the bytes of a bucket, which are overwritten afterwards. Called by several threads."""


def read_checkpoint(
    path: str,
    *,
    options: StorageOptions | None = None,
    readers: int | None = None,
    known: Identities | None = None,
) -> Published:
    """Reads a safetensors checkpoint into sealed shared memory.

    Peak memory is that of the tensors and 16 MiB for each reader. Bytes are read from where they lie to their places;
    a tensor is never an object of Python or torch.

    Args:
        path: a folder, or one ``.safetensors`` file; local or a URL.
        options: how object storage is reached.
        readers: threads that read; None is 4 for a disk and 8 for object storage.
        known: notes there what the checkpoint's content id is.

    Raises:
        UserError: no such checkpoint, pickled, damaged, contradicting its index; no room in memory.
        TransferError: ``CORRUPT``: a file was cut short, changed or replaced meanwhile; ``EXCEPTION``: storage failed.
    """
    with open_checkpoint(path, options) as checkpoint:
        published = publish_checkpoint(checkpoint, readers=readers)
        if known is not None:
            known.keep(checkpoint, published.label.content)
        return published


def publish_checkpoint(checkpoint: Checkpoint, *, readers: int | None = None) -> Published:
    """`read_checkpoint`, of one that is open.

    Raises:
        UserError: no room in memory.
        TransferError: see there.
    """
    draft = Draft(checkpoint.manifest, name=checkpoint.location, files=checkpoint.files)
    try:
        _read(checkpoint, lambda bucket, data: draft.put(bucket, [data]), readers)
        return draft.finish()
    except BaseException:
        draft.close()
        raise


def content_of(checkpoint: Checkpoint, *, readers: int | None = None) -> str:
    """The content id of a checkpoint (see `identity.content_id`), by reading all of it and keeping nothing.

    Raises:
        TransferError: see `read_checkpoint`.
    """
    sums = [0] * len(checkpoint.manifest.buckets(BUCKET_BYTES))

    def take(bucket: Bucket, data: memoryview) -> None:
        sums[bucket.sequence] = xxhash.xxh3_64_intdigest(data)

    _read(checkpoint, take, readers)
    return content_id(checkpoint.manifest, BUCKET_BYTES, sums, checkpoint.files)


def identify(path: str, known: Identities, *, options: StorageOptions | None = None) -> str:
    """The content id of a checkpoint: from `known` if no file of it has changed since, else by reading all of it.

    Raises:
        UserError: see `read_checkpoint`.
        TransferError: see there.
    """
    content = known.find(path, options)
    if content is None:
        with open_checkpoint(path, options) as checkpoint:
            content = content_of(checkpoint)
            known.keep(checkpoint, content)
    return content


def _read(checkpoint: Checkpoint, take: Take, readers: int | None) -> None:
    """Reads every bucket once, and looks in the end whether the files are still the same."""
    buckets = checkpoint.manifest.buckets(BUCKET_BYTES)
    stop = threading.Event()
    local = threading.local()

    def work(bucket: Bucket) -> None:
        if stop.is_set():
            return
        if not hasattr(local, "staging"):  # kept: fresh memory for every bucket costs more than what is read into it
            local.staging = memoryview(bytearray(BUCKET_BYTES))
        data = local.staging[: bucket.nbytes]
        _fill(checkpoint, bucket, data, stop)
        if not stop.is_set():
            take(bucket, data)

    count = min(readers or checkpoint.readers, max(1, len(buckets)))
    with ThreadPoolExecutor(count, thread_name_prefix="proctor-read") as pool:
        tasks = [pool.submit(work, bucket) for bucket in buckets]
        try:
            done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    checkpoint.check()


def _fill(checkpoint: Checkpoint, bucket: Bucket, data: memoryview, stop: threading.Event) -> None:
    at = 0
    for piece in checkpoint.pieces(bucket):
        for start, end in piece.ranges:
            if start > at:
                data[at:start] = bytes(start - at)
            at = end
        targets = [data[start:end] for start, end in piece.ranges]
        checkpoint.sources[piece.source].read_into(piece.start, targets, stop)
    data[at:] = bytes(len(data) - at)
