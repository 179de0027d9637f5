"""Statements that correct events, and that check or repair stored contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sql.parts import Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.alter_columns import DropColumns, RenameColumn, RetypeColumn
    from headrace.sql.alter_stream import AlterStream
    from headrace.sql.parts import Fragment, Name
    from headrace.sql.refreshing import AlterView
    from headrace.sql.statements import (
        AddColumns,
        Assignment,
        CreateMaterializedView,
        CreateTableAs,
        Delete,
        Drop,
        DropFunction,
        Insert,
        Truncate,
        Update,
    )
    from headrace.sql.swapping import AlterViewQuery, RebuildView, SwapView


@dataclass(frozen=True, slots=True)
class SliceOf:
    """``[WHERE condition] [SINCE timestamp]``: some rows of a view; without both, all."""

    where: Fragment | None = None
    since: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Invalidate(Statement):
    """``INVALIDATE VIEW name [WHERE ...] [SINCE ...] BECAUSE 'reason'``."""

    name: Name
    slice: SliceOf
    reason: str
    span: Span


@dataclass(frozen=True, slots=True)
class Correct(Statement):
    """``CORRECT STREAM``: replace events, or void them if ``assignments`` is empty."""

    name: Name
    assignments: tuple[Assignment, ...]
    where: Fragment
    span: Span
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Repair(Statement):
    """``REPAIR``: rebuild damaged or stopped relations; one relation, or all."""

    span: Span
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Verify(Statement):
    """``VERIFY``: compare views, or all, with an independent computation of their queries."""

    span: Span
    names: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay(Statement):
    """``REPLAY VIEW name [WHERE ...] [SINCE ...]``: recompute a slice of a view, and replace it."""

    name: Name
    slice: SliceOf
    span: Span


@dataclass(frozen=True, slots=True)
class ExplainReplay(Statement):
    """``EXPLAIN REPLAY VIEW ...``: what a replay would read and replace."""

    replay: Replay
    span: Span


@dataclass(frozen=True, slots=True)
class ExplainChange(Statement):
    """``EXPLAIN CHANGE statement | FUNCTION name``: the effect of a change on views."""

    target: (
        Insert
        | Update
        | Delete
        | Truncate
        | Correct
        | Invalidate
        | AddColumns
        | DropColumns
        | RenameColumn
        | RetypeColumn
        | AlterStream
        | AlterView
        | AlterViewQuery
        | CreateMaterializedView
        | CreateTableAs
        | Drop
        | DropFunction
        | RebuildView
        | SwapView
        | Name
    )
    span: Span


@dataclass(frozen=True, slots=True)
class ExplainScript(Statement):
    """``EXPLAIN SCRIPT [OFFLINE] '...'``: what each statement of a script would do, or why not.

    ``offline``: without reaching any other system.
    """

    script: str
    span: Span
    offline: bool = False


@dataclass(frozen=True, slots=True)
class ExplainRow(Statement):
    """``EXPLAIN ROW name WHERE condition``: the sources of a row, or why it does not exist.

    ``deep``: through all views below, to tables and streams.
    """

    name: Name
    where: Fragment
    span: Span
    deep: bool = False
