"""What every node of a plan answers: its inputs, the expressions that it evaluates, parameters.

A node says of each field what it is, and :class:`Node` answers from that. Passes over plans are
written over the answers, so a new node need not be added to each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

from headrace.catalyst.scala import references

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

AnyPlan: TypeAlias = Any
"""One of the nodes of :mod:`headrace.catalyst.plan`, which is built over this module."""


class FieldRole(Enum):
    """What a field of a node is."""

    INPUT = "a plan, or several, whose rows the node reads"
    EXPRESSIONS = "expressions over the columns of inputs"
    PARAMETER = "a value that decides what the rows are"
    WORDS = "Spark's text of expressions, with generated ids"
    DERIVED = "what follows from the other fields, or is not about rows"


INPUT: Final = {"role": FieldRole.INPUT}
WORDS: Final = {"role": FieldRole.WORDS}
DERIVED: Final = {"role": FieldRole.DERIVED}


def over(*inputs: str) -> Mapping[str, object]:
    """Mark a field with expressions, by the fields of the inputs whose columns they refer to."""
    return {"role": FieldRole.EXPRESSIONS, "over": inputs}


@dataclass(frozen=True, slots=True)
class NodeField:
    """A field that decides what the rows of a node are, besides its inputs.

    ``inputs`` are those whose columns its expressions refer to.
    """

    name: str
    role: FieldRole
    value: Any
    inputs: tuple[AnyPlan, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """An expression that a node evaluates: its field, Catalyst's handle, and the inputs it reads.

    Without inputs, it reads what the node itself computes. ``how`` is how a sort key sorts.
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
"""Columns of an input that a node passes on unchanged: pairs of the node's id and the input's."""


class Evaluated:
    """An expression in a field of a node: alone, with an order, or as a call that aggregates."""

    __slots__ = ()

    def evaluated(self) -> tuple[Any, tuple[bool, ...]]:
        """Return Catalyst's handle of the expression, and how it sorts if it is a sort key."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """What every node answers, from what its fields are; a field without a role is a parameter.

    What a node does not answer itself is answered so that each pass is right, if not at its best.
    """

    by_row: ClassVar[bool] = False
    """Whether what becomes of a row depends on no other row of the same input."""
    by_position: ClassVar[bool] = True
    """Whether the columns of inputs are known by their positions, so that none can be left out."""

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
        """Return what decides the rows besides the inputs, in the order of the fields."""
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
        """Return what the node is besides its inputs and expressions."""
        return tuple(part.value for part in self.parts() if part.role is FieldRole.PARAMETER)

    def passed(self) -> tuple[Passed, ...]:
        """Return the columns that are passed on, for each input."""
        return ((),) * len(self.inputs)

    def rebuilt(self, inputs: Iterable[AnyPlan]) -> Self:
        """Return the node over other inputs, which have at least the columns that it needs."""
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
    """Yield the expressions in a field, and how each sorts."""
    match value:
        case None:
            pass
        case tuple():
            for each in value:
                yield from _evaluated(each)
        case Evaluated():
            yield value.evaluated()
        case _:
            yield value, ()  # an expression of Catalyst as it is
