"""What a checkpoint is, by its content: an id that follows the bytes, not names of folders or times."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from proctor.transfer.manifest import Manifest

CONTENT_CHARS = 32
"""Length of a content id: hexadecimal, 128 bits."""


def content_id(manifest: Manifest, bucket_bytes: int, sums: Iterable[int], files: Mapping[str, bytes] = {}) -> str:
    """The content id of a checkpoint: the first 128 bits of a SHA-256 over what it is made of.

    That is names, types, shapes and places of its tensors, the XXH3-64 of every bucket of their bytes, and name and
    content of every file beside them (configuration, tokenizer, templates). Places have to follow from the tensors
    alone (in the order of their names): then the id is the same however the checkpoint is cut into shards, and a
    tensor or a file that is renamed or changed makes another one. Ties are not in it: files do not tell them.

    It tells checkpoints apart that differ by accident or by training, not those that somebody made to collide:
    XXH3 is no cryptographic hash.

    Args:
        manifest: see above.
        bucket_bytes: length of a bucket.
        sums: XXH3-64 of every bucket, gaps being zero.
        files: content by name.
    """
    state = hashlib.sha256(Manifest(manifest.entries).to_bytes())
    state.update(bucket_bytes.to_bytes(8, "little"))
    for checksum in sums:
        state.update(checksum.to_bytes(8, "little"))
    for name, data in sorted(files.items()):
        state.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(data).digest())
    return state.hexdigest()[:CONTENT_CHARS]
