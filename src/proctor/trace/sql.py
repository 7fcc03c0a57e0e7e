"""Questions in SQL: read-only, over the model's views and the file's own tables, without the captured environment."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

from proctor.rows import UserError
from proctor.trace.trace import Trace, explained
from proctor.trace.views import VIEWS, quoted

HIDDEN = "[environment: not shown]"
ARGUMENT = "[argument: not shown]"
"""In place of an argument of the command that was profiled: tokens are handed over so, too."""
_SECRET = re.compile(r"META_DATA|SYSTEM_ENV", re.IGNORECASE)
"""Tables of names and values, some of which are the environment of the profiled process."""
_STATISTICS = re.compile(r"sqlite_stat\d", re.IGNORECASE)
"""Samples of what is in indexes."""
_EXPLAINS = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\b", re.IGNORECASE | re.DOTALL)
_TABLE_FUNCTIONS = ("pragma_table_info('StringIds')", "json_each('[]')", "json_tree('[]')")
_MOST_HIDDEN = 100_000
_ROWS_AT_ONCE = 1000
_OPENING = {"OpenRead", "OpenWrite", "ReopenIdx"}
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE}
_PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "compile_options", "page_count"}
_DENIED_FUNCTIONS = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}
_CODES = {
    sqlite3.SQLITE_ATTACH: "ATTACH",
    sqlite3.SQLITE_DETACH: "DETACH",
    sqlite3.SQLITE_PRAGMA: "PRAGMA",
    sqlite3.SQLITE_TRANSACTION: "a transaction",
    sqlite3.SQLITE_SAVEPOINT: "a savepoint",
    sqlite3.SQLITE_INSERT: "INSERT",
    sqlite3.SQLITE_UPDATE: "UPDATE",
    sqlite3.SQLITE_DELETE: "DELETE",
}
_OF_THE_QUESTION = {
    "integer overflow": "total() adds up in floating point",
    "string or blob too big": "no value may have more than 64 MiB",
}


class Answer:
    """The result of a question: column names, and rows as they are wanted.

    Attributes:
        columns: their names; one that comes again has a number behind it.
        cut: whether there were more rows than the limit; known once `rows` has ended.
    """

    def __init__(self, columns: list[str], rows: Iterator[tuple[Any, ...]], limit: int | None) -> None:
        self.columns = columns
        self.cut = False
        self._rows = rows
        self._limit = limit

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows, at most as many as the limit allows."""
        for number, row in enumerate(self._rows):
            if self._limit is not None and number >= self._limit:
                self.cut = True
                return
            yield row


@contextlib.contextmanager
def asked(trace: Trace, sql: str, *, limit: int | None = 1000, steps: int | None = None) -> Iterator[Answer]:
    """Asks a trace. Nothing but reading is allowed while the block runs.

    Args:
        trace: an open trace.
        sql: one SELECT (or WITH, VALUES, EXPLAIN), over the model's views and the tables of the file.
        limit: at most so many rows; None for all.
        steps: of SQLite's machine (some 100 million a second) after which to give up; None for never.

    Raises:
        UserError: the question cannot be asked, or its answer cannot be read.
        KeyboardInterrupt: Ctrl-C, also while SQLite works.
    """
    if not sql.strip():
        raise UserError("that is no question", fix="give one SELECT")
    secret = _shadow(trace)
    refused: list[str] = []
    connection = trace.connection
    connection.set_authorizer(_authorizer(refused))
    trace.guard.allow(steps)
    try:
        try:
            _check_pages(connection, sql, secret)
            cursor = connection.execute(sql)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise _told(trace, error, refused, sql) from error
        if cursor.description is None:
            raise UserError("that is no question", fix="give one SELECT")
        columns = _distinct([str(column[0]) for column in cursor.description])
        yield Answer(columns, _fetched(trace, cursor, refused, sql), limit)
    finally:
        connection.set_authorizer(None)
        trace.guard.allow_default()


def _fetched(trace: Trace, cursor: sqlite3.Cursor, refused: list[str], sql: str) -> Iterator[tuple[Any, ...]]:
    try:
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            yield from rows
    except sqlite3.Error as error:
        raise _told(trace, error, refused, sql) from error


def _shadow(trace: Trace) -> dict[int, str]:
    """Puts a copy before each table of names and values, without what is of the environment.

    Returns:
        The first pages of these tables and of their indexes, with the table's name: no question may open them.
    """
    for function in _TABLE_FUNCTIONS:  # SQLite sets them up at their first use, and asks for more than reading
        with contextlib.suppress(sqlite3.OperationalError):
            trace.run(f"SELECT 1 FROM {function}")
    entries = list(trace.rows("SELECT type, tbl_name, rootpage FROM main.sqlite_master LIMIT 10000"))
    secret = [(type_, str(table), page) for type_, table, page in entries if _SECRET.search(str(table))]
    for type_, name, _ in secret:
        if type_ == "table":
            _copy_without(trace, name)
    return {page: name for _, name, page in secret if page}


