"""Statements that show, drop or set something and contain no query of their own.

``SHOW LINEAGE``: what columns are made from, and what is made from them.

``CREATE BRANCH``, ``DROP BRANCH``, ``SHOW BRANCHES``: databases that begin as this one was.

``BACKUP TO``, and ``SHOW BACKUPS IN``: copies of the database at another place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.as_of import AsOfEpoch, AsOfTimestamp
from headrace.planning.sql.fragments import at_query, take_as_of, take_query
from headrace.planning.sql.lexer import TokenKind
from headrace.planning.sql.options import take_assignment, take_key, take_options
from headrace.planning.sql.parts import Name, ObjectKind, Statement
from headrace.planning.sql.refreshing import (
    DropCandidate,
    ShowDiff,
    accept_kind,
    take_drop_candidate,
    take_handled_fill,
    take_show_diff,
)
from headrace.planning.sql.refusals import refuse_setting
from headrace.planning.sql.sinks import take_handled_sink, take_snapshot
from headrace.planning.sql.statements import (
    NAMED_LISTINGS,
    AcknowledgeRejects,
    Describe,
    Drop,
    DropConnection,
    DropFunction,
    DropIndex,
    DropSchema,
    DropSecret,
    DropToken,
    Flush,
    Listing,
    NamedApart,
    ResetOption,
    ResumeSource,
    SetOption,
    Show,
    ShowCreate,
    ShowOption,
    Subscribe,
)
from headrace.planning.sql.upkeep import Repair, Verify
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.errors import Span
    from headrace.planning.sql.as_of import AsOf
    from headrace.planning.sql.cursor import Cursor
    from headrace.planning.sql.lexer import Token
    from headrace.planning.sql.parts import Option
    from headrace.planning.sql.refreshing import PauseFill, ResumeFill
    from headrace.planning.sql.sinks import HandleSink


@dataclass(frozen=True, slots=True)
class ShowLineage(Statement):
    """``SHOW LINEAGE``: the inputs of columns or, if ``downstream``, what depends on them.

    ``name`` is that of a relation, or of a column of it. ``as_events``: as events of OpenLineage on
    one relation or, without a name, on all.
    """

    name: Name | None
    span: Span
    downstream: bool = False
    as_events: bool = False


def take_show_lineage(cursor: Cursor, first: Token) -> ShowLineage:
    """Take ``LINEAGE OF name[.column] [UPSTREAM | DOWNSTREAM]``, after SHOW.

    Or ``LINEAGE [OF name] FORMAT OPENLINEAGE``.
    """
    cursor.expect("LINEAGE")
    name: Name | None = None
    if cursor.accept("OF") or cursor.accept("FOR"):
        name = cursor.name("the name of a relation, or of a column of it")
    elif not cursor.at("FORMAT"):
        raise cursor.expected("OF", "FORMAT OPENLINEAGE")
    if cursor.accept("FORMAT"):
        cursor.expect("OPENLINEAGE")
        cursor.expect_end()
        return ShowLineage(name, cursor.span(first), as_events=True)
    downstream = cursor.accept("DOWNSTREAM")
    upstream = not downstream and cursor.accept("UPSTREAM")
    cursor.expect_end(*(() if downstream or upstream else ("DOWNSTREAM", "FORMAT OPENLINEAGE")))
    return ShowLineage(name, cursor.span(first), downstream)


@dataclass(frozen=True, slots=True)
class CreateBranch(Statement):
    """``CREATE BRANCH name [FROM EPOCH n | TIMESTAMP '...']``; None: from now on."""

    name: Name
    span: Span
    begins: AsOf | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropBranch(Statement):
    """``DROP BRANCH [IF EXISTS] name``."""

    name: Name
    span: Span
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowBranches(Statement):
    """``SHOW BRANCHES``."""

    span: Span


def take_create_branch(cursor: Cursor, first: Token) -> CreateBranch:
    """Take ``[IF NOT EXISTS] name [FROM EPOCH n | TIMESTAMP '...']``, after CREATE BRANCH."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _branch(cursor)
    begins = _begins(cursor)
    cursor.expect_end(*(() if begins else ("FROM EPOCH", "FROM TIMESTAMP")))
    return CreateBranch(name, cursor.span(first), begins, if_not_exists)


