"""Python functions in queries: registers them in Spark, checks calls, and reads their plan nodes.

Spark's optimiser moves every call out of its expression into a separate node below, which adds the
results of calls to its rows. Such a node is read as a projection, so calls can occur wherever
expressions can, and a transplanted projection is split again. A call in a branch of CASE is moved
out as well: it is evaluated for every row, as everywhere in Spark.

Calls of folds: the list of a key's events, and the function on it, read as one node.

:mod:`headrace.planning.dialects.functions` writes ``f(sort_array(collect_list(named_struct('by',
struct(...), 'event', struct(*)))))`` over GROUP BY. After Spark's optimiser, this is an aggregate
that collects the lists, below a node that calls the function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.functions import arrow_udf, pandas_udf, udf
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructType

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalyst.fence import REGISTER, origin
from headrace.planning.catalyst.plan import Expression, Fold, Plan, Project
from headrace.planning.catalyst.resolved import attribute_of, passed_on, type_of
from headrace.planning.catalyst.scala import items, kind_of
from headrace.planning.dialects import TRANSLATED
from headrace.planning.functions import Function, FunctionRecord, Kind
from headrace.planning.functions.folds import (
    BY,
    EVENT,
    Folding,
    callable_of,
    check_result,
    folding_of,
)
from headrace.planning.functions.results import require_returnable, require_returnable_together
from headrace.types import holds

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from headrace.planning.catalyst.pieces import Pieces
    from headrace.planning.catalyst.plan import Attribute


PYTHON_NODES = ("BatchEvalPython", "ArrowEvalPython")
"""The nodes that add the results of calls to the rows of their input."""

PYTHON_CALL = "PythonUDF"


@dataclass(frozen=True, slots=True)
class Registered:
    """A function with the Spark types of its declaration."""

    function: Function
    returns: DataType
    arguments: tuple[DataType, ...] | None
    made: Any
    """The function for PySpark: the same object in every session, so that its code is sent once."""

    @classmethod
    def of(
        cls, function: Function, returns: DataType, arguments: tuple[DataType, ...] | None
    ) -> Registered:
        """Prepare the function for PySpark.

        Raises:
            HeadraceError: ``invalid`` if it cannot be sent to workers, or cannot return the type.
        """
        require_returnable(function.name, returns)
        if function.kind in (Kind.PANDAS, Kind.ARROW):
            require_returnable_together(function.name, returns)
        if isinstance(returns, StructType):
            check_result(function, returns)
        called = callable_of(function, returns)
        match function.kind:
            case Kind.PYTHON:
                made = udf(called, returns, useArrow=False)
            case Kind.PANDAS:
                made = pandas_udf(called, returns)
            case Kind.ARROW | Kind.FOLD:
                made = arrow_udf(called, returns)
        if not function.deterministic:
            made = made.asNondeterministic()
        return cls(function, returns, arguments, made)

    @property
    def folding(self) -> Folding:
        """The runner of the function if it is a fold, else None."""
        return folding_of(self.function, self.returns)

    @property
    def record(self) -> FunctionRecord:
        """The catalog's record of the function."""
        return self.function.record(self.returns, self.arguments)

    def declare(self, session: SparkSession) -> None:
        """Register the function in a session, replacing a function of the same name."""
        session.udf.register(self.function.key, self.made)

    def forget(self, session: SparkSession) -> None:
        """Remove the function from a session."""
        session.sql(f"DROP TEMPORARY FUNCTION IF EXISTS `{self.function.key}`")

    def check(self, call: Any, query: Span) -> None:
        """Refuse a call whose number or types of arguments differ from the declaration."""
        place, given = origin(call, query), items(call.children())
        name = self.function.name
        if any(kind_of(value) == "NamedArgumentExpression" for value in given):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'a named argument of function "{name}" is not supported',
                hint="Give all arguments by position.",
                span=place,
            )
        if self.function.folded is not None:
            _check_fold(self.function, given, place)
            return
        least, most = self.function.arity
        if self.arguments is not None:
            least = most = len(self.arguments)
        if len(given) < least or (most is not None and len(given) > most):
            takes = self.function.takes if self.arguments is None else str(least)
            arguments = "argument" if takes == "1" else "arguments"
            raise HeadraceError(
                Code.INVALID,
                f'function "{name}" takes {takes} {arguments}, not {len(given)}',
                span=place,
            )
        for nth, (value, type_) in enumerate(zip(given, self.arguments or (), strict=False), 1):
            found = type_of(value).simpleString()
            if found != type_.simpleString():
                wanted = type_.simpleString().upper()
                raise HeadraceError(
                    Code.INVALID,
                    f'argument {nth} of function "{name}" is {found.upper()}, not {wanted}',
                    hint=f"Cast it: CAST({value.sql()} AS {wanted}).",
                    span=place,
                )


