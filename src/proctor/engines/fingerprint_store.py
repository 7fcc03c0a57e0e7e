"""Keeps fingerprints of started engines, one for each checkpoint, configuration, version and hardware."""

from __future__ import annotations

import hashlib

import msgspec

from proctor.engines.fingerprint import Fingerprint
from proctor.storage.base import Folder


class _Kept(msgspec.Struct, frozen=True):
    """A file of the store. A bit that flips, or a file that got another one's name, would else count as an engine that
    answers unlike others."""

    sha256: str
    fingerprint: Fingerprint


class FingerprintStore:
    """Fingerprints in a folder, local or in object storage, by `proctor.engines.fingerprint.key`.

    The first one that is stored stays: several engines that start with one checkpoint at once agree on it.

    Args:
        folder: where they lie, a file each.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def get(self, key: str) -> Fingerprint | None:
        """The one that is stored; None if there is none, or what is there is damaged or that of another key.

        Raises:
            OSError: storage fails.
        """
        try:
            kept = msgspec.json.decode(self._folder.read(_name(key)), type=_Kept)
        except (FileNotFoundError, ValueError):
            return None
        return kept.fingerprint if kept.sha256 == _digest(key, kept.fingerprint) else None

    def put(self, key: str, fingerprint: Fingerprint) -> Fingerprint:
        """Stores it unless there is one.

        Returns:
            The one that is stored now: another one than `fingerprint` means that two engines that were both started
            with this checkpoint do not answer alike, so a swap cannot be proven here.

        Raises:
            OSError: storage fails.
        """
        kept = msgspec.json.encode(_Kept(_digest(key, fingerprint), fingerprint))
        self._folder.prepare("")
        if self._folder.create(_name(key), kept) is not None:
            return fingerprint
        stored = self.get(key)
        if stored is None:  # damaged: worth nothing to anyone
            self._folder.write(_name(key), kept)
            return fingerprint
        return stored


def _name(key: str) -> str:
    return f"{key}.json"


def _digest(key: str, fingerprint: Fingerprint) -> str:
    return hashlib.sha256(key.encode() + b"\n" + fingerprint.to_json()).hexdigest()
