"""An audit on disk: what it found, every answer, every compared token. Readable without Proctor: JSON and Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from proctor.audit.compare import token_tables
from proctor.audit.compare.tokens import SCHEMA
from proctor.audit.conduct import Audit
from proctor.audit.lab import Lab
from proctor.audit.model import BASELINE, Observation
from proctor.rows import UserError

AUDIT = "audit.json"
ANSWERS = "answers.parquet"
TOKENS = "tokens.parquet"
REPLAYED = "replayed.parquet"
REPORT = "audit.html"
_ANSWERS = pa.schema(
    [
        pa.field("arm", pa.string(), nullable=False),
        pa.field("round", pa.int32(), nullable=False),
        pa.field("row_id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("token_ids", pa.list_(pa.int64())),
        pa.field("logprobs", pa.list_(pa.float64())),
        pa.field("finish_reason", pa.string()),
        pa.field("parsed", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("error_kind", pa.string()),
        pa.field("error_message", pa.string()),
        pa.field("prompt_tokens", pa.int64()),
        pa.field("seconds", pa.float64()),
    ]
)


def write_audit(folder: Path, audit: Audit, lab: Lab) -> None:
    """Writes an audit into `folder`, which is made; ``audit.json`` comes last, so that an audit is whole or not there.

    Raises:
        UserError: the directory cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / AUDIT).unlink(missing_ok=True)
        _write_parquet(folder / ANSWERS, _ANSWERS, _answers(lab))
        _write_parquet(folder / TOKENS, SCHEMA, _tokens(lab))
        (folder / REPLAYED).unlink(missing_ok=True)
        _write_parquet(folder / REPLAYED, None, _replayed(lab))
        written = msgspec.json.format(msgspec.json.encode(audit), indent=1)
        partial = folder / f"{AUDIT}.partial"
        partial.write_bytes(written)
        partial.replace(folder / AUDIT)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(folder)) from error


def read_audit(folder: Path) -> Audit:
    """Reads a stored audit; `folder` may also be a run directory that holds one.

    Raises:
        UserError: there is none, or another version of Proctor wrote it.
    """
    for place in (folder, folder / "audit"):
        if (place / AUDIT).is_file():
            try:
                content = (place / AUDIT).read_bytes()
            except OSError as error:
                raise UserError(f"cannot be read: {error.strerror or error}", where=str(place / AUDIT)) from error
            return audit_of(content, str(place / AUDIT))
    raise UserError(f"no audit here (no {AUDIT})", where=str(folder), fix="make one with `proctor audit SPEC`")


def audit_of(content: bytes, where: str) -> Audit:
    """The audit in the content of an ``audit.json``; `where` stands for the file in messages.

    Raises:
        UserError: it is damaged, or another version of Proctor wrote it.
    """
    try:
        return msgspec.json.decode(content, type=Audit)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(f"not an audit that this version reads: {error}", where=where) from error


def read_answers(folder: Path) -> Iterator[Observation]:
    """Every answer of a stored audit, without the most likely tokens.

    Raises:
        UserError: the file is missing, damaged, or not of an audit.
    """
    path = _file(folder, ANSWERS)
    try:
        for batch in pq.ParquetFile(path).iter_batches():
            yield from map(_observation, batch.to_pylist())
    except (OSError, pa.ArrowException, KeyError, msgspec.ValidationError) as error:
        raise _unread(path, error) from error


def read_margins(folder: Path) -> dict[tuple[int, int], float]:
    """Margins (nats) between the two most likely tokens of the baseline, by row and position; {} if not stored.

    Raises:
        UserError: the file is damaged, or not of an audit.
    """
    path = _file(folder, TOKENS)
    if not path.is_file():
        return {}
    try:
        table = pq.read_table(path, columns=["row_id", "position", "margin"], filters=[("against", "=", BASELINE)])
        columns = [table[name].to_pylist() for name in ("row_id", "position", "margin")]
    except (OSError, pa.ArrowException, KeyError) as error:
        raise _unread(path, error) from error
    return {(row, position): margin for row, position, margin in zip(*columns, strict=True) if margin is not None}


def _file(folder: Path, name: str) -> Path:
    return (folder if (folder / AUDIT).is_file() else folder / "audit") / name


def _unread(path: Path, error: Exception) -> UserError:
    why = str(error) if isinstance(error, OSError | pa.ArrowException) else f"not of an audit: {error}"
    return UserError(f"cannot be read: {why}", where=str(path))


def _answers(lab: Lab) -> Iterator[pa.Table]:
    for arm in lab.arms:
        if lab.has_sat(arm):
            yield pa.Table.from_pylist([_row(found) for found in lab.observations(arm)], schema=_ANSWERS)


def _tokens(lab: Lab) -> Iterator[pa.Table]:
    for name, arm in lab.arms.items():
        rounds = lab.shared_rounds(name, arm.against) if arm.against and arm.against != name else []
        if rounds:
            sides = lab.observations(name, rounds), lab.observations(arm.against, rounds)
            yield from token_tables(*sides, arm=name, against=arm.against)


def _replayed(lab: Lab) -> Iterator[pa.Table]:
    """Every position of the replays, each against the replay of its reference."""
    for name in lab.replayed:
        against = lab.arms[name].against
        ours, theirs = lab.replay(name), lab.replay(against)
        if ours is not None and theirs is not None and name != against:
            yield from token_tables(ours, theirs, arm=name, against=against)


def _write_parquet(path: Path, schema: pa.Schema | None, tables: Iterator[pa.Table]) -> None:
    writer: pq.ParquetWriter | None = None if schema is None else pq.ParquetWriter(path, schema, compression="zstd")
    try:
        for table in tables:
            writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _row(found: Observation) -> dict[str, object]:
    kind, message = found.failure or (None, None)
    return {
        "arm": found.arm,
        "round": found.round,
        "row_id": found.row_id,
        "text": found.text,
        "token_ids": list(found.token_ids),
        "logprobs": None if found.logprobs is None else list(found.logprobs),
        "finish_reason": found.finish_reason,
        "parsed": found.parsed,
        "score": found.score,
        "error_kind": kind,
        "error_message": message,
        "prompt_tokens": found.prompt_tokens,
        "seconds": found.seconds,
    }


def _observation(row: dict[str, object]) -> Observation:
    kind, message = row.pop("error_kind"), row.pop("error_message")
    row["failure"] = None if kind is None else (kind, message or "")
    return msgspec.convert(row, Observation)
