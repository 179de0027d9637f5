"""The interface of the nodes of a plan: inputs, evaluated expressions, parameters.

A node declares the role of each field, from which :class:`Node` derives its methods. Passes over
plans use these methods, so a new node need not be added to each pass.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

from headrace.planning.catalyst.scala import references

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


AnyPlan: TypeAlias = Any
"""Any node of :mod:`headrace.planning.catalyst.plan`, which imports this module."""


class FieldRole(Enum):
    """The role of a field of a node."""

    INPUT = "a plan, or several, whose rows the node reads"
    EXPRESSIONS = "expressions over the columns of inputs"
    PARAMETER = "a value that decides what the rows are"
    WORDS = "Spark's text of expressions, with generated ids"
    DERIVED = "what follows from the other fields, or is not about rows"


INPUT: Final = {"role": FieldRole.INPUT}
WORDS: Final = {"role": FieldRole.WORDS}
DERIVED: Final = {"role": FieldRole.DERIVED}


def over(*inputs: str) -> Mapping[str, object]:
    """Mark a field as expressions over the columns of the inputs in the given fields."""
    return {"role": FieldRole.EXPRESSIONS, "over": inputs}


@dataclass(frozen=True, slots=True)
class NodeField:
    """A field of a node, other than its inputs, that determines its rows.

    ``inputs`` are the inputs whose columns its expressions refer to.
    """

    name: str
    role: FieldRole
    value: Any
    inputs: tuple[AnyPlan, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """An expression that a node evaluates: its field, Catalyst's handle, and the inputs it reads.

    Without inputs, it reads values that the node itself computes. ``how`` is the direction of a
    sort key, and its position of NULLs.
    """

    field: str
    handle: Any
    inputs: tuple[AnyPlan, ...]
    how: tuple[bool, ...] = ()

    @property
    def columns(self) -> frozenset[int]:
        """The ids of the attributes that the expression refers to."""
        return references(self.handle)


Passed = tuple[tuple[int, int], ...]
"""Columns of an input that a node passes on unchanged: pairs of the node's and the input's ids."""


class Evaluated:
    """An expression in a field of a node: by itself, as a sort key, or as an aggregate call."""

    __slots__ = ()

    def evaluated(self) -> tuple[Any, tuple[bool, ...]]:
        """Return Catalyst's handle of the expression and, of a sort key, how it sorts."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """The methods of every node, by the roles of its fields; the default role is a parameter.

    The defaults of these methods keep each pass correct, though not always optimal.
    """

    by_row: ClassVar[bool] = False
    """Whether the result for a row depends on no other row of the same input."""
    by_position: ClassVar[bool] = True
    """Whether columns of inputs are referred to by position, so that none can be left out."""

    @property
    def inputs(self) -> tuple[AnyPlan, ...]:
        """The inputs, left to right."""
        found: list[AnyPlan] = []
        for name in self._names(FieldRole.INPUT):
            value = getattr(self, name)
            found += value if isinstance(value, tuple) else (value,)
        return tuple(found)

    @property
    def groups(self) -> tuple[Any, ...]:
        """The keys that divide rows into groups, if the groups are processed independently."""
        return ()

    def parts(self) -> tuple[NodeField, ...]:
        """Return the fields other than inputs that determine the rows, in order."""
        return tuple(
            NodeField(
                each.name,
                _role(each.metadata),
                getattr(self, each.name),
                tuple(getattr(self, name) for name in each.metadata.get("over", ())),
            )
            for each in fields(self)
            if _role(each.metadata) not in (FieldRole.INPUT, FieldRole.DERIVED)
        )

    def uses(self) -> tuple[Use, ...]:
        """Return the expressions that the node evaluates."""
        return tuple(
            Use(part.name, handle, part.inputs, how)
            for part in self.parts()
            if part.role is FieldRole.EXPRESSIONS
            for handle, how in _evaluated(part.value)
        )

    def parameters(self) -> tuple[Any, ...]:
        """Return the values of the node's parameters."""
        return tuple(part.value for part in self.parts() if part.role is FieldRole.PARAMETER)

    def passed(self) -> tuple[Passed, ...]:
        """Return the columns that are passed on, for each input."""
        return ((),) * len(self.inputs)

    def rebuilt(self, inputs: Iterable[AnyPlan]) -> Self:
        """Return the node over other inputs, which must have the columns that it needs."""
        given = iter(inputs)
        below: dict[str, Any] = {}
        for name in self._names(FieldRole.INPUT):
            value = getattr(self, name)
            several = isinstance(value, tuple)
            below[name] = tuple(islice(given, len(value))) if several else next(given)
        return replace(self, **below) if below else self

    def _names(self, role: FieldRole) -> Iterator[str]:
        return (each.name for each in fields(self) if _role(each.metadata) is role)


def _role(metadata: Mapping[Any, Any]) -> FieldRole:
    found: FieldRole = metadata.get("role", FieldRole.PARAMETER)
    return found


def _evaluated(value: Any) -> Iterator[tuple[Any, tuple[bool, ...]]]:
    """Yield the expressions in a field, each with how it sorts."""
    match value:
        case None:
            pass
        case tuple():
            for each in value:
                yield from _evaluated(each)
        case Evaluated():
            yield value.evaluated()
        case _:
            yield value, ()  # an expression of Catalyst itself
