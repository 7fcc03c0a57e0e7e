"""One driver at a time: a small document with a heartbeat, which only its holder can renew.

It works wherever a file can be created only if it is absent and replaced only if it is unchanged, so on local disks,
shared file systems and object storage alike. Clocks of machines need not agree: a taker watches with its own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from proctor.rows import UserError
from proctor.storage.base import Busy, Folder, Version
from proctor.storage.holder import Holder

NAME = "lease.json"
TTL = 30.0
"""Seconds without a heartbeat after which a holder has lost its lease, and another may have it."""
_BEATS = 3
"""Heartbeats in that time."""
_SOON = 1.0
"""Most seconds between two looks at a holder that may be dead, and before the try after a heartbeat that failed."""


class Lease:
    """The right of this process to write in a folder, from `acquire` to `release`.

    Attributes:
        before: the dead holder from whom the lease was taken, if it was.

    Args:
        folder: what is held.
        on_lost: called once, from the lease's own thread, with the reason, when another has taken the lease or it
            could not be renewed for `ttl`. From then on this process must not write.
        ttl: see `TTL`; the time between two heartbeats is a third of it.
    """

    def __init__(self, folder: Folder, on_lost: Callable[[str], None], *, ttl: float = TTL) -> None:
        self._folder, self._hasty = folder, folder.hasty(ttl / _BEATS)
        self._ttl, self._on_lost, self._place = ttl, on_lost, folder.location
        self._soon = min(_SOON, ttl / 10 / _BEATS)
        self._me = Holder.me(ttl)
        self.before: Holder | None = None
        self._version = Version(None)
        self._renewed = 0.0
        self._claim = ExitStack()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="proctor-lease", daemon=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lease during the block.

        Raises:
            As `acquire`.
        """
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        """Takes the lease, if need be from a holder that is dead: at once when this machine can see that, else when it
        has given no sign of life for its ttl. Then renews it in the background.

        Raises:
            UserError: another driver holds it and is alive, or the storage cannot keep a lease.
            OSError: storage failed.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(self._folder.claimed())
            except Busy as error:
                raise _refusal(self._place, read_lease(self._folder)) from error
            watch = _Watch()
            while not self._take(watch):
                time.sleep(self._soon)
            self._check_conditions()
            self._claim = stack.pop_all()
        self._thread.start()

    def release(self) -> None:
        """Stops renewing and says so in the document, unless the lease was lost."""
        self._stop.set()
        self._thread.join(self._ttl)
        with self._claim:
            for _ in range(_BEATS):  # in vain: nobody renews it any more, and the next driver waits for the ttl
                with contextlib.suppress(OSError):
                    self._renew(self._hasty, released=True)
                    return

    def _take(self, watch: _Watch) -> bool:
        """One look; True if the lease is ours now.

        Raises:
            UserError: its holder is alive.
        """
        sent = time.monotonic()
        version = self._folder.create(NAME, self._document())
        if version is None:
            try:
                found = self._folder.read_versioned(NAME)
            except FileNotFoundError:
                return False
            holder = _parsed(found.data)
            if holder is not None and holder.nonce == self._me.nonce:
                version = found.version  # the answer to a put of ours was lost
            elif watch.may_take(self._place, holder, found.version, self._ttl):
                sent = time.monotonic()
                version = self._folder.replace(NAME, self._document(), found.version)
                self.before = None if holder is None or holder.released else holder
        if version is None:
            return False
        self._version, self._renewed = version, sent
        return True

    def _check_conditions(self) -> None:
        """Storage that takes no notice of conditions would let two drivers in."""
        before = self._version
        self._renew(self._folder)
        if self._folder.replace(NAME, self._document(), before) is not None:
            raise UserError(
                "this storage does not keep conditions of writes (If-Match), so two drivers could work here at once",
                where=self._place,
                fix="use a run_dir on a local disk or on storage with conditional writes",
            )

    def _keep(self) -> None:
        pause = self._ttl / _BEATS
        while not self._stop.wait(pause):
            try:
                if not self._renew(self._hasty):
                    self._on_lost(f"the lease of {self._place} is lost: {self._taker()}")
                    return
                pause = self._ttl / _BEATS
            except OSError as error:
                if time.monotonic() - self._renewed > self._ttl:
                    self._on_lost(f"the lease of {self._place} could not be renewed for {self._ttl:g} s: {error}")
                    return
                pause = self._soon

    def _taker(self) -> str:
        found = read_lease(self._hasty)
        return "its lease.json is gone" if found is None else f"another driver has taken it ({found})"

    def _renew(self, folder: Folder, *, released: bool = False) -> bool:
        """Writes a heartbeat; False if the lease is no longer ours."""
        sent = time.monotonic()
        self._me = msgspec.structs.replace(
            self._me, sequence=self._me.sequence + 1, time=time.time(), released=released
        )
        version = folder.replace(NAME, self._document(), self._version) or self._mine(folder)
        if version is None:
            return False
        self._version, self._renewed = version, sent
        return True

    def _mine(self, folder: Folder) -> Version | None:
        """The version that is there if it is of this holding: the answer to an earlier heartbeat may have been lost."""
        try:
            found = folder.read_versioned(NAME)
        except FileNotFoundError:
            return None
        holder = _parsed(found.data)
        if holder is None or holder.nonce != self._me.nonce:
            return None
        if holder.sequence == self._me.sequence:
            return found.version
        return folder.replace(NAME, self._document(), found.version)

    def _document(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self._me), indent=2) + b"\n"


class _Watch:
    """Looks at a holder until it is known whether it lives."""

    def __init__(self) -> None:
        self._seen: Version | None = None
        self._since = 0.0

    def may_take(self, place: str, holder: Holder | None, version: Version, ttl: float) -> bool:
        """Whether the lease may be taken now; `holder` is None when its document cannot be read.

        Raises:
            UserError: the holder is alive.
        """
        if holder is not None:
            if holder.released or (holder.here and not holder.alive):
                return True
            if holder.here:
                raise _refusal(place, holder)
            ttl = max(ttl, holder.ttl)
        if self._seen is None:
            self._seen, self._since = version, time.monotonic()
        elif self._seen != version:
            raise _refusal(place, holder)
        return time.monotonic() - self._since > ttl


def read_lease(folder: Folder) -> Holder | None:
    """Who holds or last held `folder`; None if that is not known."""
    try:
        return _parsed(folder.read(NAME))
    except OSError:
        return None


def is_live(folder: Folder) -> bool:
    """Whether a driver seems to hold `folder` now, from one look at it. A holder on another machine that has just died
    still counts for twice its ttl."""
    claimed = folder.claimed_by_other()
    if claimed:
        return True
    holder = read_lease(folder)
    if holder is not None and holder.here and claimed is not None:
        return False  # the kernel knows better
    return _is_kept(holder)


def seems_held(folder: Folder) -> bool:
    """As `is_live`, from the lease alone. Nothing is tried, so that no driver that starts just then can be kept out:
    for who looks again and again."""
    return _is_kept(read_lease(folder))


def _is_kept(holder: Holder | None) -> bool:
    if holder is None or holder.released:
        return False
    return holder.alive if holder.here else abs(time.time() - holder.time) < 2 * holder.ttl


def _refusal(place: str, holder: Holder | None) -> UserError:
    who = "by a process that did not say who it is" if holder is None else str(holder)
    return UserError(f"another driver is running here ({who})", where=place, fix="wait for it, or end it")


def _parsed(data: bytes) -> Holder | None:
    try:
        return msgspec.json.decode(data, type=Holder)
    except msgspec.MsgspecError:
        return None