def take_drop_branch(cursor: Cursor, first: Token) -> DropBranch:
    """Take ``[IF EXISTS] name``, after DROP BRANCH."""
    if_exists = cursor.accept("IF", "EXISTS")
    name = _branch(cursor)
    cursor.expect_end()
    return DropBranch(name, cursor.span(first), if_exists)


def take_show_branches(cursor: Cursor, first: Token) -> ShowBranches:
    """Take ``BRANCHES``, after SHOW."""
    cursor.expect("BRANCHES")
    cursor.expect_end()
    return ShowBranches(cursor.span(first))


def _branch(cursor: Cursor) -> Name:
    name = cursor.name("the branch's name")
    if len(name.parts) > 1:
        raise HeadraceError(
            Code.INVALID,
            f'name "{name}" of a branch is qualified',
            "A branch has all schemas of the database.",
            "Give it a name of one part.",
            name.span,
        )
    return name


def _begins(cursor: Cursor) -> AsOf | None:
    start = cursor.token
    if not cursor.accept("FROM"):
        return None
    if cursor.accept("TIMESTAMP"):
        text = cursor.string("a timestamp between quotes")
        return AsOfTimestamp(text, cursor.span(start))
    if not cursor.accept("EPOCH"):
        raise cursor.expected("EPOCH", "TIMESTAMP")
    return AsOfEpoch(Epoch(cursor.number("an epoch's number")), cursor.span(start))


_PLACE = "a directory or URL between quotes"


@dataclass(frozen=True, slots=True)
class Backup(Statement):
    """``BACKUP TO``: copy the database to a directory or an object store."""

    url: str
    url_span: Span
    span: Span
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowBackups(Statement):
    """``SHOW BACKUPS IN``: list the backups at a place."""

    url: str
    url_span: Span
    span: Span


def take_backup(cursor: Cursor) -> Backup:
    """Take ``BACKUP TO 'url' [WITH (...)]``."""
    first = cursor.token
    cursor.expect("BACKUP", "TO")
    url, span = _place(cursor)
    options = take_options(cursor)
    cursor.expect_end(*(() if options else ("WITH",)))
    return Backup(url, span, cursor.span(first), options)


def take_show_backups(cursor: Cursor, first: Token) -> ShowBackups:
    """Take ``BACKUPS IN 'url'``, after SHOW."""
    cursor.expect("BACKUPS", "IN")
    url, span = _place(cursor)
    cursor.expect_end()
    return ShowBackups(url, span, cursor.span(first))


def _place(cursor: Cursor) -> tuple[str, Span]:
    place = cursor.token
    return cursor.string(_PLACE), cursor.span(place)


_DROPPED_ALONE: Final[Mapping[str, type[DropSecret | DropConnection | DropToken | DropIndex]]] = {
    "SECRET": DropSecret,
    "CONNECTION": DropConnection,
    "TOKEN": DropToken,
    "INDEX": DropIndex,
}
"""What is dropped without CASCADE, by its word."""
_KINDS = (*(kind.value.upper() for kind in ObjectKind), "SCHEMA", *_DROPPED_ALONE, "BRANCH")
_OF_VIEWS = frozenset({Listing.DIRTY, Listing.CHANGES, Listing.RECONCILIATION, Listing.EVIDENCE})
_LISTINGS = tuple(listing.value.upper() for listing in Listing)


