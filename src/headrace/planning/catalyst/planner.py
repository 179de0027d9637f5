"""The only access to Spark's planner: takes the text of a query, returns Headrace's plan.

Spark parses, resolves, types and optimises. Before resolving, the query is checked against the
allow-list of :mod:`headrace.planning.catalyst.allowed`: forms that Spark would run at once
(commands, scripts, paths, reflection) never reach its analyser.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, LongType, StructType, _parse_datatype_json_string

from headrace.errors import Code, HeadraceError, Span, unknown
from headrace.planning.catalog import FUNCTION_VIEW, PlainView, View, with_rowtime
from headrace.planning.catalyst.allowed import ALWAYS_CLOCK, ONCE, OUTSIDE
from headrace.planning.catalyst.analysed import Analysed, QueryProperties, Shape
from headrace.planning.catalyst.clock import CALLS, CONDITIONS, with_clock_marked
from headrace.planning.catalyst.constants import (
    VALUES_PARSED,
    check_parsed_constants,
    check_ranges,
    check_resolved_constants,
    shallow,
)
from headrace.planning.catalyst.failures import translate, translating
from headrace.planning.catalyst.fence import (
    LEAVES,
    NODE_HINTS,
    NODE_WORDS,
    PARSED_NODES,
    check_cast,
    check_clock,
    check_function,
    check_lateral,
    check_table_function,
    check_typed_literal,
    clock_refused,
    leaves,
    name_of,
    nodes,
    origin,
    refused,
    relations_named,
    relations_read,
    view_file,
    words,
)
from headrace.planning.catalyst.lineage import LineageReader
from headrace.planning.catalyst.python import (
    PYTHON_CALL,
    Registered,
    lacks,
    require_own_name,
    undeclared,
    waits,
)
from headrace.planning.catalyst.read import PlanReader
from headrace.planning.catalyst.rewrites import (
    corrected,
    marked,
    with_arrays_sorted,
    with_keys_typed,
)
from headrace.planning.catalyst.scala import (
    ASOF_JOINS,
    OPTIMIZER,
    READ_BY_TASK,
    TYPES,
    Scala,
    items,
    part,
    scala_of,
)
from headrace.planning.catalyst.select import LATEST, Edition, Optimised, Selected, stored_by
from headrace.planning.catalyst.ties import REORDERING, with_ties_marked
from headrace.planning.catalyst.transplant import Transplant
from headrace.planning.catalyst.written import Substitution, WrittenNames, with_one_word_names
from headrace.planning.dialects import (
    OFFSET,
    log_of,
    macros_of,
    refuse_epochs,
    spark_text,
    with_epochs,
)
from headrace.planning.functions import Folded
from headrace.planning.sql import Rewritten, quote
from headrace.types import Column, RelationId, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from headrace.planning.catalog import Relation
    from headrace.planning.catalog.lineage import RelationLineage
    from headrace.planning.catalyst.plan import Plan
    from headrace.planning.functions import Function, FunctionRecord


# Rules that would use the (empty) contents of the placeholders, that drop relations whose condition
# is never true, or that ignore the order of rows that tie.
_RULES = (
    "ConvertToLocalRelation",
    "PropagateEmptyRelation",
    "OptimizeOneRowPlan",
    "PruneFilters",
    REORDERING,
)

# The length of VARCHAR(n) and CHAR(n) is dropped: Spark's expressions have strings.
_LENGTHS = re.compile(r'"(?:var)?char\(\d+\)"')

MOST_READ = 500
"""How many times a query may read relations: Spark plans each use, and cannot be stopped."""

# Names with one spelling, except for the case of letters.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")

_RECURSION_LIMIT = "spark.sql.cteRecursionLevelLimit"

# This rule merges several subqueries into one, so that each would compute the columns of all.
_MERGING = "org.apache.spark.sql.execution.planmerging.MergeSubplans"


@dataclass
class Planner:
    """Analyses queries over placeholders of the declared relations. Not thread-safe.

    A placeholder is a relation with the declared schema and no rows. It is not foldable, so no rule
    of Catalyst can use the fact that it is empty.
    """

    spark: SparkSession
    relations: Mapping[str, Relation]
    """The declared relations by dotted name; the caller updates the mapping."""
    functions: dict[str, Registered] = field(default_factory=dict)
    """The Python functions that can be called, by name in lower case."""
    remembered: Mapping[str, FunctionRecord] = field(default_factory=dict)
    """The functions recorded in the catalog, callable or not; the caller updates the mapping."""
    check: Callable[[], None] = field(default=lambda: None)
    """Called often while a query is planned; an exception ends the planning."""
    scala: Scala = field(init=False)
    undefined: dict[str, HeadraceError] = field(default_factory=dict, init=False)
    """The plain views that could not be defined, by name, each with the reason."""
    _names: dict[str, RelationId] = field(default_factory=dict, init=False)
    _queries: dict[str, tuple[Rewritten, Rewritten]] = field(default_factory=dict, init=False)
    """The queries of plain views by name, after both rewritings."""
    _reads: dict[str, int] = field(default_factory=dict, init=False)
    """How many times each plain view reads a relation, by name."""
    _logs: set[str] = field(default_factory=set, init=False)
    _relations: dict[int, RelationId] = field(default_factory=dict, init=False)
    _pending: dict[str, tuple[RelationId, Schema]] = field(default_factory=dict, init=False)
    """Placeholders that are registered when a query names them: each costs several round trips."""
    _registered: set[str] = field(default_factory=set, init=False)
    """The names that have ever had a placeholder: plain views may refer to them."""

    def __post_init__(self) -> None:
        """Open a new session, so that placeholders are not visible elsewhere."""
        self.spark = self.spark.newSession()
        self.spark.conf.set(*ASOF_JOINS)
        self.spark.conf.set(*VALUES_PARSED)
        self.spark.conf.set(
            "spark.sql.optimizer.excludedRules",
            ",".join([*(f"{OPTIMIZER}.{rule}" for rule in _RULES), _MERGING]),
        )
        self.scala = scala_of(self.spark)

    def parse_type(self, type_span: Span, text: str | None = None) -> DataType:
        """Return the Spark type with the name ``text`` (by default, the span's own text)."""
        sql = text or type_span.text[type_span.start : type_span.end]
        try:
            parsed = self._session.sessionState().sqlParser().parseDataType(sql)
        except PySparkException as error:
            raise HeadraceError(
                Code.INVALID,
                f'type "{sql}" does not exist',
                hint="Use a type of Spark SQL, such as INT, BIGINT, STRING or DECIMAL(10,2).",
                span=type_span,
            ) from error
        return _parse_datatype_json_string(_LENGTHS.sub('"string"', parsed.json()))

    def prepared(self, function: Function) -> Registered:
        """Return a Python function ready to be registered, without registering it.

        Raises:
            HeadraceError: ``invalid`` if Spark has a function of that name, or a type is not valid.
        """
        if function.key not in self.functions:
            self.require_own_name(function.name)
        returns, *arguments = (
            self.parse_type(Span(text, 0, len(text)))
            for text in (function.returns, *(function.arguments or ()))
        )
        declared = None if function.arguments is None else tuple(arguments)
        return Registered.of(function, returns, declared)

    def require_own_name(self, name: str) -> None:
        """Raise if the name of a function already has a meaning in queries."""
        require_own_name(self.spark, self.scala, name)
        if f"{FUNCTION_VIEW}{name.lower()}" in self.relations:
            raise HeadraceError(
                Code.CONFLICT,
                f'function "{name}" was created by CREATE FUNCTION',
                hint=f"Choose another name, or DROP FUNCTION {name} first.",
            )

    def register(self, registered: Registered) -> None:
        """Register a Python function for queries, replacing one of the same name."""
        registered.declare(self.spark)
        self.functions[registered.function.key] = registered

    def unregister(self, name: str) -> None:
        """Remove a Python function."""
        registered = self.functions.pop(name, None)
        if registered is not None:
            registered.forget(self.spark)

    def declare(self, relation: RelationId, name: str, schema: Schema) -> None:
        """Declare a relation to queries, replacing one of the same name."""
        self._stand_in(relation, name, schema)
        self._names[name] = relation
        self._queries.pop(name, None)
        self._reads.pop(name, None)

    def declare_log(self, relation: RelationId, schema: Schema) -> None:
        """Declare a stream's log: its columns, followed by the position of each row."""
        place = Column(OFFSET, LongType(), nullable=False)
        self._stand_in(relation, log_of(relation), Schema((*schema.columns, place)))
        self._logs.add(log_of(relation))

    def _stand_in(self, relation: RelationId, name: str, schema: Schema) -> None:
        if name in self._registered or not _PLAIN_NAME.fullmatch(name):
            self._register(name, relation, schema)
        else:
            self._pending[name] = (relation, schema)

    def _register_named(self, text: str) -> None:
        """Register the pending placeholders that a query may name."""
        folded = text.lower()
        for name in list(self._pending):
            if name.rpartition(".")[2].lower() in folded:
                self._register(name, *self._pending.pop(name))

    def _register(self, name: str, relation: RelationId, schema: Schema) -> None:
        text = schema.spark.json()
        java_schema = self.scala.call(f"{TYPES}.DataType", "fromJson", text)
        empty = self.spark.sparkContext._jsc.emptyRDD()  # noqa: SLF001
        frame = self._session.createDataFrame(empty, java_schema)
        leaf = frame.queryExecution().analyzed()
        self._relations[leaf.rdd().id()] = relation
        frame.createOrReplaceTempView(quote(name))
        self._registered.add(name)

    def define(self, relation: RelationId, name: str, query: str, columns: Sequence[str]) -> None:
        """Declare a plain view: a query that has been analysed, and the names of its columns."""
        read = spark_text(Span(query, 0, len(query), view_file(name)), self.relations, self._folds)
        plain = self._one_word(read)
        parsed = self.scala.parser(self._session).parsePlan(plain.text)
        self._reads[name] = relations_read(parsed, self._reads)
        self._register_named(plain.text)
        listed = ", ".join(quote(column) for column in columns)
        text = f"CREATE OR REPLACE TEMPORARY VIEW {quote(name)} ({listed}) AS {plain.text}"
        try:
            self.spark.sql(text)
        except PySparkException as error:
            raise translate(error, plain.span) from error
        self._names[name] = relation
        self._queries[name] = (read, plain)
        self.undefined.pop(name, None)

    def forget(self, name: str) -> None:
        """Remove a declared name."""
        log = log_of(self._names.pop(name, RelationId(-1)))
        if log in self._logs:
            self._logs.remove(log)
            self._pending.pop(log, None)
            self.spark.catalog.dropTempView(log)
        self._queries.pop(name, None)
        self._reads.pop(name, None)
        self._pending.pop(name, None)
        self.undefined.pop(name, None)
        self.spark.catalog.dropTempView(name)

    def analyse(self, query: Span, *, once: bool = False) -> Analysed:
        """Resolve a query, and refuse forms that are not allowed.

        With ``once``, it may use the clock and random functions, and cannot be planned as a view.
        """
        refuse_epochs(query, self.relations)
        read = spark_text(query, self.relations, self._folds, once=once)
        plain = self._one_word(read)
        with self._mapping_errors(read), plain.mapping_errors(), shallow(plain.span):
            return self._analysed(read, plain, once=once)

    def lineage(self, query: Span, columns: Sequence[str]) -> RelationLineage:
        """Return the lineage of a view's query, which was analysed before, by its columns' names.

        Plain views are inputs like others.
        """
        with self._reading(query) as (_, plain):
            reader = LineageReader(self._relations, self._names, self.check)
            return reader.lineage(self._executed(plain).analyzed(), columns)

    @property
    def written(self) -> WrittenNames:
        """Where names stand in queries, and what an expression computes whatever they are."""
        return WrittenNames(self._reading, self._parsed, self._executed)

    @contextmanager
    def _reading(self, query: Span) -> Iterator[tuple[Rewritten, Rewritten]]:
        """Yield a query after each rewriting for Spark; errors have their place in the query."""
        read = spark_text(query, self.relations, self._folds)
        plain = self._one_word(read)
        span = plain.span
        with self._mapping_errors(read), plain.mapping_errors(), shallow(span), translating(span):
            yield read, plain

    def _executed(self, plain: Rewritten, allowed: frozenset[str] = frozenset()) -> Any:
        """Have Spark resolve a query, once its forms are known to be allowed."""
        parsed, _ = self._parsed(plain, allowed)
        self._register_named(plain.text)
        return self._execution(parsed)

    def _execution(self, logical: Any) -> Any:
        dataset = self.scala.named("org.apache.spark.sql.classic.Dataset")
        return dataset.ofRows(self._session, logical).queryExecution()

    def substituted(self, query: Span, names: Mapping[str, str]) -> str | None:
        """Return a query in Spark SQL that reads other relations, which ``names`` has by name.

        None if it names none of them.
        """
        read = spark_text(query, self.relations, self._folds)
        schemas = {name: self.relations[name].schema for name in self._queries}
        plain = {name: (self._queries[name][1].span, schemas[name]) for name in schemas}
        parser = self.scala.parser(self._session)
        return Substitution(parser, names, plain).of(self._one_word(read).span)

    def named(self, query: Span, sees: Callable[[str], bool]) -> frozenset[str]:
        """Return the dotted names of the relations in a query's text, existing or not.

        ``sees`` returns whether an error may reveal that a relation exists. A stream made by CREATE
        STREAM AS whose event times are used is named by the plain view with these times.

        Raises:
            HeadraceError: ``invalid`` if it cannot be parsed.
        """
        known = self.relations
        seen = {name: relation for name, relation in known.items() if sees(name)}
        query = with_epochs(query, seen).as_now
        into = [r.into for r in seen.values() if isinstance(r, View) and r.into is not None]
        seen |= {each: known[each] for each in map(with_rowtime, into) if each in known}
        read = spark_text(query, seen, self._folds)
        plain = with_one_word_names(self.scala.parser(self._session), read.span, seen)
        logs = {log_of(relation.id): name for name, relation in self.relations.items()}
        span = plain.span
        with self._mapping_errors(read), plain.mapping_errors(), shallow(span), translating(span):
            parsed = self.scala.parser(self._session).parsePlan(plain.text)
            return frozenset(logs.get(name, name) for name in relations_named(parsed))

    def _one_word(self, read: Rewritten) -> Rewritten:
        parser = self.scala.parser(self._session)
        return with_one_word_names(parser, read.span, self.relations)

    @contextmanager
    def _mapping_errors(self, read: Rewritten) -> Iterator[None]:
        """Map an error in the rewritten text to its place in the query or the plain view."""
        try:
            with read.mapping_errors():
                yield
        except HeadraceError as error:
            for view, plain in self._queries.values():
                if error.span is None or error.span.file != view.query.file:
                    continue
                with view.mapping_errors(), plain.mapping_errors():
                    raise
            raise

    def select(
        self,
        query: Span,
        session: SparkSession,
        declared: Callable[[RelationId], bool],
        require: Callable[[str], None],
    ) -> Selected | None:
        """Resolve and optimise a query that is evaluated once, in a session of stored rows.

        It may use the clock and random functions. The relations that are ``declared`` have the same
        names in the session, once ``require`` was called with the text in Spark SQL. Returns None
        if the query names another relation, whose rows are gathered when the query runs.

        Raises:
            HeadraceError: at the place in the query, if it is not allowed.
        """
        refuse_epochs(query, self.relations)
        read = spark_text(query, self.relations, self._folds, once=True)
        plain = self._one_word(read)
        with (
            self._mapping_errors(read),
            plain.mapping_errors(),
            shallow(plain.span),
            translating(plain.span),
        ):
            transplant = Transplant(session, self.scala)
            parsed, names = self._parsed(plain, ONCE, transplant.parser)
            if not all(declared(self._names[name]) for name in names & self._names.keys()):
                return None
            require(plain.text)
            frame = transplant.frame(parsed)
            analysed = with_keys_typed(self.scala, transplant.logical(frame))
            self.check()
            found = self._checked(analysed, plain.span, once=True)
            optimised = Optimised.of(transplant, frame, corrected(self.scala, analysed))
            check_ranges(optimised.root.handle, plain.span)
            shape = Shape(_schema(analysed), found.stored, tuple(sorted(optimised.reads)))
            return Selected(shape, optimised)

    def _analysed(self, read: Rewritten, plain: Rewritten, *, once: bool) -> Analysed:
        query = plain.span
        with translating(query):
            execution = self._executed(plain, ONCE if once else frozenset())
            analysed = with_keys_typed(self.scala, resolved := execution.analyzed())
            self.check()
            found = self._checked(analysed, query, once=once)
            kept = corrected(self.scala, analysed)
            kept = marked(self.scala, with_arrays_sorted(self.scala, kept))
            kept = with_ties_marked(self.scala, kept)
            if found.clocked:
                kept = with_clock_marked(self.scala, kept)
                check_clock(kept, query)
            self.check()
            if kept is not resolved:
                execution = self._execution(kept)
            optimised = execution.optimizedPlan()
            if once:
                check_ranges(optimised, query)
        through = {self._names[name] for name in found.views & self._queries.keys()}
        return Analysed(
            _schema(analysed),
            self._leaves(analysed),
            self._leaves(optimised),
            optimised,
            read,
            plain,
            found.clocked,
            tuple(sorted({*macros_of(read.query, self.relations), *through})),
            found.calls,
        )

    def _parsed(
        self, plain: Rewritten, allowed: frozenset[str] = frozenset(), parser: Any = None
    ) -> tuple[Any, set[str]]:
        """Parse a query, and refuse forms that are not allowed; return the relations it names."""
        parsed = (parser or self.scala.parser(self._session)).parsePlan(plain.text)
        names = self._check_parsed(parsed, plain.span, allowed)
        check_parsed_constants(parsed, plain.span)
        return parsed, names

    def _checked(self, analysed: Any, query: Span, *, once: bool) -> QueryProperties:
        """Refuse forms that are not allowed in a resolved query; return its properties."""
        found = self._check_resolved(analysed, query, once=once)
        self.check()
        texts = [self._queries[name][1].text for name in found.views & self._queries.keys()]
        check_resolved_constants(self.scala, analysed, query, texts)
        return found

    def _leaves(self, plan: Any) -> tuple[RelationId, ...]:
        """Return the relations of a plan, including those in subqueries."""
        read = (leaf.rdd().id() for leaf in leaves(plan) if str(leaf.nodeName()) == "LogicalRDD")
        return tuple(sorted({self._relations[rdd] for rdd in read}))

    def plan(self, analysed: Analysed, edition: Edition = LATEST) -> Plan:
        """Convert the optimised plan, or refuse a form that cannot be maintained."""
        with self._mapping_errors(analysed.read), analysed.plain.mapping_errors():
            for name, place in analysed.calls.items():
                if not self.functions[name].function.deterministic:
                    raise undeclared(name, place)
            reader = PlanReader(
                self.scala,
                self._relations,
                analysed.plain.span,
                self.check,
                clocked=analysed.clocked,
                recursion_limit=int(self.spark.conf.get(_RECURSION_LIMIT)),
                functions=self.functions,
                edition=edition,
            )
            return reader.plan(analysed.optimised)

    @property
    def _folds(self) -> dict[str, Folded]:
        """The folds that queries may name, registered or only recorded, by name."""
        recorded = {n: Folded(r.key, r.order_by) for n, r in self.remembered.items() if r.key}
        given = {name: registered.function.folded for name, registered in self.functions.items()}
        return recorded | {name: folded for name, folded in given.items() if folded is not None}

    @property
    def _session(self) -> Any:
        return self.spark._jsparkSession  # noqa: SLF001

    def _check_parsed(self, parsed: Any, query: Span, allowed: frozenset[str]) -> set[str]:
        common_tables: set[str] = set()
        names: set[str] = set()
        found = list(nodes(parsed))
        for node in found:
            if node.kind == "UnresolvedWith":
                pairs = items(node.handle.cteRelations())
                common_tables |= {str(part(pair, 0)).lower() for pair in pairs}
        for node in found:
            if node.kind == "UnresolvedTableValuedFunction":
                check_table_function(node.handle, query, once=bool(allowed))
            elif node.kind not in PARSED_NODES:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    f"{NODE_WORDS.get(node.kind) or words(node.kind)} is not allowed in a query",
                    hint=NODE_HINTS.get(
                        node.kind, "A query is one SELECT over streams, tables and views."
                    ),
                    span=origin(node.handle, query),
                )
            if node.kind == "UnresolvedRelation":
                names.add(name_of(node.handle))
                self._check_name(node.handle, common_tables, query)
            for expression, name in node.expressions:
                if name in ("UnresolvedFunction", "UnresolvedGenerator"):
                    missing = self.remembered.keys() - self.functions.keys()
                    check_function(expression, name, query, self.functions, missing, allowed)
                elif name == "Literal" and not allowed:
                    check_typed_literal(expression, query)

        read = relations_read(parsed, self._reads)
        if read > MOST_READ:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"the query reads relations {read:,} times",
                detail=f"Plain views and WITH are expanded at each use. The limit is {MOST_READ}.",
                hint="Make a view that is used often a MATERIALIZED VIEW: it is computed once.",
                span=query,
            )
        return names

    def _check_name(self, node: Any, common_tables: set[str], query: Span) -> None:
        name = name_of(node)
        if name in common_tables or name in self._names or name in self._logs:
            return
        if name in self.undefined:
            raise self.undefined[name]
        waiting = self.relations.get(name)
        if isinstance(waiting, PlainView):
            raise waits(name, lacks(waiting.functions, self.functions), origin(node, query))
        lists = "SHOW TABLES lists what exists."
        raise unknown("stream, table or view", name, self._names, lists, origin(node, query))

    def _check_resolved(self, analysed: Any, query: Span, *, once: bool) -> QueryProperties:
        """Refuse forms that are not allowed."""
        clocked, calls, views = False, dict[str, Span](), set[str]()
        stored: set[RelationId] = set()
        if analysed.isStreaming():
            raise HeadraceError(Code.INTERNAL, "a stand-in is a Spark stream")
        # Functions such as to_date are replaced by others, which are checked instead.
        replaced = self.scala.module(f"{OPTIMIZER}.ReplaceExpressions").apply
        for node in nodes(analysed, replaced, views):
            self.check()
            own = once and node.kind in {"ResolvedInlineTable", "Range"}  # rows without an input
            if not node.below and node.kind not in LEAVES and not own:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    f"{words(node.kind)} is not allowed in a query",
                    hint="Read from streams, tables and views.",
                    span=origin(node.handle, query),
                )
            if node.kind == "LateralJoin":
                check_lateral(self.scala, node.handle, query)
            if node.kind == READ_BY_TASK and (leaf := stored_by(node.handle)) is not None:
                stored.add(leaf.relation)
            for expression, name in node.expressions:
                if name == PYTHON_CALL:
                    called = str(expression.name()).lower()
                    if called not in self.functions:
                        raise refused("a function of the session", origin(expression, query))
                    self.functions[called].check(expression, query)
                    calls[called] = origin(expression, query)
                    continue
                if name in OUTSIDE:
                    raise refused(OUTSIDE[name], origin(expression, query))
                if once:
                    continue  # functions were checked by their names
                if name == "Cast":
                    check_cast(expression, query)
                if name in CALLS and node.kind in CONDITIONS:
                    clocked = True
                elif name in ALWAYS_CLOCK:
                    raise clock_refused(expression, name, query)
                if not expression.deterministic() and not items(expression.children()):
                    raise refused(str(expression.prettyName()), origin(expression, query))
        return QueryProperties(clocked, calls, views, tuple(sorted(stored)))


def _schema(analysed: Any) -> Schema:
    """Return the schema of a resolved query."""
    return Schema.of_spark(StructType.fromJson(json.loads(analysed.schema().json())))
