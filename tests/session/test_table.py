"""The table of statements: what runs each, from which parts. No JVM."""

from __future__ import annotations

from dataclasses import fields

import pytest

from headrace.interfaces.session.client import Injector
from headrace.interfaces.session.parts import DatabaseParts
from headrace.interfaces.session.properties import Properties
from headrace.interfaces.session.table import COMPOSED, TABLE
from headrace.planning.sql import Statement

MOST_FIELDS = 6

OF_A_CLIENT = {
    "evaluator": "Evaluator",
    "principal": "Principal",
    "properties": "Properties",
    "report": "Callable[[Progress], None]",
    "seen": "Callable[[Iterable[RelationId]], Published]",
    "is_open": "Callable[[], bool]",
    "wrote": "Callable[[RelationId, Offset], None]",
    "rehearse": "Callable[[ExplainScript], Listed]",
}
"""What a session adds to the parts of its database, by name; the types as they are written."""

PARTS = {each.name: each.type for each in fields(DatabaseParts)} | OF_A_CLIENT
ASKED = {"ListedState": "Reader", "Keeps": "Retirement"}
"""What a class asks of a part that it also runs without, and the part."""
CLASSES = {entry.by for entry in TABLE.values()} | set(COMPOSED.values())


def by_name(classes):
    return sorted(classes, key=lambda cls: cls.__name__)


def test_every_class_of_statements_has_an_entry():
    known = {cls.__name__ for cls in Statement.__subclasses__()}
    assert {cls.__name__ for cls in TABLE} == known


@pytest.mark.parametrize("cls", by_name(CLASSES - {Properties}))
def test_the_fields_of_a_class_are_parts_of_their_types(cls):
    for field in fields(cls):
        expected = PARTS.get(field.name) or COMPOSED[field.name].__name__
        assert ASKED.get(field.type, field.type) == expected, f"{cls.__name__}.{field.name}"
    assert len(fields(cls)) <= MOST_FIELDS, "split it, or join parts"


@pytest.mark.parametrize("cls", by_name({entry.by for entry in TABLE.values()}))
def test_a_class_is_constructed_once_from_parts_by_name(cls):
    parts = {name: object() for name in PARTS} | {"properties": Properties()}
    injector = Injector(parts, COMPOSED)
    made = injector.of(cls)
    assert isinstance(made, cls)
    assert injector.of(cls) is made
    for field in fields(cls) if cls is not Properties else ():
        assert getattr(made, field.name) is parts.get(
            field.name, injector.of(COMPOSED.get(field.name, cls))
        )


def test_no_class_is_composed_under_the_name_of_a_part():
    assert not PARTS.keys() & COMPOSED.keys()