def _check_fold(function: Function, given: list[Any], place: Span) -> None:
    """Refuse a call of a fold with other arguments than the events that a call in FROM collects."""
    type_ = type_of(given[0]) if len(given) == 1 else None
    fields = type_.elementType if isinstance(type_, ArrayType) else None
    if not isinstance(fields, StructType) or fields.names != [BY, EVENT]:
        raise HeadraceError(
            Code.INVALID,
            f'fold "{function.name}" is not called with the rows of a relation',
            hint=f"Call it in FROM: SELECT * FROM {function.name}(TABLE name).",
            span=place,
        )
    names = [name.lower() for name in fields[EVENT].dataType.names]
    for nth, name in enumerate(names):
        if name in names[:nth]:
            raise HeadraceError(
                Code.INVALID,
                f'fold "{function.name}" is called with two columns "{name}"',
                hint="Name them apart with AS.",
                span=place,
            )


def call_text(call: Any) -> str:
    """Return the SQL text of a call."""
    given = items(call.children())
    texts = [call_text(v) if kind_of(v) == PYTHON_CALL else str(v.sql()) for v in given]
    return f"{call.name()}({', '.join(texts)})"


def undeclared(name: str, span: Span) -> HeadraceError:
    """Return the refusal, in a view, of a function that is not declared deterministic."""
    return HeadraceError(
        Code.UNSUPPORTED,
        f'function "{name}" is not allowed in a view',
        detail="It is not declared deterministic, so a view over it has no defined contents.",
        hint="If equal arguments always give equal results, register it with deterministic=True;"
        " else compute the value before inserting it.",
        span=span,
    )


def lacks(functions: Iterable[str], registered: Container[str]) -> str | None:
    """Return a sentence that names the missing functions of a view, or None."""
    missing = [f'"{name}"' for name in functions if name not in registered]
    if not missing:
        return None
    some, are = ("function", "is") if len(missing) == 1 else ("functions", "are")
    return f"It calls {some} {', '.join(missing)}, which {are} not registered."


def waits(view: str, why: str | None, span: Span | None = None) -> HeadraceError:
    """Return the error of reading a view that lacks a function, or reads a view that does."""
    return HeadraceError(
        Code.UNAVAILABLE,
        f'view "{view}" waits for a function',
        detail=why,
        hint=REGISTER,
        span=span,
    )


def require_own_name(session: SparkSession, scala: Any, name: str) -> None:
    """Raise if the name of a function already has a meaning in queries."""
    if is_built_in(session, scala, name.lower()):
        what = "is built into Spark"
    elif name.upper() in TRANSLATED:
        what = "is one of another dialect, which queries call by its name"
    else:
        return
    raise HeadraceError(Code.INVALID, f'function "{name}" {what}', hint="Choose another name.")


def is_built_in(session: SparkSession, scala: Any, name: str) -> bool:
    """Return whether a name is known to Spark's parser or registries."""
    kind = scala.named("org.apache.spark.sql.catalyst.FunctionIdentifier")
    identifier = kind(name, scala.option("builtin"), scala.option("system"))
    state = session._jsparkSession.sessionState()  # noqa: SLF001
    registries = (state.functionRegistry(), state.tableFunctionRegistry())
    if any(registry.functionExists(identifier) for registry in registries):
        return True
    try:
        forms = [state.sqlParser().parseExpression(f"{name}({given})") for given in _GIVEN]
    except PySparkException:
        return True
    return any(kind_of(parsed) != "UnresolvedFunction" for parsed in forms)


_GIVEN = ("x", "x, y", "x, y, z")


_EVENT = 3
"""The position of the event's columns among the children of the named struct."""


