"""Streams, tables, views and sinks as stored in the catalog, and their JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from headrace.errors import Code, HeadraceError
from headrace.planning.catalog.policies import CONTINUOUS, Fingerprint, KeptHistory, RefreshPolicy
from headrace.types import BuildId, Column, RelationId, Schema, TimestampType

ROWTIME: Final = "__rowtime"
"""The column of a stream's log with the time of each row: of its record, or of appending it."""


SHARED_SOURCE = "source"
"""The key in a declaration's source of the name of a source of several tables."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The parts of a stream's or table's definition besides its columns and key."""

    created_sql: str = ""
    """The whole statement, for people."""
    options: tuple[tuple[str, str], ...] = ()
    """Options by key, in lower case; without secrets."""
    watermark: tuple[str, str] | None = None
    """A column, and the expression of the bound on its event time."""
    computed: tuple[tuple[str, str], ...] = ()
    """Computed columns, each with its expression."""
    metadata: tuple[tuple[str, str], ...] = ()
    """METADATA columns, each with its key."""
    message_key: tuple[str, ...] = ()
    """The columns of a stream that are in the key of a record of its topic."""
    defaults: tuple[tuple[str, str], ...] = ()
    """Columns with the expression of their DEFAULT."""
    source: tuple[tuple[str, str], ...] = ()
    """The source's connector and options, with names for secrets; empty if there is no source."""
    rowtime: bool = False
    """Whether the log of a stream has the column :data:`ROWTIME`."""
    precisions: tuple[tuple[str, int], ...] = ()
    """The columns declared as ``TIMESTAMP(n)``, each with its n: the digits of its seconds."""
    delay: int = 0
    """The watermark's delay behind the newest event time, in microseconds."""
    lateness: int | None = None
    """The allowed lateness of a stream's rows, in microseconds; None if not declared."""
    rejects_late: bool = False
    """Whether later rows are rejected; otherwise they are admitted, and counted."""
    stops_on_error: bool = False
    """Whether its source stops at a row that does not fit; otherwise the row is rejected."""
    unique: tuple[str, ...] = ()
    """The columns of an event's id; only the first event with an id is admitted."""
    within: int | None = None
    """How long ids are remembered, in microseconds; None is unlimited."""
    retention: int | None = None
    """How long the log of a stream retains events, in microseconds; None is unlimited."""
    ksqldb: bool = False
    """Whether it was declared as in ksqlDB, so that queries of it are read as ksqlDB's."""
    dropped: tuple[str, ...] = ()
    """The names under which files have columns that were dropped."""
    former: tuple[tuple[str, str], ...] = ()
    """Former names of columns, each with the present one: sources may still use them."""

    @property
    def generated(self) -> frozenset[str]:
        """The computed and METADATA columns."""
        return frozenset(name for name, _ in (*self.computed, *self.metadata))

    def option(self, *keys: str) -> str | None:
        """Return the value of the first of these options that is set, or None."""
        given = dict(self.options)
        return next((given[key] for key in keys if key in given), None)

    @property
    def shared_source(self) -> str | None:
        """The source that feeds the relation and other tables together; None if it has its own.

        One epoch reads what the source lands in these tables together.
        """
        return dict(self.source).get(SHARED_SOURCE)

    @property
    def connector(self) -> str | None:
        """The connector of the relation; it takes effect once a broker is configured."""
        named = self.option("connector", "type")
        return named or ("kafka" if self.option("topic", "kafka_topic") else None)

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return {
            "created_sql": self.created_sql,
            "options": [list(pair) for pair in self.options],
            "watermark": None if self.watermark is None else list(self.watermark),
            "computed": [list(pair) for pair in self.computed],
            "metadata": [list(pair) for pair in self.metadata],
            "message_key": list(self.message_key),
            "defaults": [list(pair) for pair in self.defaults],
            "source": [list(pair) for pair in self.source],
            "rowtime": self.rowtime,
            "precisions": [list(pair) for pair in self.precisions],
            "delay": self.delay,
            "lateness": self.lateness,
            "rejects_late": self.rejects_late,
            "stops_on_error": self.stops_on_error,
            "unique": list(self.unique),
            "within": self.within,
            "retention": self.retention,
            **({"ksqldb": True} if self.ksqldb else {}),
            **({"dropped": list(self.dropped)} if self.dropped else {}),
            **({"former": [list(pair) for pair in self.former]} if self.former else {}),
        }

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Declaration:
        """Return the declaration that :meth:`to_json` wrote; missing parts are empty."""
        watermark = value.get("watermark")
        return cls(
            value.get("created_sql", ""),
            tuple((key, given) for key, given in value.get("options", ())),
            None if watermark is None else (watermark[0], watermark[1]),
            tuple((name, text) for name, text in value.get("computed", ())),
            tuple((name, origin) for name, origin in value.get("metadata", ())),
            tuple(value.get("message_key", ())),
            tuple((name, text) for name, text in value.get("defaults", ())),
            tuple((key, given) for key, given in value.get("source", ())),
            value.get("rowtime", False),
            precisions=tuple((name, digits) for name, digits in value.get("precisions", ())),
            delay=value.get("delay", 0),
            lateness=value.get("lateness"),
            rejects_late=value.get("rejects_late", False),
            stops_on_error=value.get("stops_on_error", False),
            unique=tuple(value.get("unique", ())),
            within=value.get("within"),
            retention=value.get("retention"),
            ksqldb=value.get("ksqldb", False),
            dropped=tuple(value.get("dropped", ())),
            former=tuple((name, present) for name, present in value.get("former", ())),
        )


