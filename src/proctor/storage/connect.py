"""Connections to object storage. One place decides on retries, time limits and what may come from a spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, HTTPStore, LocalStore, S3Store

from proctor.rows import UserError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_WHOLE_REQUEST = timedelta(hours=6)
"""obstore's own limit of 30 s covers a request with its whole body, which ends a large download that goes well. What
tells a stalled connection is the limit on each single read."""
_TRACE = re.compile(r"Error performing \w+ \S+ in \S+?(?:, after (?P<retries>\d+) retries.*?)? - (?P<reason>.*)")
_XML = re.compile(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>")
_LONGEST_REASON = 300
_BUCKET_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "azure": "az", "abfs": "az", "abfss": "az"}
SCHEMES = (*_BUCKET_SCHEMES, "http", "https", "file")
"""Schemes of URLs that can be opened."""


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How object storage is reached. Never holds a secret: those come from where the provider's own tools look.

    That is the environment (``AWS_ACCESS_KEY_ID``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_KEY``
    ...), a web identity, or the machine's own role.

    Attributes:
        endpoint: address of a compatible server; None is the provider's own.
        region: region of the bucket; None is what the environment says.
        anonymous: send no credentials, for public buckets.
        attempts: how often a request is sent that ends in a 5xx, a cut connection or a timeout.
        connect_seconds: longest time that a connection may take.
        read_seconds: longest silence of the server within a request.
        retry_seconds: time after which a request is not tried again.
    """

    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False
    attempts: int = 10
    connect_seconds: float = 10.0
    read_seconds: float = 30.0
    retry_seconds: float = 120.0


DEFAULT_OPTIONS = StorageOptions()


class Connection(NamedTuple):
    """An opened store and the path inside it that a URL names (no slash at its ends; may be empty)."""

    store: ObjectStore
    prefix: str


def is_url(path: str) -> bool:
    """Whether `path` names something by URL (``s3://``, ``gs://``, ``az://``, ``https://``, ``file://``)."""
    return "://" in path


def refuse_credentials(url: str) -> None:
    """Refuses a URL with a user or password in it, and says neither.

    Raises:
        UserError: names the scheme, and the host where it is certain which part that is.
    """
    scheme, _, rest = url.partition("://")
    place = rest.partition("/")[0]
    user, at, host = place.rpartition("@")
    # A secret may hold a slash; what then stands behind the colon is no port.
    _, colon, port = ("", "", "") if at or "[" in place else place.partition(":")
    if colon and "@" in rest and not port.isdigit():
        raise UserError("credentials in a URL", where=f"{scheme}://", fix="leave them out")
    if at and (":" in user or not scheme.startswith(("abfs", "az"))):
        raise UserError("credentials in a URL", where=f"{scheme}://{host}", fix="leave them out")


def object_store(url: str, options: StorageOptions = DEFAULT_OPTIONS) -> Connection:
    """Opens the store that `url` lies in: the whole bucket, container or server. Nothing is sent yet.

    Raises:
        UserError: the URL has another scheme, no bucket, or the options do not fit together.
    """
    refuse_credentials(url)
    parts = urlsplit(url)
    scheme = _BUCKET_SCHEMES.get(parts.scheme, parts.scheme)
    if scheme not in _OPEN:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise UserError(f"no storage has the scheme {parts.scheme!r}", where=url, fix=f"one of {known}")
    if scheme != "file" and not parts.netloc:
        raise UserError("no bucket or host in this URL", where=url, fix=f"for example {parts.scheme}://name/folder")
    if scheme == "file" and parts.netloc:
        raise UserError("a file URL has three slashes before its path", where=url, fix="for example file:///data/runs")
    path = unquote(parts.path) if scheme in ("http", "https", "file") else url.partition("://")[2].partition("/")[2]
    try:
        return Connection(_OPEN[scheme](parts, options), path.strip("/"))
    except (BaseError, ValueError) as error:
        raise UserError(f"cannot open: {first_line(error)}", where=url) from error


def first_line(error: BaseException) -> str:
    """What went wrong, in one line: the status, the server's words and how many tries, without the client's traces."""
    line = " ".join(str(error).partition("Debug source:")[0].split()) or type(error).__name__
    found = _TRACE.search(line)
    if found is None:
        return line[:_LONGEST_REASON]
    reason = found["reason"].removeprefix("Server returned non-2xx status code: ")
    if xml := _XML.search(reason):
        reason = f"{reason.partition(':')[0]} ({xml[1]}: {xml[2]})"
    tries = int(found["retries"] or 0) + 1
    return reason[:_LONGEST_REASON] + (f", after {tries} tries" if tries > 1 else "")


def _s3(parts: SplitResult, options: StorageOptions) -> ObjectStore:
    config = _given(endpoint=options.endpoint, region=options.region, skip_signature=options.anonymous or None)
    config["disable_bulk_delete"] = True  # little is ever deleted, and not every compatible server knows it
    return S3Store(parts.netloc, **config, **_client(options))


def _gs(parts: SplitResult, options: StorageOptions) -> ObjectStore:
    config = _given(base_url=options.endpoint, skip_signature=options.anonymous or None)
    return GCSStore(parts.netloc, **config, **_client(options))


def _az(parts: SplitResult, options: StorageOptions) -> ObjectStore:
    container, _, host = parts.netloc.partition("@")  # abfss://container@account.dfs.core.windows.net/path
    account, anonymous = host.partition(".")[0] or None, options.anonymous or None
    config = _given(endpoint=options.endpoint, account_name=account, skip_signature=anonymous)
    return AzureStore(container, **config, **_client(options))


def _http(parts: SplitResult, options: StorageOptions) -> ObjectStore:
    plain = parts.scheme == "http"
    return HTTPStore.from_url(f"{parts.scheme}://{parts.netloc}", **_client(options, plain=plain))


def _file(_parts: SplitResult, _options: StorageOptions) -> ObjectStore:
    return LocalStore("/")


_OPEN: Mapping[str, Callable[[SplitResult, StorageOptions], ObjectStore]] = MappingProxyType(
    {"s3": _s3, "gs": _gs, "az": _az, "http": _http, "https": _http, "file": _file}
)


def _client(options: StorageOptions, *, plain: bool | None = None) -> dict[str, Any]:
    """Time limits and retries, the same for every provider."""
    if plain is None:  # without an endpoint here, it is the provider's, which is never plain, or the environment's
        plain = not (options.endpoint or "").startswith("https://")
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=options.connect_seconds),
        "read_timeout": timedelta(seconds=options.read_seconds),
        "timeout": _WHOLE_REQUEST,
        "allow_http": plain,
    }
    retry = {
        "max_retries": options.attempts - 1,
        "retry_timeout": timedelta(seconds=options.retry_seconds),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=15), "base": 2},
    }
    return {"client_options": client, "retry_config": retry}


def _given(**values: str | bool | None) -> dict[str, Any]:
    """What was set. What was not must not be passed at all, or the environment's own setting would not count."""
    return {name: value for name, value in values.items() if value is not None}
