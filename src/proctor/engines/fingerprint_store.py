"""Keeps fingerprints of started engines, one for each checkpoint, configuration, version and hardware."""

from __future__ import annotations

from proctor.engines.fingerprint import Fingerprint
from proctor.storage.base import Folder


class FingerprintStore:
    """Fingerprints in a folder, local or in object storage, by `proctor.engines.fingerprint.key`.

    The first one that is stored stays: several engines that start with one checkpoint at once agree on it.

    Args:
        folder: where they lie, a file each.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def get(self, key: str) -> Fingerprint | None:
        """The one that is stored; None if there is none, or what is there cannot be read.

        Raises:
            OSError: storage fails.
        """
        try:
            return Fingerprint.from_json(self._folder.read(_name(key)))
        except (FileNotFoundError, ValueError):
            return None

    def put(self, key: str, fingerprint: Fingerprint) -> Fingerprint:
        """Stores it unless there is one.

        Returns:
            The one that is stored now: another one than `fingerprint` means that two engines that were both started
            with this checkpoint do not answer alike, so a swap cannot be proven here.

        Raises:
            OSError: storage fails.
        """
        self._folder.prepare("")
        if self._folder.create(_name(key), fingerprint.to_json()) is not None:
            return fingerprint
        stored = self.get(key)
        if stored is None:  # damaged: worth nothing to anyone
            self._folder.write(_name(key), fingerprint.to_json())
            return fingerprint
        return stored


def _name(key: str) -> str:
    return f"{key}.json"