def take_drop(
    cursor: Cursor,
) -> (
    Drop
    | DropCandidate
    | DropFunction
    | DropSchema
    | DropSecret
    | DropConnection
    | DropToken
    | DropIndex
    | DropBranch
):
    """Take ``DROP kind [IF EXISTS] name [CASCADE | RESTRICT]``, or ``DROP CANDIDATE OF name``."""
    first = cursor.token
    if cursor.at("DROP", "CANDIDATE"):
        return take_drop_candidate(cursor)
    cursor.expect("DROP")
    if cursor.accept("BRANCH"):
        return take_drop_branch(cursor, first)
    if cursor.accept("SCHEMA") or cursor.accept("DATABASE"):
        if_exists = cursor.accept("IF", "EXISTS")
        name = cursor.name("the schema's name")
        cascade = _cascade(cursor)
        return DropSchema(name, cursor.span(first), if_exists, cascade)
    for word, dropped in _DROPPED_ALONE.items():
        if cursor.accept(word):
            if_exists = cursor.accept("IF", "EXISTS")
            name = cursor.name(f"the {word.lower()}'s name")
            cursor.expect_end()
            return dropped(name, cursor.span(first), if_exists)
    if cursor.accept("FUNCTION"):
        if_exists = cursor.accept("IF", "EXISTS")
        name = cursor.name("the function's name")
        cascade = _cascade(cursor)
        return DropFunction(name, cursor.span(first), if_exists, cascade)
    for kind in ObjectKind:
        if cursor.accept(*kind.value.upper().split()):
            break
    else:
        raise cursor.expected_word(*_KINDS)
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name(f"the {kind}'s name")
    cascade = _cascade(cursor)
    return Drop(kind, name, cursor.span(first), if_exists, cascade)


def take_terminate(cursor: Cursor) -> Drop:
    """Take ``TERMINATE [JOB | QUERY] name``, or Flink's ``STOP JOB``: synonyms of DROP JOB."""
    first = cursor.advance()
    if cursor.peek(1).kind is not TokenKind.END:
        cursor.accept("JOB") or cursor.accept("QUERY")
    place = cursor.token
    if place.word == "ALL" and place.kind is TokenKind.WORD:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "TERMINATE ALL is not supported",
            hint="Use TERMINATE name for each job: SHOW JOBS lists them.",
            span=cursor.span(place, place),
        )
    if place.kind is TokenKind.STRING:
        text = cursor.string("a job's name").lower()
        name = Name((text,), cursor.span(place))
    else:
        name = cursor.name("a job's name")
    cursor.expect_end()
    return Drop(ObjectKind.JOB, name, cursor.span(first))


def _cascade(cursor: Cursor) -> bool:
    cascade = cursor.accept("CASCADE")
    if not cascade:
        cursor.accept("RESTRICT")  # the default
        cursor.accept("DELETE", "TOPIC")  # of ksqlDB: dropping a relation always drops its log
    cursor.expect_end(*(() if cascade else ("CASCADE",)))
    return cascade


def take_show(
    cursor: Cursor,
) -> Show | ShowOption | ShowCreate | ShowBackups | ShowBranches | ShowLineage | ShowDiff:
    """Take ``SHOW listing | property | CREATE name | LINEAGE OF name``, or ``LIST listing``."""
    first = cursor.advance()
    if cursor.at("BACKUPS"):
        return take_show_backups(cursor, first)
    if cursor.at("BRANCHES"):
        return take_show_branches(cursor, first)
    if cursor.at("LINEAGE"):
        return take_show_lineage(cursor, first)
    if cursor.at("DIFF") and cursor.peek(1).kind is not TokenKind.END:
        return take_show_diff(cursor, first)
    return _take_shown(cursor, first)


