"""The identity of a function's code: equal code has equal digests, in one version of Python.

A digest covers the byte code, constants, defaults and closed-over values of a function, and of the
Python functions and plain constants that it names. It covers only the names of libraries and the
types of other objects, and neither files nor anything that is looked up at run time.
Comments, line numbers and documentation make no difference.
"""

from __future__ import annotations

import dis
import hashlib
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

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
