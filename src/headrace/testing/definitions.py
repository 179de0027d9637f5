"""A project's definitions for a test, without the systems that they name.

A stream or table that reads from another system becomes a plain one with the same columns, key,
watermark and clauses, to which the test writes rows; its METADATA columns become plain ones. Sinks
to other systems, connections, secrets, schemas and indexes are left out, and so is every statement
that defines nothing, such as INSERT.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.sql import (
    CreateConnection,
    CreateIndex,
    CreateSchema,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateStream,
    CreateTable,
    Name,
    Option,
)
from headrace.sql.definitions import DEFINING, Definitions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from headrace.sql.definitions import Named

_LEFT_OUT: Final = (CreateConnection, CreateIndex, CreateSchema, CreateSecret)
TESTED: Final = tuple(each for each in DEFINING if each not in _LEFT_OUT)
"""The statements before the tests of a file that define what all of its tests need."""
_KEPT_OPTIONS: Final = frozenset({
    "effective_from", "retention", "timestamp", "description", "friendly_name", "topic",
    "kafka_topic",
})  # fmt: skip
"""Options of streams and tables that do not name another system, or say what their rows mean."""


def definitions_of(paths: Iterable[Path], text: str = "", file: str | None = None) -> Definitions:
    """Return the definitions in files and directories, and in a text that replaces some.

    Raises:
        HeadraceError: as :meth:`headrace.sql.definitions.Definitions.of`.
    """
    return Definitions.of(paths, text, file, adapted)


def adapted(statement: Named) -> Named | None:
    """Return a definition without the systems that it names; None if nothing of it is left."""
    match statement:
        case CreateTable() if statement.captured and not statement.columns:
            return None
        case CreateSource() | CreateConnection() | CreateIndex() | CreateSchema() | CreateSecret():
            return None
        case CreateSink() if not isinstance(statement.into, Name):
            return None
        case CreateStream() | CreateTable():
            return without_systems(statement)
        case _:
            return statement


def without_systems(statement: CreateStream | CreateTable) -> CreateStream | CreateTable:
    """Return the statement for a plain stream or table, to which a test writes rows."""
    options = tuple(each for each in statement.options if each.key.lower() in _KEPT_OPTIONS)
    given = {each.key.lower() for each in statement.options}
    if "value_format" in given and "kafka_topic" not in given:  # a relation of ksqlDB
        options = (*options, Option("kafka_topic", statement.name.dotted, statement.name.span))
    columns = tuple(replace(each, metadata=None) for each in statement.columns)
    taken = replace(statement.taken, stops=False)
    if isinstance(statement, CreateTable):
        return replace(statement, columns=columns, options=options, taken=taken, captured=None)
    return replace(statement, columns=columns, options=options, taken=taken)
