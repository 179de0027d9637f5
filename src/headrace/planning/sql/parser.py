"""Parses scripts into statements: the first words choose the parser of each statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, meant
from headrace.planning.sql.access import take_grant, take_revoke
from headrace.planning.sql.alter import AlterStream, DropColumns, RenameColumn, RetypeColumn
from headrace.planning.sql.ask import (
    take_acknowledge,
    take_backup,
    take_describe,
    take_drop,
    take_flush,
    take_pause,
    take_repair,
    take_reset,
    take_resume,
    take_set,
    take_show,
    take_subscribe,
    take_terminate,
    take_verify,
)
from headrace.planning.sql.change import (
    take_copy,
    take_correct,
    take_delete,
    take_insert,
    take_truncate,
    take_update,
)
from headrace.planning.sql.create import take_alter, take_create
from headrace.planning.sql.cursor import Cursor
from headrace.planning.sql.fragments import QUERY_WORDS, at_query, take_query
from headrace.planning.sql.lexer import WORDS, StatementText, Token, TokenKind, split
from headrace.planning.sql.refreshing import (
    AlterView,
    AlterViewQuery,
    RebuildView,
    SwapView,
    take_rebuild,
    take_refresh,
    take_swap,
    take_validate,
)
from headrace.planning.sql.refusals import FIRST_WORDS, refuse_statement
from headrace.planning.sql.sinks import take_print, take_reconcile, take_whole_query
from headrace.planning.sql.statements import (
    AddColumns,
    CreateMaterializedView,
    CreateTableAs,
    Delete,
    Drop,
    DropFunction,
    Explain,
    ExplainKind,
    Insert,
    Truncate,
    Update,
)
from headrace.planning.sql.upkeep import (
    Correct,
    ExplainChange,
    ExplainScript,
    Invalidate,
    at_explain_replay,
    at_explain_row,
    take_explain_replay,
    take_explain_row,
    take_invalidate,
    take_replay,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.planning.sql.parts import Statement
    from headrace.planning.sql.statements import Explainable
    from headrace.planning.sql.upkeep import ExplainReplay, ExplainRow


def parse(text: str, file: str | None = None) -> list[Statement]:
    """Return the statements of a script, in order; comments and empty statements are left out.

    Args:
        text: one statement, or several separated by semicolons.
        file: the name of the file with the text, for errors.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, with its place, at the first statement that
            cannot be parsed. Statements are parsed before any of them runs.
    """
    return [parse_statement(source) for source in split(text, file)]


def parse_statement(source: StatementText) -> Statement:
    """Parse one statement that :func:`headrace.planning.sql.split` returned.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, with its place in the whole script.
    """
    cursor = Cursor(source)
    refuse_statement(cursor)
    return _take_statement(cursor)


def _take_statement(cursor: Cursor) -> Statement:
    if at_query(cursor):
        return take_whole_query(cursor)
    word = cursor.token.word
    take = _STATEMENTS.get(_SYNONYMS.get(word, word))
    if take is None:
        raise _unknown(cursor)
    return take(cursor)


def _take_explain(
    cursor: Cursor,
) -> Explain | ExplainReplay | ExplainRow | ExplainChange | ExplainScript:
    if cursor.at("EXPLAIN", "SCRIPT") and cursor.peek(2).kind is not TokenKind.END:
        return _explained_script(cursor)
    if at_explain_replay(cursor):
        return take_explain_replay(cursor)
    if at_explain_row(cursor):
        return take_explain_row(cursor)
    return _take_explain_query(cursor)


def _take_explain_query(cursor: Cursor) -> Explain | ExplainChange:
    """Take ``EXPLAIN [what]`` of a query, ``CREATE MATERIALIZED VIEW ...`` or ``[VIEW] name``.

    ``EXPLAIN [OPTIMIZED | PHYSICAL] PLAN FOR`` of Flink and Materialize, and Spark's ``EXTENDED``
    and ``FORMATTED``, are the same as ``EXPLAIN``.
    """
    first = cursor.token
    cursor.expect("EXPLAIN")
    if cursor.peek(1).kind is not TokenKind.END:
        if cursor.peek(1).word == "PLAN":
            cursor.accept("OPTIMIZED") or cursor.accept("PHYSICAL")
        cursor.accept("PLAN", "FOR") or cursor.accept("EXTENDED") or cursor.accept("FORMATTED")
    if cursor.at("CHANGE") and not _is_last_name(cursor):
        return _explained_change(cursor, first)
    shown = ExplainKind.EVERYTHING
    for kind in ExplainKind:
        if kind and cursor.accept(kind.value.upper()):
            shown = kind
            break
    target: Explainable
    if cursor.accept("VIEW") or cursor.accept("MATERIALIZED", "VIEW"):
        target = cursor.name("a view's name")
        cursor.expect_end()
    elif at_query(cursor):
        target = take_query(cursor)
    elif cursor.at("CREATE"):
        created = _explained_create(cursor)
        target = created
    elif cursor.token.kind in {TokenKind.WORD, TokenKind.BACKQUOTED} and _is_last_name(cursor):
        target = cursor.name("a view's name")
        cursor.expect_end()
    else:
        raise cursor.expected("a query", "VIEW", "CREATE MATERIALIZED VIEW")
    return Explain(target, cursor.span(first), shown)


def _explained_change(cursor: Cursor, first: Token) -> ExplainChange:
    """Take ``CHANGE statement | FUNCTION name``."""
    cursor.expect("CHANGE")
    if cursor.accept("FUNCTION"):
        name = cursor.name("a function's name")
        cursor.expect_end()
        return ExplainChange(name, cursor.span(first))
    if not cursor.at_any(*_CHANGES):
        raise cursor.expected(*_CHANGES, "FUNCTION")
    refuse_statement(cursor)
    changed = _take_statement(cursor)
    if isinstance(changed, _EXPLAINED):
        return ExplainChange(changed, cursor.span(first))
    raise HeadraceError(
        Code.UNSUPPORTED,
        "what this statement changes is not explained",
        hint="It explains statements that change rows, and ALTER, DROP and CREATE OR REPLACE of"
        " views and their inputs, REBUILD, SWAP and ROLLBACK.",
        span=cursor.span(first),
    )


def _explained_script(cursor: Cursor) -> ExplainScript:
    """Take ``EXPLAIN SCRIPT [OFFLINE] 'statements'``."""
    first = cursor.token
    cursor.expect("EXPLAIN", "SCRIPT")
    offline = cursor.accept("OFFLINE")
    script = cursor.string("statements between quotes")
    cursor.expect_end()
    return ExplainScript(script, cursor.span(first), offline)


def _is_last_name(cursor: Cursor) -> bool:
    following = cursor.peek(1)
    return following.kind is TokenKind.END or following.text == "."


def _explained_create(cursor: Cursor) -> CreateMaterializedView | CreateTableAs:
    start = cursor.token
    refuse_statement(cursor)
    created = take_create(cursor)
    if isinstance(created, CreateMaterializedView | CreateTableAs):
        return created
    raise HeadraceError(
        Code.UNSUPPORTED,
        "EXPLAIN of this statement is not supported",
        hint="Use EXPLAIN with a query, VIEW name, or CREATE MATERIALIZED VIEW.",
        span=cursor.span(start, start),
    )


def _unknown(cursor: Cursor) -> HeadraceError:
    word = cursor.token.word
    hint = "Statements begin with SELECT, CREATE, INSERT, SHOW, EXPLAIN and the like."
    for known in (FIRST_WORDS, STATEMENTS) if word else ():
        hint = meant(word, known, hint, shown="{}")
    return cursor.expected("a statement", hint=hint)


_CHANGES = (
    "INSERT", "UPDATE", "DELETE", "TRUNCATE", "CORRECT", "INVALIDATE", "ALTER", "CREATE", "DROP",
    "REBUILD", "SWAP", "ROLLBACK",
)  # fmt: skip
"""The first words of statements that change, correct or recompute rows."""
_EXPLAINED = (
    Insert, Update, Delete, Truncate, Correct, Invalidate, AddColumns, DropColumns, RenameColumn,
    RetypeColumn, AlterStream, AlterView, AlterViewQuery,
    CreateMaterializedView, CreateTableAs, Drop, DropFunction, RebuildView, SwapView,
)  # fmt: skip

_STATEMENTS: dict[str, Callable[[Cursor], Statement]] = {
    "ACKNOWLEDGE": take_acknowledge,
    "ALTER": take_alter,
    "BACKUP": take_backup,
    "COPY": take_copy,
    "CORRECT": take_correct,
    "CREATE": take_create,
    "DELETE": take_delete,
    "DESCRIBE": take_describe,
    "DROP": take_drop,
    "EXPLAIN": _take_explain,
    "FLUSH": take_flush,
    "GRANT": take_grant,
    "INSERT": take_insert,
    "INVALIDATE": take_invalidate,
    "PAUSE": take_pause,
    "PRINT": take_print,
    "REBUILD": take_rebuild,
    "RECONCILE": take_reconcile,
    "REFRESH": take_refresh,
    "REPAIR": take_repair,
    "REPLAY": take_replay,
    "RESET": take_reset,
    "RESUME": take_resume,
    "REVOKE": take_revoke,
    "ROLLBACK": take_swap,
    "SET": take_set,
    "SHOW": take_show,
    "SUBSCRIBE": take_subscribe,
    "SWAP": take_swap,
    "TERMINATE": take_terminate,
    "TRUNCATE": take_truncate,
    "UPDATE": take_update,
    "VALIDATE": take_validate,
    "VERIFY": take_verify,
}
"""The parser of each statement, by first word; queries begin with ``fragments.QUERY_WORDS``."""

_SYNONYMS = {"DESC": "DESCRIBE", "LIST": "SHOW", "STOP": "TERMINATE", "UNSET": "RESET"}
"""First words of other systems, with the equivalent word here."""

STATEMENTS = tuple(sorted({*_STATEMENTS, *QUERY_WORDS}))
"""The first words of statements, in upper case."""

KEYWORDS = tuple(sorted({*WORDS, *STATEMENTS}))
"""The words of the statement language, in upper case: for completion and highlighting."""
