"""Python functions as users declare them, and as the catalog stores them.

The identity of a function's code: equal code has equal digests, in one version of Python.

A digest covers the byte code, constants, defaults and closed-over values of a function, and of the
Python functions and plain constants that it names. It covers only the names of libraries and the
types of other objects, and neither files nor anything that is looked up at run time.
Comments, line numbers and documentation make no difference.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum, StrEnum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack, overload

from pyspark.sql.types import DataType

from headrace.errors import Code, HeadraceError, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias


if TYPE_CHECKING:
    Seen: TypeAlias = dict[int, tuple[int, Any]]

_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    Decimal,
    date,
    time,
    timedelta,
    tzinfo,
    Enum,
    range,
)
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")


def digest(body: Any) -> str:
    """Return a short text that differs if two functions differ in the covered parts."""
    hashed = hashlib.blake2s(digest_size=16)
    for part in _described(body, {}):
        hashed.update(part.encode())
        hashed.update(b"\0")
    return hashed.hexdigest()


def _described(value: Any, seen: Seen) -> Iterator[str]:
    """Yield a description of a value; a repeated value is described by its number.

    ``seen`` maps the identity of each value to it and its number, which keeps the value alive:
    otherwise another value could get the same identity.
    """
    if value is None or value is Ellipsis or isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if id(value) in seen:
        number, _ = seen[id(value)]
        yield f"again {number}"
        return
    seen[id(value)] = len(seen), value
    match value:
        case CodeType():
            yield from _code(value, seen)
        case FunctionType():
            yield from _function(value, seen)
        case MethodType():
            yield from _described([value.__func__, value.__self__], seen)
        case partial():
            yield from _described(["partial", value.func, value.args, value.keywords], seen)
        case tuple() | list():
            yield f"{type(value).__name__} {len(value)}"
            for each in value:
                yield from _described(each, seen)
        case dict():
            yield f"dict {len(value)}"
            for pair in value.items():
                yield from _described(pair, seen)
        case set() | frozenset():
            yield from ["set", *sorted(repr(each) for each in value)]
        case ModuleType():
            yield f"module {value.__name__}"
        case type() | BuiltinFunctionType():
            yield f"{value.__module__}.{value.__qualname__}"
        case _:
            yield f"object of {type(value).__module__}.{type(value).__qualname__}"
            called = getattr(type(value), "__call__", None)  # noqa: B004
            if isinstance(called, FunctionType):
                yield from _described(called, seen)


def _function(function: FunctionType, seen: Seen) -> Iterator[str]:
    yield "function"
    yield from _described(function.__code__, seen)
    yield from _described(function.__defaults__, seen)
    yield from _described(function.__kwdefaults__, seen)
    for cell in function.__closure__ or ():
        try:
            yield from _described(cell.cell_contents, seen)
        except ValueError:
            yield "empty"
    for name in sorted(_globals(function.__code__)):
        if name in function.__globals__:
            yield f"global {name}"
            yield from _described(function.__globals__[name], seen)


def _code(code: CodeType, seen: Seen) -> Iterator[str]:
    constants = list(code.co_consts)
    if constants and isinstance(constants[0], str):
        constants[0] = None  # a docstring; the byte code refers to constants by position
    yield f"code {code.co_argcount} {code.co_flags} {code.co_names} {code.co_varnames}"
    yield f"{code.co_freevars} {code.co_cellvars}"
    yield code.co_code.hex()
    yield from _described(constants, seen)


def _globals(code: CodeType) -> set[str]:
    """Return the names of the globals that the code and its inner functions read."""
    found = {str(i.argval) for i in dis.get_instructions(code) if i.opname in _GLOBAL}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _globals(constant)
    return found


Body = Callable[..., Any]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Kind(StrEnum):
    """The form of a function's arguments and result."""

    PYTHON = "python"
    """The values of one row; it returns a value."""
    PANDAS = "pandas"
    """A pandas Series per argument (of a struct, a DataFrame); it returns one as long."""
    ARROW = "arrow"
    """An Arrow array per argument; it returns one as long."""
    FOLD = "fold"
    """A state and an event; it returns the next state. See :func:`headrace.fold`."""


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """A function as the catalog stores it: everything except its code.

    ``digest`` identifies the code; digests of different versions of Python, which is in ``python``,
    cannot be compared.
    """

    name: str
    """In lower case."""
    returns: str
    """A type in Spark's notation, as in ``arguments``, which is None if not declared."""
    arguments: tuple[str, ...] | None
    kind: Kind
    deterministic: bool
    digest: str
    python: str
    key: tuple[str, ...] = ()
    """For a fold: the key columns; each combination of values has its own state."""
    order_by: tuple[str, ...] = ()
    """For a fold: the columns that order the events of a key."""

    @property
    def signature(self) -> str:
        """The name, the arguments and the result, as text."""
        if self.kind is Kind.FOLD:
            key, order = ", ".join(self.key), ", ".join(self.order_by)
            return f"{self.name}(TABLE PARTITION BY {key} ORDER BY {order}) RETURNS {self.returns}"
        arguments = "..." if self.arguments is None else ", ".join(self.arguments)
        return f"{self.name}({arguments}) RETURNS {self.returns}"

    def differences(self, other: FunctionRecord) -> tuple[str, ...]:
        """Return descriptions of the differences between two functions of one name."""
        parts = {
            "its result": self.returns != other.returns,
            "its key": self.key != other.key,
            "its order": self.order_by != other.order_by,
            "its arguments": self.arguments != other.arguments,
            "its kind": self.kind is not other.kind,
            "whether it is deterministic": self.deterministic is not other.deterministic,
            "its code": self.digest != other.digest and self.python == other.python,
            f"its code, perhaps: it was registered by Python {self.python}"
            f" and this is {other.python}": self.python != other.python,
        }
        return tuple(part for part, differs in parts.items() if differs)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        return {
            "name": self.name,
            "returns": self.returns,
            "arguments": None if self.arguments is None else list(self.arguments),
            "kind": self.kind.value,
            "deterministic": self.deterministic,
            "digest": self.digest,
            "python": self.python,
            **({"key": list(self.key), "order_by": list(self.order_by)} if self.key else {}),
        }

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> FunctionRecord:
        """Return the record that :meth:`to_json` wrote."""
        arguments = value["arguments"]
        return cls(
            value["name"],
            value["returns"],
            None if arguments is None else tuple(arguments),
            Kind(value["kind"]),
            value["deterministic"],
            value["digest"],
            value["python"],
            tuple(value.get("key", ())),
            tuple(value.get("order_by", ())),
        )