@dataclass(frozen=True, slots=True)
class Stream:
    """An append-only relation of events; each event has an offset in its log.

    If it is ``corrected``, the log may also contain changes that replace or retract earlier events.
    """

    kind: ClassVar[str] = "stream"

    id: RelationId
    name: str
    """Parts joined by dots, in lower case."""
    schema: Schema
    declaration: Declaration = Declaration()
    corrected: bool = False
    logged: Schema = field(init=False, repr=False, compare=False)
    """The columns of its log: the stream's, and the time of each row if it is stored."""

    def __post_init__(self) -> None:
        """Add the columns of the log."""
        logged = self.schema
        if self.declaration.rowtime:
            time = Column(ROWTIME, TimestampType(), nullable=False)
            logged = Schema((*self.schema.columns, time))
        object.__setattr__(self, "logged", logged)

    @property
    def event_time(self) -> str | None:
        """The column with the event time of a row: from the watermark, or from an option."""
        mark = self.declaration.watermark
        named = mark[0] if mark is not None else self.declaration.option("timestamp")
        folded = (named or "").lower()
        return next((name for name in self.schema.names if name.lower() == folded), None)

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        corrected = {"corrected": True} if self.corrected else {}
        return {**_common(self), "declaration": self.declaration.to_json(), **corrected}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Stream:
        """Return the stream that :meth:`to_json` wrote."""
        declaration = Declaration.of_json(value.get("declaration", {}))
        return cls(*_common_of_json(value), declaration, value.get("corrected", False))


@dataclass(frozen=True, slots=True)
class Table:
    """A relation whose rows are inserted, replaced and deleted, by primary key if it has one."""

    kind: ClassVar[str] = "table"

    id: RelationId
    name: str
    """Parts joined by dots, in lower case."""
    schema: Schema
    primary_key: tuple[str, ...] = ()
    """Column names as the schema spells them; empty without a primary key.

    In a versioned table, whose rows are versions, the effective column is the last of them.
    """
    effective_from: str | None = None
    """The column with the time from which a row is valid; None unless the table is versioned."""
    declaration: Declaration = Declaration()
    arranged: tuple[str, ...] = ()
    """The columns by which its rows are arranged; empty until its columns are altered.

    The primary key or, without one, the columns with which the table was created.
    """

    @property
    def versioned_key(self) -> tuple[str, ...]:
        """The declared primary key; a versioned table stores several versions of each key."""
        return tuple(name for name in self.primary_key if name != self.effective_from)

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        versioned = {} if self.effective_from is None else {"effective_from": self.effective_from}
        return {
            **_common(self),
            "primary_key": list(self.primary_key),
            **versioned,
            "declaration": self.declaration.to_json(),
            **({"arranged": list(self.arranged)} if self.arranged else {}),
        }

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Table:
        """Return the table that :meth:`to_json` wrote."""
        return cls(
            *_common_of_json(value),
            primary_key=tuple(value["primary_key"]),
            effective_from=value.get("effective_from"),
            declaration=Declaration.of_json(value.get("declaration", {})),
            arranged=tuple(value.get("arranged", ())),
        )


