"""Files that cannot be had, and what that means for the rows in them."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from proctor.rows import ErrorKind, Failure

if TYPE_CHECKING:
    from proctor.storage.remote import RemoteError

_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})


class FileError(OSError):
    """A file that cannot be had, and the failure of the rows that need it. Never has an ``errno``."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        return (FileError, (self.kind, self.message))


def open_failure(error: OSError) -> Failure:
    """Why a file could not be read, as a failure of each of its rows.

    An error with a number is the system's: gone for good, or something that may pass. One without is a decoder's, which
    has met damage.
    """
    if isinstance(error, FileError):
        return Failure(error.kind, error.message)
    if error.errno is None:
        return Failure(ErrorKind.READ_CORRUPT, " ".join(str(error).split())[:300])
    fault = local_fault(error)
    return Failure(fault.kind, fault.message)


def local_fault(error: OSError) -> FileError:
    """What the system says of a local file."""
    kind = ErrorKind.READ_MISSING if error.errno in _NO_SUCH_FILE else ErrorKind.READ_FAILED
    return FileError(kind, os.strerror(error.errno) if error.errno else str(error))


def remote_fault(error: RemoteError) -> FileError:
    """What a store says of an object."""
    # Who is denied may be granted access later: that is the infrastructure's fault and not the row's.
    kind = ErrorKind.READ_MISSING if error.reason == "missing" else ErrorKind.READ_FAILED
    return FileError(kind, error.message)