def fold_of(
    pieces: Pieces,
    function: Registered,
    call: Any,
    result: Any,
    aggregate: Any,
    read: Callable[[Any], Plan],
) -> Fold:
    """Return the node of a call of a fold over an aggregate that collects events.

    ``result`` is the attribute of the call's value; ``read`` reads the aggregate's input.

    Raises: HeadraceError: ``unsupported`` if the events cannot be ordered, or Spark has changed the
    query to an unknown form.
    """
    folded, returns = function.function.folded, function.returns
    found = _collected(aggregate, call)
    if folded is None or not isinstance(returns, StructType) or found is None:
        raise pieces.unsupported("this form of calling a fold is not supported", None, call)
    id_, event = found
    parts = items(event.children())
    names = [str(each.value()) for each in parts[::2]]
    aliases = [
        pieces.scala.alias(value, name) for name, value in zip(names, parts[1::2], strict=True)
    ]
    attributes = tuple(attribute_of(alias.toAttribute()) for alias in aliases)
    given = tuple(map(pieces.expression, aliases))
    events = Project(read(aggregate.child()), given, attributes)
    by_name = {name.lower(): nth for nth, name in enumerate(names)}
    keys = [by_name[name.lower()] for name in folded.key]
    first = [by_name[name.lower()] for name in folded.order_by]
    columns = [pieces.expression(attribute.handle) for attribute in attributes]
    for nth in keys:
        _check_key(pieces, function, columns[nth], names[nth], call)
    order = []
    for nth in dict.fromkeys([*first, *range(len(columns))]):
        (sort,) = pieces.order([pieces.scala.ascending(columns[nth].handle)]) or (None,)
        if sort is None:
            raise _unordered(pieces, function, names[nth], columns[nth], call)
        order.append(sort)
    shown = [each for each in items(aggregate.aggregateExpressions()) if _id(each) != id_]
    own = _key_attributes([given[nth] for nth in keys], [attributes[nth] for nth in keys], shown)
    if own is None:
        raise pieces.unsupported("this form of calling a fold is not supported", None, call)
    return Fold(
        events,
        function.function.key,
        tuple(names),
        tuple(columns[nth] for nth in keys),
        tuple(order),
        returns,
        function.folding,
        (*own, attribute_of(result)),
    )


def _collected(aggregate: Any, call: Any) -> tuple[int, Any] | None:
    """Return the id of the list that a call takes, and the struct of an event's columns."""
    if str(aggregate.nodeName()) != "Aggregate":
        return None
    (argument,) = items(call.children())
    while kind_of(argument) == "SortArray":
        argument = argument.base()
    id_ = passed_on(argument)
    for named in items(aggregate.aggregateExpressions()):
        if _id(named) != id_ or kind_of(named) != "Alias":
            continue
        listed = named.child()
        if kind_of(listed) == "AggregateExpression":
            listed = listed.aggregateFunction()
        if kind_of(listed) == "CollectList" and kind_of(listed.child()) == "CreateNamedStruct":
            event = items(listed.child().children())[_EVENT]
            if kind_of(event) == "CreateNamedStruct":
                return int(named.exprId().id()), event
    return None


def _id(named: Any) -> int:
    return int(named.exprId().id())


def _key_attributes(
    given: list[Expression], own: list[Attribute], shown: list[Any]
) -> list[Attribute] | None:
    """Return the attributes of the keys; those in the output have the output's attributes.

    None if the output has other columns.
    """
    found = list(own)
    free = list(range(len(given)))
    for each in shown:
        passes = passed_on(each)
        nth = next((n for n in free if given[n].passes == passes), None)
        if nth is None or passes is None:
            return None
        free.remove(nth)
        found[nth] = attribute_of(each.toAttribute())
    return found


def _check_key(pieces: Pieces, function: Registered, key: Expression, name: str, call: Any) -> None:
    what = f'key "{name}" of fold "{function.function.name}"'
    pieces.check_key(key, what, call)
    if holds(key.type, (DoubleType, FloatType)):
        raise pieces.unsupported(
            f"{what} of type {key.type.simpleString().upper()} is not supported",
            "Cast it to DECIMAL or STRING in the query.",
            call,
        )


def _unordered(
    pieces: Pieces, function: Registered, name: str, column: Expression, call: Any
) -> HeadraceError:
    type_ = column.type.simpleString().upper()
    error = pieces.unsupported(
        f'fold "{function.function.name}" cannot order events by column "{name}" of type {type_}',
        "Leave it out, cast it, or use one of its fields in the query.",
        call,
    )
    return HeadraceError(
        Code.UNSUPPORTED,
        error.primary,
        "Events that are equal in the fold's order are ordered by all their columns.",
        error.hint,
        error.span,
    )
