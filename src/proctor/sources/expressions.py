"""Column expressions: what a spec may say in place of a column's name, ``=`` and SQL over the columns of a row.

An expression is DuckDB's SQL, as in ``=concat('Q: ', question)`` or ``=[x.bytes for x in images]``. It sees the columns
of its own row, and `row_id`; nothing else: it is a tree of scalar functions, operators, casts, cases and lambdas.
Sub-queries, table functions, aggregates, windows, and functions that give another value the next time, such as
``random()`` and ``now()``, are refused before the run. The database it runs in is empty, in memory, and has no way out:
external access, extensions and changes to its settings are switched off.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from proctor.rows import UserError
from proctor.sources import growth
from proctor.sources.base import BLOCK_BYTES
from proctor.sources.jsonrows import JSON_METADATA

if TYPE_CHECKING:
    import duckdb

_SETTINGS: dict[str, Any] = {
    "threads": 1,
    "memory_limit": "4GB",
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
_PARTS = frozenset(
    {"BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT"}
    | {"FUNCTION", "LAMBDA", "LAMBDA_REF", "OPERATOR", "TYPE"}
)
_CLOCKS = ("current_", "localtime")
"""How names begin that are functions without parentheses."""
_CHANGING = """
select distinct function_name from duckdb_functions()
where function_name <> 'error'
and (
    stability = 'VOLATILE'
    or (stability = 'CONSISTENT_WITHIN_QUERY' and len(parameters) = 0)
    or macro_definition ilike '%current_timestamp%'
)
"""
_SCALAR = "select distinct function_name from duckdb_functions() where function_type in ('scalar', 'macro')"
MOST_BYTES = 4 * BLOCK_BYTES
"""Most bytes of the values that are computed at once, and so of a single one."""
_ROW_ID = pa.field("row_id", pa.int64())


class Computed(NamedTuple):
    """The values of an expression for the rows of a block; `faults` says, by row, why one could not be had."""

    field: pa.Field
    cells: pa.ChunkedArray
    faults: dict[int, str]


def bind(schema: pa.Schema, text: str, where: str) -> pa.Field:
    """Field of the values that the expression `text` has over columns of this schema. Its name is `text`.

    Raises:
        UserError: the expression is malformed, refused, or does not fit the columns, which are named.
    """
    try:
        _check_parts(text, schema.names)
        types = pa.schema([_ROW_ID, *(field for field in schema if field.name != _ROW_ID.name)])
        field, cells = _run(_needed(types.empty_table(), text), text)
        if len(cells):
            raise _RefusedError("an aggregate: an expression sees one row at a time")
    except (_RefusedError, _database_error()) as error:
        there = ", ".join(schema.names)
        raise UserError(f"{text!r}: {_line(error)}", where=where, fix=f"the source has: {there}") from None
    return field


def compute(block: pa.Table, text: str) -> Computed:
    """Values of an expression that `bind` has passed. What fails for a row costs that row."""
    found = list(_by_halves(_needed(block, text), text, 0))
    faults = {start: what for start, what in found if isinstance(what, str)}
    field = next((what[0] for _, what in found if not isinstance(what, str)), pa.field(text, pa.null()))
    lost = pa.nulls(1, field.type)
    chunks = [chunk for _, what in found for chunk in ([lost] if isinstance(what, str) else what[1].chunks)]
    return Computed(field, pa.chunked_array(chunks, field.type), faults)


class _RefusedError(ValueError):
    """What is wrong with an expression by itself."""


def _database_error() -> type[Exception]:
    import duckdb

    return duckdb.Error


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    import duckdb

    database = duckdb.connect(":memory:", config=_SETTINGS)
    # Without its time zones, DuckDB knows UTC only and refuses the setting.
    with contextlib.suppress(duckdb.Error):
        database.execute("set global TimeZone = 'UTC'")
    database.execute("set lock_configuration = true")
    return database


def _query(text: str) -> str:
    # On a line of its own, so that a comment at its end does not take the rest along.
    return f"select (\n{text.removeprefix('=')}\n) as value from block"  # noqa: S608 (it is meant to be SQL; `_check_parts` says which)


@functools.lru_cache(maxsize=64)
def _tree(text: str) -> dict[str, Any]:
    """The parsed query, as DuckDB tells it.

    Raises:
        _RefusedError: it is not SQL, or not one expression.
    """
    found = _database().cursor().execute("select json_serialize_sql(?)", [_query(text)]).fetchone()
    assert found is not None
    try:
        tree: dict[str, Any] = json.loads(found[0])
    except RecursionError:
        raise _RefusedError("nested too deeply") from None
    if not text.removeprefix("=").strip():
        raise _RefusedError("there is nothing behind the =")
    if tree["error"]:
        raise _RefusedError(tree["error_message"])
    return tree


def _check_parts(text: str, names: Sequence[str]) -> None:
    """Refuses all but scalar expressions."""
    trees = [_tree(text), _tree("=null")]
    nodes = [[statement["node"] for statement in tree["statements"]] for tree in trees]
    if len(nodes[0]) != 1 or len(nodes[0][0].get("select_list", ())) != 1:
        raise _RefusedError("not one expression")
    found, plain = ({**tree[0], "select_list": None, "from_table": tree[0]["from_table"]["type"]} for tree in nodes)
    if found != plain:
        raise _RefusedError("not an expression over the columns of a row")
    for part in _parts(nodes[0][0]["select_list"]):
        fault = _fault(part, names)
        if fault is not None:
            raise _RefusedError(fault)


def _fault(part: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Why a part of an expression is refused."""
    if part["class"] not in _PARTS:
        return f"no {part['class'].lower()} here: an expression sees the columns of one row"
    if part["class"] == "COLUMN_REF":
        path = [str(name) for name in part["column_names"]]
        name = path[1] if path[0].lower() == "block" and "block" not in names and len(path) > 1 else path[0]
        same = [other for other in dict.fromkeys((*names, _ROW_ID.name)) if other.lower() == name.lower()]
        if len(same) > 1:
            return f"columns {same[0]!r} and {same[1]!r} differ in case only, which SQL does not see"
        clock = name.lower().startswith(_CLOCKS) and name not in names
        return f"{name} gives another value each time" if clock else None
    if part["class"] == "FUNCTION":
        scalar, changing = _functions()
        name = part["function_name"].lower()
        if name in changing:
            return f"{name}() gives another value each time"
        if name == "age" and len(part["arguments"]) == 1:
            return "age() of one time gives another value each day"
        if growth.grows(part) and any(growth.grows(p) for p in _parts(part["arguments"]) if p["class"] == "FUNCTION"):
            return f"{name}() of what is repeated already"
        return growth.fault_of(part) if name in scalar else f"there is no function {name}() of the values of a row"
    return None


