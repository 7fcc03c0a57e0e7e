"""Which content a checkpoint had when it was last read, as long as none of its files has changed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import final

import msgspec

from proctor.rows import UserError
from proctor.storage.connect import StorageOptions, is_url
from proctor.storage.local import write_whole
from proctor.transfer.checkpoint import Checkpoint, stamps_of
from proctor.transfer.sources import settled


class _Note(msgspec.Struct, frozen=True):
    path: str
    content: str
    stamps: dict[str, str]


@final
class Identities:
    """Notes in a local folder, one a checkpoint.

    A content id holds as long as every file has the device, inode, length and times of change that it had, or the tag
    in object storage, and no file came or went. A file that changed less than three seconds before it was read is not
    noted: a change within one tick of the clock would not be seen.

    Args:
        folder: made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, path: str, options: StorageOptions | None = None) -> str | None:
        """The content id, without reading a tensor; None if it is not known or something has changed.

        Raises:
            UserError: there is no checkpoint any more, or its index is damaged.
            TransferError: storage fails.
        """
        try:
            note = msgspec.json.decode(self._file(path).read_bytes(), type=_Note)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):  # a damaged note costs one more reading
            return None
        same = note.path == _absolute(path) and note.stamps == stamps_of(path, options)
        return note.content if same else None

    def keep(self, checkpoint: Checkpoint, content: str) -> None:
        """Notes the content id of a checkpoint that has just been read.

        Raises:
            UserError: the folder cannot be written to.
        """
        if not all(settled(stamp, checkpoint.opened_at) for stamp in checkpoint.stamps.values()):
            return
        note = _Note(_absolute(checkpoint.location), content, dict(checkpoint.stamps))
        try:
            write_whole(self._file(checkpoint.location), lambda path: _write(path, note))
        except OSError as error:
            told = f"cannot note a checkpoint's content: {error.strerror or error}"
            raise UserError(told, where=str(self._folder)) from None

    def _file(self, path: str) -> Path:
        return self._folder / f"{hashlib.sha256(_absolute(path).encode()).hexdigest()[:32]}.json"


def _write(path: Path, note: _Note) -> None:
    path.write_bytes(msgspec.json.encode(note))


def _absolute(path: str) -> str:
    whole = path.rstrip("/") if is_url(path) else str(Path(path).absolute())
    return whole.encode(errors="replace").decode()  # names of files may be no text
