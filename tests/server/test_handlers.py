"""What handles each route, from which parts of a server. No JVM."""

from __future__ import annotations

from dataclasses import fields

import pytest

from headrace.interfaces.server.active import Active
from headrace.interfaces.server.metrics import Metrics
from headrace.interfaces.server.openapi import SCHEMAS
from headrace.interfaces.server.routes import COMPOSED, ROUTES
from headrace.interfaces.server.service import Service
from headrace.interfaces.server.status import Status
from headrace.interfaces.session.parts import DatabaseParts

MOST_FIELDS = 6

PARTS = {each.name: each.type for cls in (DatabaseParts, Service) for each in fields(cls)} | {
    "routes": "tuple[Route[Any], ...]"
}
"""The types of what a handler can name, as they are written."""
OWN = {Active, Metrics, Status}
"""Parts of a server that handle routes themselves."""
CLASSES = {route.by for route in ROUTES} - OWN | set(COMPOSED.values())


@pytest.mark.parametrize("cls", sorted(CLASSES, key=lambda cls: cls.__name__))
def test_the_fields_of_a_handler_are_parts_of_their_types(cls):
    for field in fields(cls):
        expected = PARTS.get(field.name) or COMPOSED[field.name].__name__
        assert field.type == expected, f"{cls.__name__}.{field.name}"
    assert len(fields(cls)) <= MOST_FIELDS, "split it, or join parts"


def test_a_part_of_a_server_does_not_hide_one_of_the_database():
    assert not {each.name for each in fields(DatabaseParts)} & {
        each.name for each in fields(Service)
    }
    assert not PARTS.keys() & COMPOSED.keys()
    assert {cls.__name__ for cls in OWN} <= set(PARTS.values())


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_the_schemas_of_a_route_exist(route):
    assert {route.body, route.answer} <= SCHEMAS.keys()
