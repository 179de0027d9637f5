"""Python functions in queries: telling Spark of them, checking calls, and reading where they run.

Spark's optimizer pulls every call out of the expression that it stands in, into a node of its own
below: one that adds the results of calls to its rows. Such a node is a projection to us, so calls
can stand wherever expressions can, and a transplanted projection is pulled apart again. A call in
a branch of CASE is pulled out as well: it is made for every row, as everywhere in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.functions import arrow_udf, pandas_udf, udf

from headrace.catalyst.fence import REGISTER, origin
from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import items, kind_of
from headrace.errors import Code, HeadraceError, Span
from headrace.functions import Function, FunctionRecord, Kind
from headrace.functions.call import callable_of
from headrace.sql.dialect import TRANSLATED

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

PYTHON_NODES = ("BatchEvalPython", "ArrowEvalPython")
"""The nodes that add the results of calls to the rows of their input."""

PYTHON_CALL = "PythonUDF"


@dataclass(frozen=True, slots=True)
class Registered:
    """A function with the types that Spark reads its declaration as."""

    function: Function
    returns: DataType
    arguments: tuple[DataType, ...] | None
    made: Any
    """What PySpark registers: the same in every session, so that its code is sent once."""

    @classmethod
    def of(
        cls, function: Function, returns: DataType, arguments: tuple[DataType, ...] | None
    ) -> Registered:
        """Make the function what PySpark can register.

        Raises:
            HeadraceError: ``invalid`` where it cannot be sent to workers.
        """
        called = callable_of(function, returns)
        match function.kind:
            case Kind.PYTHON:
                made = udf(called, returns, useArrow=False)
            case Kind.PANDAS:
                made = pandas_udf(called, returns)
            case Kind.ARROW:
                made = arrow_udf(called, returns)
        if not function.deterministic:
            made = made.asNondeterministic()
        return cls(function, returns, arguments, made)

    @property
    def record(self) -> FunctionRecord:
        """What the catalog remembers of the function."""
        return self.function.record(self.returns, self.arguments)

    def declare(self, session: SparkSession) -> None:
        """Make the function known to the queries of a session, replacing one of its name."""
        session.udf.register(self.function.key, self.made)

    def forget(self, session: SparkSession) -> None:
        """Make the function unknown again."""
        session.sql(f"DROP TEMPORARY FUNCTION IF EXISTS `{self.function.key}`")

    def check(self, call: Any, query: Span) -> None:
        """Refuse a call that Python would fail on, or that gives other types than declared."""
        place, given = origin(call, query), items(call.children())
        name = self.function.name
        if any(kind_of(value) == "NamedArgumentExpression" for value in given):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'a named argument of function "{name}" is not supported',
                hint="Give all arguments by position.",
                span=place,
            )
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


def call_text(call: Any) -> str:
    """Return a call, as it stands in SQL."""
    given = items(call.children())
    texts = [call_text(v) if kind_of(v) == PYTHON_CALL else str(v.sql()) for v in given]
    return f"{call.name()}({', '.join(texts)})"


def undeclared(name: str, span: Span) -> HeadraceError:
    """Return the refusal of a function in a view that nobody has declared deterministic."""
    return HeadraceError(
        Code.UNSUPPORTED,
        f'function "{name}" is not allowed in a view',
        detail="It is not declared deterministic, so a view over it has no defined contents.",
        hint="If equal arguments always give equal results, register it with deterministic=True;"
        " else compute the value before inserting it.",
        span=span,
    )


def lacks(functions: Iterable[str], registered: Container[str]) -> str | None:
    """Return a sentence that names the functions of a view that are missing, if any are."""
    missing = [f'"{name}"' for name in functions if name not in registered]
    if not missing:
        return None
    some, are = ("function", "is") if len(missing) == 1 else ("functions", "are")
    return f"It calls {some} {', '.join(missing)}, which {are} not registered."


def waits(view: str, why: str | None, span: Span | None = None) -> HeadraceError:
    """Return the error of reading a view that lacks a function, or is over one that does."""
    return HeadraceError(
        Code.UNAVAILABLE,
        f'view "{view}" waits for a function',
        detail=why,
        hint=REGISTER,
        span=span,
    )


def require_own_name(session: SparkSession, scala: Any, function: Function) -> None:
    """Raise where a function's name means something in a query already."""
    if is_built_in(session, scala, function.key):
        what = "is built into Spark"
    elif function.key.upper() in TRANSLATED:
        what = "is one of another dialect, which queries call by its name"
    else:
        return
    raise HeadraceError(
        Code.INVALID, f'function "{function.name}" {what}', hint="Choose another name."
    )


def is_built_in(session: SparkSession, scala: Any, name: str) -> bool:
    """Tell whether a name means something to Spark's parser or registries already."""
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