def _copy_without(trace: Trace, name: str) -> None:
    columns = [str(row[1]) for row in trace.rows(f"PRAGMA main.table_info({quoted(name)})")]
    if not {"name", "value"} <= {column.lower() for column in columns}:
        shown = ", ".join(f"{_literal(HIDDEN)} AS {quoted(column)}" for column in columns)
    else:
        hidden = (
            f"CASE WHEN instr(lower(ifnull(name, 'env')), 'env') THEN {_literal(HIDDEN)} "
            f"WHEN instr(lower(name), 'argument') THEN {_literal(ARGUMENT)} ELSE value END"
        )
        shown = ", ".join(
            f"{hidden} AS {quoted(column)}" if column.lower() == "value" else quoted(column) for column in columns
        )
    source = f"SELECT {shown} FROM main.{quoted(name)} LIMIT {_MOST_HIDDEN}"
    trace.run(f"CREATE TEMP TABLE IF NOT EXISTS {quoted(name)} AS {source}")


def _check_pages(connection: sqlite3.Connection, sql: str, secret: dict[int, str]) -> None:
    """Refuses a question whose program opens one of the pages in `secret`.

    The authorizer alone is not enough: SQLite does not ask it about columns that a join matches by name, and gives it
    names that the question chose (of a WITH) where it would name a view.

    Raises:
        UserError: it does.
    """
    if _EXPLAINS.match(sql):  # which shows a program and runs nothing
        return
    program = connection.execute(f"EXPLAIN {sql}")
    for _, opcode, _, page, database, *_ in program:
        if opcode in _OPENING and database == 0 and page in secret:
            raise UserError(f"not allowed: {_environment(secret[page])}", fix="questions can only read")


def _environment(table: str) -> str:
    return f"main.{table}, which holds the environment of the profiled process (leave out `main.`)"


def _authorizer(refused: list[str]) -> Any:
    """What SQLite asks before it compiles a statement: reading is fine, except past the copies of `_shadow`."""

    def may(action: int, first: str | None, second: str | None, database: str | None, _: str | None) -> int:
        allowed = action in _ALLOWED
        what = _CODES.get(action, "anything but a question")
        if action == sqlite3.SQLITE_READ:
            table = first or ""
            secret = _SECRET.search(table) and database == "main"
            allowed = not secret and not _STATISTICS.match(table)
            what = _environment(table)
        elif action == sqlite3.SQLITE_FUNCTION:
            allowed = (second or "").lower() not in _DENIED_FUNCTIONS
            what = f"{second}()"
        elif action == sqlite3.SQLITE_PRAGMA:
            allowed = (first or "").lower() in _PRAGMAS
            what = f"PRAGMA {first}"
        if not allowed:
            refused.append(what)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    return may


def _told(trace: Trace, error: Exception, refused: list[str], sql: str) -> BaseException:
    text = str(error)
    if refused:
        return UserError(f"not allowed: {refused[0]}", fix="questions can only read")
    if text == "interrupted" and isinstance(error, sqlite3.OperationalError):
        if trace.guard.exhausted:
            return UserError("the question takes too long", fix="narrow it, or raise --timeout")
        return KeyboardInterrupt()
    if "one statement at a time" in text:
        return UserError("more than one statement", fix="ask one question at a time")
    if text in _OF_THE_QUESTION:
        return UserError(f"SQLite says: {text}", fix=_OF_THE_QUESTION[text])
    if "bindings supplied" in text:
        return UserError("a question takes no parameters", fix="write values where ? or :name stands")
    if isinstance(error, sqlite3.DatabaseError):
        found = explained(error, trace.path)
        if isinstance(found, UserError):
            return found
    if "because it is a view" in text:
        return UserError("not allowed: writing", fix="questions can only read")
    return UserError(f"SQLite says: {text}", fix=_help(trace, text, sql))


def _help(trace: Trace, text: str, sql: str) -> str:
    """What there is, where something was not found."""
    if "no such column" in text:
        asked_of = [name for name in VIEWS if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
        found = [f"{name} has {', '.join(['id', *VIEWS[name].columns])}" for name in asked_of]
        if found:
            return "; ".join(found)
    if "no such" not in text:
        return "give one SELECT"
    tables = trace.rows("SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'ENUM%' LIMIT 100")
    names = ", ".join(str(name) for (name,) in tables)
    return f"views: {', '.join(VIEWS)}; tables of the file: {names}"


def _distinct(names: list[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate in found:
            number += 1
            candidate = f"{name}:{number}"
        found.append(candidate)
    return found


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