@dataclass(frozen=True, slots=True)
class _NamedQuery:
    """The definition of a view, materialized or plain."""

    id: RelationId
    name: str
    """Parts joined by dots, in lower case."""
    schema: Schema
    query: str
    """Spark SQL, as written."""
    depends_on: tuple[RelationId, ...]
    """The streams, tables and materialized views that are read, each once."""
    through: tuple[RelationId, ...] = ()
    """The plain views that the query names, directly or through others."""
    created_sql: str = ""
    """The whole statement, for people."""
    functions: tuple[str, ...] = ()
    """The Python functions that are called, also through plain views, in lower case."""

    @property
    def inputs(self) -> tuple[RelationId, ...]:
        """All relations that the view depends on."""
        return (*self.depends_on, *self.through)


@dataclass(frozen=True, slots=True)
class Index:
    """Marks a hidden view as an index: the rows of a relation, arranged by columns."""

    name: str
    """The index's name, in lower case."""
    of: RelationId
    columns: tuple[str, ...]
    """As the schema spells them, in the order of the index."""

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return {"name": self.name, "of": self.of, "columns": list(self.columns)}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Index:
        """Return the index that :meth:`to_json` wrote."""
        return cls(value["name"], RelationId(value["of"]), tuple(value["columns"]))


@dataclass(frozen=True, slots=True)
class View(_NamedQuery):
    """A materialized view: a query whose contents are stored."""

    kind: ClassVar[str] = "view"

    key: tuple[str, ...] = ()
    """Columns that are unique together, as the schema spells them; empty if none are known."""
    circuit: str = ""
    """The digest of the circuit that maintains its state; empty if it was stored without one."""
    replacement: BuildId | None = None
    """The build that computes it since its query was replaced; None is its first."""
    into: RelationId | None = None
    """The hidden stream with the rows that are inserted into it; None if none can be."""
    index: Index | None = None
    """The index that it implements; None for a view that is named or followed."""
    amendable: tuple[RelationId, ...] = ()
    """Uncorrected streams whose later corrections its circuit can apply."""
    refresh: RefreshPolicy = CONTINUOUS
    """When it reads the changes of its inputs."""
    quarantines: bool = False
    """Whether rows on which its query fails are quarantined; otherwise the view stops."""
    single: bool | None = None
    """Whether its query implies at most one row; None if that is not recorded."""
    declares_key: bool = False
    """Whether its key was declared, by ``PRIMARY KEY``."""
    checks_key: bool = False
    """Whether each epoch checks its key, which was declared and does not follow from its query."""
    ksqldb: bool = False
    """Whether CREATE STREAM | TABLE AS made it by a query of ksqlDB; see :class:`Declaration`."""
    candidate_of: RelationId | None = None
    """The view with which it may change places; it is hidden meanwhile."""
    has_served: bool = False
    """Whether a candidate is what that view was before."""
    fingerprint: Fingerprint | None = None
    """The versions that its build rests on; None if it was stored without one."""
    temporary: bool = False
    """Whether a candidate ends with the statement that fills it."""
    own_query: bool = False
    """Whether a statement gave a candidate its query, instead of its view."""
    by_name: str = ""
    """The query as it is once it serves, of a candidate whose ``query`` reads other candidates."""
    history: KeptHistory | None = None
    """How long its former states can be read; None: as long as those of tables."""
    kept_until: float | None = None
    """When a candidate that has served is dropped, in Unix seconds; None: not by itself."""

    @property
    def build(self) -> BuildId:
        """The build that maintains the view; the first one has the view's id."""
        return BuildId(self.id) if self.replacement is None else self.replacement

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return {
            **_query(self),
            "key": list(self.key),
            "circuit": self.circuit,
            "replacement": self.replacement,
            "into": self.into,
            **({} if self.index is None else {"index": self.index.to_json()}),
            **({"amendable": list(self.amendable)} if self.amendable else {}),
            **({} if self.refresh == CONTINUOUS else {"refresh": self.refresh.to_json()}),
            **({"quarantines": True} if self.quarantines else {}),
            **({} if self.single is None else {"single": self.single}),
            **({"declares_key": True} if self.declares_key else {}),
            **({"checks_key": True} if self.checks_key else {}),
            **({"ksqldb": True} if self.ksqldb else {}),
            **({"candidate_of": self.candidate_of} if self.candidate_of is not None else {}),
            **({"has_served": True} if self.has_served else {}),
            **({"fingerprint": self.fingerprint.to_json()} if self.fingerprint else {}),
            **({"temporary": True} if self.temporary else {}),
            **({"own_query": True} if self.own_query else {}),
            **({"by_name": self.by_name} if self.by_name else {}),
            **({} if self.history is None else {"history": self.history.to_json()}),
            **({} if self.kept_until is None else {"kept_until": self.kept_until}),
        }

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> View:
        """Return the view that :meth:`to_json` wrote."""
        return cls(
            **_query_of_json(value),
            key=tuple(value["key"]),
            circuit=value.get("circuit", ""),
            replacement=value.get("replacement"),
            into=value.get("into"),
            index=Index.of_json(value["index"]) if "index" in value else None,
            amendable=tuple(RelationId(id_) for id_ in value.get("amendable", ())),
            refresh=RefreshPolicy.of_json(value["refresh"]) if "refresh" in value else CONTINUOUS,
            quarantines=value.get("quarantines", False),
            single=value.get("single"),
            declares_key=value.get("declares_key", False),
            checks_key=value.get("checks_key", False),
            ksqldb=value.get("ksqldb", False),
            candidate_of=value.get("candidate_of"),
            has_served=value.get("has_served", False),
            fingerprint=Fingerprint.of_json(value["fingerprint"])
            if "fingerprint" in value
            else None,
            temporary=value.get("temporary", False),
            own_query=value.get("own_query", False),
            by_name=value.get("by_name", ""),
            history=KeptHistory.of_json(value["history"]) if "history" in value else None,
            kept_until=value.get("kept_until"),
        )


