"""Python functions in queries: registers them in Spark, checks calls, and reads their plan nodes.

Spark's optimiser moves every call out of its expression into a separate node below, which adds the
results of calls to its rows. Such a node is read as a projection, so calls can occur wherever
expressions can, and a transplanted projection is split again. A call in a branch of CASE is moved
out as well: it is evaluated for every row, as everywhere in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.functions import arrow_udf, pandas_udf, udf
from pyspark.sql.types import ArrayType, StructType

from headrace.catalyst.fence import REGISTER, origin
from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import items, kind_of
from headrace.dialects import TRANSLATED
from headrace.errors import Code, HeadraceError, Span
from headrace.functions import Function, FunctionRecord, Kind
from headrace.functions.callables import callable_of, folding_of
from headrace.functions.fold import check_result
from headrace.functions.folding import BY, EVENT, Folding
from headrace.functions.results import require_returnable, require_returnable_together

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

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