@functools.cache
def _functions() -> tuple[frozenset[str], frozenset[str]]:
    """Names of the functions that take values of a row, and of those that do not always give the same."""
    cursor = _database().cursor()
    scalar, changing = (cursor.execute(query).fetchall() for query in (_SCALAR, _CHANGING))
    return frozenset(name.lower() for (name,) in scalar), frozenset(name.lower() for (name,) in changing)


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Every expression inside a parsed one."""
    left = [tree]
    while left:
        inner = left.pop()
        if isinstance(inner, dict):
            if "class" in inner:
                yield inner
            left.extend(inner.values())
        elif isinstance(inner, list):
            left.extend(inner)


def _needed(table: pa.Table, text: str) -> pa.Table:
    """The columns that the expression names: of the others, no type and no byte has to be understood."""
    names = {str(name) for part in _parts(_tree(text)) for name in part.get("column_names", ())}
    lower = {name.lower() for name in names - set(table.column_names)}
    wanted = [name for name in table.column_names if name in names or name.lower() in lower or name == _ROW_ID.name]
    return table.select(wanted)


def _run(table: pa.Table, text: str) -> tuple[pa.Field, pa.ChunkedArray]:
    with _database().cursor() as cursor:
        cursor.register("block", table)
        values = cursor.sql(_query(text))
        metadata = JSON_METADATA if str(values.types[0]) == "JSON" else None
        cells = values.to_arrow_table().column(0)
    return pa.field(text, cells.type, metadata=metadata), cells


def _by_halves(table: pa.Table, text: str, start: int) -> Iterator[tuple[int, tuple[pa.Field, pa.ChunkedArray] | str]]:
    """The values of all rows at once or, where that fails, of ever fewer, until what fails stands alone."""
    try:
        found = _run(table, text)
        if found[1].nbytes > MOST_BYTES:
            raise _RefusedError(f"a value of {found[1].nbytes:,} bytes; at most {MOST_BYTES:,} are kept")
        if len(found[1]) != table.num_rows:
            raise _RefusedError("more or fewer values than one")
        yield start, found
    except (_RefusedError, _database_error(), pa.ArrowException) as error:
        if table.num_rows <= 1:
            yield start, _line(error)
            return
        half = table.num_rows // 2
        yield from _by_halves(table.slice(0, half), text, start)
        yield from _by_halves(table.slice(half), text, start + half)


def _line(error: Exception) -> str:
    """What an error says, in one line, without the kind that DuckDB puts in front."""
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    kind, colon, rest = first.partition(": ")
    return (rest if colon and kind.endswith("Error") else first).replace(" in FROM clause!", "")[:300]