@dataclass(frozen=True, slots=True)
class PlainView(_NamedQuery):
    """A named query whose rows are not stored; it is expanded in every query that names it."""

    kind: ClassVar[str] = "plain view"

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return _query(self)

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> PlainView:
        """Return the view that :meth:`to_json` wrote."""
        return cls(**_query_of_json(value))


@dataclass(frozen=True, slots=True)
class Sink:
    """A consumer of a view's changelog, epoch by epoch; it cannot be read."""

    kind: ClassVar[str] = "sink"

    id: RelationId
    name: str
    """Parts joined by dots, in lower case."""
    schema: Schema
    """The columns of the changes that it consumes."""
    source: RelationId
    """The view or table whose changes it consumes."""
    target: RelationId | None = None
    """The stream or table that it writes to; None if it writes elsewhere."""
    columns: tuple[str, ...] = ()
    """The columns of the target that it writes, in the order of the schema."""
    options: tuple[tuple[str, str], ...] = ()
    """Options by key, in lower case; without secrets."""
    created_sql: str = ""
    """The whole statement, for people."""
    key: tuple[str, ...] = ()
    """The columns of a unique key of its rows; empty if none is known."""
    delivery: tuple[tuple[str, str], ...] = ()
    """The delivery options, by key."""
    connection: str | None = None
    """The connection over which it writes."""

    @property
    def inputs(self) -> tuple[RelationId, ...]:
        """All relations that the sink depends on."""
        return (self.source,) if self.target is None else (self.source, self.target)

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return {
            **_common(self),
            "source": self.source,
            "target": self.target,
            "columns": list(self.columns),
            "options": [list(pair) for pair in self.options],
            "created_sql": self.created_sql,
            "key": list(self.key),
            "delivery": [list(pair) for pair in self.delivery],
            "connection": self.connection,
        }

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Sink:
        """Return the sink that :meth:`to_json` wrote."""
        target = value["target"]
        return cls(
            *_common_of_json(value),
            source=RelationId(value["source"]),
            target=None if target is None else RelationId(target),
            columns=tuple(value["columns"]),
            options=tuple((key, given) for key, given in value["options"]),
            created_sql=value["created_sql"],
            key=tuple(value["key"]),
            delivery=tuple((key, given) for key, given in value["delivery"]),
            connection=value["connection"],
        )