def _take_shown(cursor: Cursor, first: Token) -> Show | ShowOption | ShowCreate:
    if cursor.accept("CREATE"):
        return _show_create(cursor, first)
    if cursor.accept("ALL") or cursor.accept("PROPERTIES"):
        cursor.expect_end()
        return ShowOption(cursor.span(first))
    after = cursor.peek(1)
    if (
        cursor.token.kind in {TokenKind.STRING, TokenKind.BACKQUOTED}
        or after.text == "."
        or cursor.at_any("TIMEZONE", "CONSISTENCY")
    ):
        key = take_key(cursor)
        cursor.expect_end()
        return ShowOption(cursor.span(first), key)
    listing = _listing(cursor)
    relation = schema = None
    if listing in NAMED_LISTINGS and (cursor.accept("FROM") or cursor.accept("IN")):
        if (
            cursor.peek(1).kind in {TokenKind.WORD, TokenKind.BACKQUOTED}
            and cursor.peek(1).word != "LIKE"
        ):
            cursor.accept("SCHEMA") or cursor.accept("DATABASE")
        schema = cursor.name("a schema's name")
    if listing is Listing.REJECTS and (cursor.accept("FOR") or cursor.accept("FROM")):
        relation = cursor.name("a stream's or table's name")
    if listing in _OF_VIEWS and cursor.accept("FOR"):
        relation = cursor.name("a view's name")
    if listing is Listing.ERRORS:
        cursor.expect("FOR")
        relation = cursor.name("a view's or sink's name")
    if listing is Listing.INDEXES and (cursor.accept("FROM") or cursor.accept("ON")):
        relation = cursor.name("a table's or view's name")
    like = None
    if listing in NAMED_LISTINGS and cursor.accept("LIKE"):
        like = cursor.string("a pattern between quotes")
    limit = None
    if listing is Listing.REJECTS and cursor.accept("LIMIT"):
        limit = cursor.number("a number of rejects")
    token = None
    if listing is Listing.GRANTS and cursor.accept("FOR"):
        token = cursor.name("a token's name")
    cursor.expect_end(*(() if relation or token or like is not None else _further(listing)))
    return Show(listing, cursor.span(first), relation, like, schema, limit, token)


def _show_create(cursor: Cursor, first: Token) -> ShowCreate:
    for kind in NamedApart:
        named = cursor.peek(1).kind is not TokenKind.END and cursor.peek(1).text != "."
        if named and cursor.accept(kind.value.upper()):
            name = cursor.name(f"the {kind}'s name")
            cursor.expect_end()
            return ShowCreate(name, cursor.span(first), kind)
    if cursor.peek(1).kind is not TokenKind.END and cursor.peek(1).text != ".":
        accept_kind(cursor)
    name = cursor.name("the name of a relation or sink")
    cursor.expect_end()
    return ShowCreate(name, cursor.span(first))


def _further(listing: Listing) -> tuple[str, ...]:
    if listing in {Listing.REJECTS, Listing.GRANTS, *_OF_VIEWS}:
        return ("FOR",)
    if listing is Listing.INDEXES:
        return ("FROM",)
    return ("LIKE",) if listing in NAMED_LISTINGS else ()


def _listing(cursor: Cursor) -> Listing:
    if cursor.accept("DATABASES"):
        return Listing.SCHEMAS
    for listing in Listing:
        if cursor.accept(*listing.value.upper().split()):
            return listing
    raise cursor.expected_word(*_LISTINGS)


def take_describe(cursor: Cursor) -> Describe:
    """Take ``DESCRIBE [TABLE] [EXTENDED] name``, or ksqlDB's ``DESCRIBE name EXTENDED``."""
    first = cursor.advance()
    if cursor.peek(1).kind is not TokenKind.END and cursor.peek(1).text != ".":
        accept_kind(cursor)
    extended = cursor.at("EXTENDED") and cursor.peek(1).kind is not TokenKind.END
    if extended:
        cursor.advance()
    name = cursor.name("a stream's, table's or view's name")
    extended = cursor.accept("EXTENDED") or extended
    cursor.expect_end()
    return Describe(name, cursor.span(first), extended)


def take_set(cursor: Cursor) -> SetOption | ShowOption:
    """Take ``SET key = value``, ``SET key TO value`` or ``SET``; refuse settings of Spark."""
    first = cursor.token
    cursor.expect("SET")
    if cursor.at_end():
        return ShowOption(cursor.span(first))
    key = cursor.token
    option = take_assignment(cursor, to=True)
    refuse_setting(option.key, cursor.span(key))
    if option.secret:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a property of the session that is a secret is not supported",
            hint="Secrets are values of options of connectors.",
            span=option.span,
        )
    cursor.expect_end()
    return SetOption(option.key, option.value, cursor.span(first))


def take_reset(cursor: Cursor) -> ResetOption | HandleSink:
    """Take ``RESET [key | ALL]``, ``UNSET key``, or ``RESET SINK name``."""
    if cursor.at("RESET", "SINK") and cursor.peek(2).kind in {TokenKind.WORD, TokenKind.BACKQUOTED}:
        return take_handled_sink(cursor)
    first = cursor.advance()
    if first.word == "RESET" and (cursor.at_end() or cursor.accept("ALL")):
        cursor.expect_end()
        return ResetOption(cursor.span(first))
    key = take_key(cursor)
    cursor.expect_end()
    return ResetOption(cursor.span(first), key)


