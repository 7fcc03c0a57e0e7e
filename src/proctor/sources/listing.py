"""From the path or URL in a spec to the data files that it stands for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from proctor.rows import UserError
from proctor.sources.faults import FileError
from proctor.sources.files import NOT_UTF8, DataFile, DataFolder, LocalFolder, RemoteFolder, shown

if TYPE_CHECKING:
    from proctor.storage.connect import StorageOptions


def list_files(
    path: str | Path, suffixes: tuple[str, ...], storage: StorageOptions | None = None
) -> tuple[DataFile, ...]:
    """The file at `path`, or the files of that directory whose names end in one of `suffixes`, by name.

    Hidden files (``.name``) and sub-directories are left out; a single file may have any name. A web server cannot be
    asked for names: there, `path` is a file.

    Raises:
        UserError: there is nothing at `path`, or no such file in it.
    """
    folder, name = folder_of(path, storage)
    if name:
        return (DataFile(folder, name),)
    try:
        found = [other for other in folder.names(below=False) if other.endswith(suffixes)]
    except FileError as error:
        raise UserError(error.message, where=str(path)) from None
    if isinstance(folder, LocalFolder):
        found = [other for other in found if (folder.root / other).is_file()]
    odd = next((other for other in found if shown(other) != other), None)
    if odd is not None:
        raise UserError(NOT_UTF8, where=shown(folder.place(odd)))
    if not found:
        raise UserError(f"the directory holds no {' or '.join('*' + s for s in suffixes)} files", where=str(path))
    return tuple(DataFile(folder, other) for other in found)


def folder_of(path: str | Path, storage: StorageOptions | None = None) -> tuple[DataFolder, str]:
    """What lies at `path`: a folder and ``""``, or the folder that a file lies in and the file's name.

    Raises:
        UserError: there is nothing, or the URL is none that can be read.
    """
    text = str(path)
    if "://" in text and not text.startswith("file:///"):
        return _below_url(text, storage)
    local = Path(unquote(urlsplit(text).path) if "://" in text else path).absolute()
    if local.is_file():
        return LocalFolder(local.parent), local.name
    if not local.is_dir():
        raise UserError("no such file or directory", where=text)
    return LocalFolder(local), ""


def _below_url(url: str, storage: StorageOptions | None) -> tuple[DataFolder, str]:
    from proctor.storage.connect import StorageOptions
    from proctor.storage.remote import Remote, RemoteError

    options = storage or StorageOptions()
    Remote(url, options).check()
    scheme, _, rest = url.partition("://")
    parent, slash, name = rest.rstrip("/").rpartition("/")
    web = scheme in ("http", "https")
    if slash and name and (web or not url.endswith("/")):
        folder = RemoteFolder(Remote(f"{scheme}://{parent}", options))
        name = unquote(name) if web else name
        try:
            folder.remote.stat(name)
            return folder, name
        except RemoteError as error:
            if web or error.reason != "missing":
                fix = "check the URL: a web server gives files, and lists no folders" if web else None
                raise UserError(error.message, fix=fix) from None
    folder = RemoteFolder(Remote(url.rstrip("/"), options))
    if web:
        raise UserError("a folder of a web server cannot be listed", where=url, fix="give the URL of a file")
    return folder, ""