Defined: TypeAlias = View | PlainView | Sink
"""Objects that depend on relations."""

Relation: TypeAlias = Stream | Table | Defined


def title(relation: Relation) -> str:
    """Return the name of a relation for messages, such as ``view "v"``."""
    if isinstance(relation, View) and relation.index is not None:
        return f'index "{relation.index.name}"'
    return f'{relation.kind} "{relation.name}"'


def key_of(relation: Relation) -> tuple[str, ...]:
    """Return the unique columns of a relation; empty if none are known."""
    match relation:
        case Stream() | PlainView() | Sink():
            return ()
        case Table():
            return relation.primary_key
        case View():
            return relation.key


def is_ksqldb(relation: Relation) -> bool:
    """Return whether queries over a relation are read as ksqlDB's, by its declaration."""
    match relation:
        case Stream() | Table():
            return relation.declaration.ksqldb
        case View():
            return relation.ksqldb
        case PlainView() | Sink():
            return False


def inserted_into(into: RelationId) -> str:
    """Return the name of the hidden stream that holds the rows inserted into a view."""
    return f"__into_{into}"


FUNCTION_VIEW: Final = "__function_"
"""The name prefix of the hidden plain view of a function by CREATE FUNCTION.

Its one row is the function's value for NULL arguments, so that callers of the function depend on
it as on any other plain view; ``created_sql`` is the statement.
"""


def with_rowtime(into: RelationId) -> str:
    """Return the name of the hidden plain view with the event times of such a view's rows."""
    return f"__timed_{into}"


def logged(relation: Relation) -> Schema:
    """Return the readable columns of a relation; for a stream, those of its log."""
    return relation.logged if isinstance(relation, Stream) else relation.schema


def relation_of_json(value: dict[str, Any]) -> Relation:
    """Return the relation that its class's ``to_json`` wrote.

    Raises:
        HeadraceError: ``corrupt`` if the value is malformed.
    """
    try:
        match value["kind"]:
            case Stream.kind:
                return Stream.of_json(value)
            case Table.kind:
                return Table.of_json(value)
            case View.kind:
                return View.of_json(value)
            case PlainView.kind:
                return PlainView.of_json(value)
            case Sink.kind:
                return Sink.of_json(value)
            case kind:
                raise HeadraceError(Code.CORRUPT, f'relation kind "{kind}" does not exist')
    except (KeyError, TypeError) as error:
        raise HeadraceError(
            Code.CORRUPT, "a relation's record is malformed", detail=f"{error!r}"
        ) from error


def _common(relation: Relation) -> dict[str, Any]:
    return {
        "kind": relation.kind,
        "id": relation.id,
        "name": relation.name,
        "schema": relation.schema.to_json(),
    }


def _common_of_json(value: dict[str, Any]) -> tuple[RelationId, str, Schema]:
    return RelationId(value["id"]), value["name"], Schema.of_json(value["schema"])


def _query(view: View | PlainView) -> dict[str, Any]:
    return {
        **_common(view),
        "query": view.query,
        "depends_on": list(view.depends_on),
        "through": list(view.through),
        "created_sql": view.created_sql,
        **({"functions": list(view.functions)} if view.functions else {}),
    }


def _query_of_json(value: dict[str, Any]) -> dict[str, Any]:
    id_, name, schema = _common_of_json(value)
    return {
        "id": id_,
        "name": name,
        "schema": schema,
        "query": value["query"],
        "depends_on": tuple(RelationId(each) for each in value["depends_on"]),
        "through": tuple(RelationId(each) for each in value.get("through", ())),
        "created_sql": value["created_sql"],
        "functions": tuple(value.get("functions", ())),
    }