def take_repair(cursor: Cursor) -> Repair:
    """Take ``REPAIR [[TABLE | VIEW] name]``."""
    first = cursor.token
    cursor.expect("REPAIR")
    if cursor.peek(1).kind is not TokenKind.END and cursor.peek(1).text != ".":
        accept_kind(cursor)
    name = None if cursor.at_end() else cursor.name("a table's or view's name")
    cursor.expect_end()
    return Repair(cursor.span(first), name)


def take_verify(cursor: Cursor) -> Verify:
    """Take ``VERIFY [name, ...]``."""
    first = cursor.token
    cursor.expect("VERIFY")
    names = [] if cursor.at_end() else [cursor.name("a view's name")]
    while names and cursor.accept_symbol(","):
        names.append(cursor.name("a view's name"))
    cursor.expect_end(*([] if not names else ['","']))
    return Verify(cursor.span(first), tuple(names))


def take_flush(cursor: Cursor) -> Flush:
    """Take ``FLUSH``."""
    first = cursor.token
    cursor.expect("FLUSH")
    cursor.expect_end()
    return Flush(cursor.span(first))


def take_acknowledge(cursor: Cursor) -> AcknowledgeRejects:
    """Take ``ACKNOWLEDGE REJECTS [id, ...] FOR name``."""
    first = cursor.token
    cursor.expect("ACKNOWLEDGE")
    cursor.expect("REJECTS")
    ids: list[int] = []
    if not cursor.at("FOR"):
        ids.append(cursor.number("the id of a reject, or FOR"))
        while cursor.accept_symbol(","):
            ids.append(cursor.number("the id of a reject"))
    cursor.expect("FOR")
    name = cursor.name("a stream's, table's or sink's name")
    cursor.expect_end()
    return AcknowledgeRejects(name, cursor.span(first), tuple(ids) or None)


def take_pause(cursor: Cursor) -> HandleSink | PauseFill | ResumeFill:
    """Take ``PAUSE SINK name``, or ``PAUSE FILL OF name``."""
    if cursor.at("PAUSE", "SINK"):
        return take_handled_sink(cursor)
    if cursor.at("PAUSE", "FILL"):
        return take_handled_fill(cursor)
    cursor.expect("PAUSE")
    raise cursor.expected("SINK", "FILL")


def take_resume(cursor: Cursor) -> ResumeSource | HandleSink | PauseFill | ResumeFill:
    """Take ``RESUME SOURCE name [ON ERROR REJECT]``, or ``RESUME SINK`` or ``RESUME FILL``."""
    first = cursor.token
    if cursor.at("RESUME", "SINK"):
        return take_handled_sink(cursor)
    if cursor.at("RESUME", "FILL"):
        return take_handled_fill(cursor)
    cursor.expect("RESUME")
    if not cursor.accept("SOURCE"):
        raise cursor.expected("SOURCE", "SINK", "FILL")
    name = cursor.name("a stream's, table's or source's name")
    rejecting = cursor.accept("ON", "ERROR", "REJECT")
    cursor.expect_end(*(() if rejecting else ("ON ERROR REJECT",)))
    return ResumeSource(name, cursor.span(first), rejecting)


def take_subscribe(cursor: Cursor) -> Subscribe:
    """Take ``SUBSCRIBE [TO] query | name [AS OF ...] [WITH (SNAPSHOT = false)]``."""
    first = cursor.token
    cursor.expect("SUBSCRIBE")
    cursor.accept("TO")
    span = cursor.span(first, cursor.tokens[-2])
    snapshot = take_snapshot(cursor)
    if at_query(cursor):
        query = take_query(cursor)
        return Subscribe(query, span, query.as_of, snapshot)
    name = cursor.name("a name or a query")
    as_of = take_as_of(cursor)
    cursor.expect_end(*(() if as_of else ("AS OF",)))
    return Subscribe(name, span, as_of, snapshot)