@dataclass(frozen=True, slots=True)
class Folded:
    """The parts of a fold besides the function of a state and an event.

    ``key`` and ``order_by`` are columns of the events. ``start`` is the state before the first
    event. ``finish`` converts a state to its row; without it, a state is its row.
    """

    key: tuple[str, ...]
    order_by: tuple[str, ...]
    start: Any = None
    finish: Body | None = field(default=None, repr=False)


class DeclaredFunction(TypedDict, total=False):
    """What a function is declared with; see :class:`Function`."""

    returns: Required[str | DataType]
    arguments: Sequence[str | DataType] | None
    kind: str
    deterministic: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function that queries can call by name.

    ``returns`` and ``arguments`` are types of Spark SQL. If arguments are declared, calls with
    other types are refused. ``deterministic`` is a promise: equal arguments always give equal
    results, on every machine. Views can call only such functions.
    Calling the value calls the Python function.

    Raises:
        HeadraceError: ``invalid`` if it cannot be a function of SQL.
    """

    name: str
    body: Body = field(repr=False)
    returns: str
    arguments: tuple[str, ...] | None = None
    kind: Kind = Kind.PYTHON
    deterministic: bool = False
    folded: Folded | None = None
    """The parts of a fold; present if ``kind`` is :attr:`Kind.FOLD`."""

    def __post_init__(self) -> None:
        """Raise ``invalid`` for a function that could not be called from SQL."""
        if not _NAME.fullmatch(self.name):
            raise HeadraceError(
                Code.INVALID,
                f'"{self.name}" is no name for a function',
                hint="Give it a name of letters, digits and underscores.",
            )
        if inspect.isgeneratorfunction(self.body) or inspect.iscoroutinefunction(self.body):
            raise self._refused("is a generator or a coroutine", "Write it to return its result.")
        least, most = self.arity
        if self.kind is not Kind.PYTHON and most == 0:
            raise self._refused(
                f"takes no arguments, so its kind cannot be {self.kind}", 'Use kind="python".'
            )
        given = self.arguments
        if given is not None and not least <= len(given) <= (
            most if most is not None else len(given)
        ):
            raise self._refused(
                f"does not take {len(given)} arguments",
                f"Declare the types of as many as it takes: {self.takes}.",
            )

    def __call__(self, *arguments: Any) -> Any:
        """Call the Python function directly."""
        return self.body(*arguments)

    @property
    def key(self) -> str:
        """The lower-case name in the catalog."""
        return self.name.lower()

    @property
    def arity(self) -> tuple[int, int | None]:
        """The least and the greatest number of arguments; None if unlimited."""
        try:
            parameters = inspect.signature(self.body).parameters.values()
        except (TypeError, ValueError):  # some functions written in C have no signature
            return 0, None
        needed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if needed:
            raise self._refused(
                f'needs the keyword argument "{needed[0]}"', "Calls from SQL are by position."
            )
        positional = [p for p in parameters if p.kind in _POSITIONAL]
        least = sum(p.default is p.empty for p in positional)
        endless = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        return least, None if endless else len(positional)

    @property
    def takes(self) -> str:
        """The accepted number of arguments, as text."""
        least, most = self.arity
        if most is None:
            return f"{least} or more"
        return str(least) if least == most else f"{least} to {most}"

    @property
    def parts(self) -> Any:
        """The Python values that make up its code: covered by the digest, and sent to workers."""
        if self.folded is None:
            return self.body
        return (self.body, self.folded.start, self.folded.finish)

    def record(self, returns: DataType, arguments: tuple[DataType, ...] | None) -> FunctionRecord:
        """Return the catalog's record of the function, with the types that Spark parsed."""
        return FunctionRecord(
            self.key,
            returns.simpleString(),
            None if arguments is None else tuple(a.simpleString() for a in arguments),
            self.kind,
            self.deterministic,
            digest(self.parts),
            f"{sys.version_info.major}.{sys.version_info.minor}",
            () if self.folded is None else self.folded.key,
            () if self.folded is None else self.folded.order_by,
        )

    def _refused(self, why: str, hint: str) -> HeadraceError:
        return HeadraceError(Code.INVALID, f'function "{self.name}" {why}', hint=hint)


@overload
def function(name: Body, **declared: Unpack[DeclaredFunction]) -> Function: ...
@overload
def function(
    name: str | None = ..., **declared: Unpack[DeclaredFunction]
) -> Callable[[Body], Function]: ...
@overload
def function(name: str | None, body: Body, **declared: Unpack[DeclaredFunction]) -> Function: ...
def function(
    name: str | Body | None = None,
    body: Body | None = None,
    *,
    returns: str | DataType,
    arguments: Sequence[str | DataType] | None = None,
    kind: str = Kind.PYTHON,
    deterministic: bool = False,
) -> Function | Callable[[Body], Function]:
    """Make a Python function callable from SQL, once it is registered; also a decorator.

    >>> @function(returns="INT", deterministic=True)
    ... def doubled(x):
    ...     return None if x is None else 2 * x
    >>> doubled.name, doubled(4)
    ('doubled', 8)

    The default name is that of the Python function.
    Returns the :class:`Function` or, without a ``body``, a decorator that makes one of the body.
    """
    if kind == Kind.FOLD:
        raise HeadraceError(
            Code.INVALID,
            "a fold is declared without its key and its order",
            hint="Make it one: @headrace.fold(key=[...], order_by=[...], returns=...).",
        )
    if kind not in list(Kind):
        raise unknown("function kind", kind, Kind, f"There are: {', '.join(Kind)}.")

    if callable(name):
        name, body = None, name
    called = name

    if not returns:
        raise HeadraceError(
            Code.INVALID,
            "a function is declared without the type that it returns",
            hint='Give a type of Spark SQL, such as returns="DECIMAL(18,4)".',
        )

    def of(given: Body) -> Function:
        if not callable(given):
            raise HeadraceError(Code.INVALID, f"{given!r} cannot be called")
        return Function(
            called or str(getattr(given, "__name__", "?")),
            given,
            _text(returns),
            None if arguments is None else tuple(_text(each) for each in arguments),
            Kind(kind),
            deterministic,
        )

    return of if body is None else of(body)


def _text(type_: str | DataType) -> str:
    return type_.simpleString() if isinstance(type_, DataType) else type_
