"""Whether JSON is a valid event of OpenLineage, by the classes generated from its schemas.

The client's classes have the fields of the JSON schemas, with types, enumerations, formats and
which are required. JSON that is read into them strictly, and written again unchanged, is valid.
"""

from __future__ import annotations

import types
import typing
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin

import attr
from openlineage.client import event_v2, facet_v2
from openlineage.client.serde import Serde


def require_valid(event: dict[str, Any]) -> None:
    """Raise ``AssertionError`` or the client's error unless an event is valid."""
    given = event["schemaURL"].rpartition("/")[2]
    cls = {"RunEvent": event_v2.RunEvent, "JobEvent": event_v2.JobEvent}[given]
    read = _read(cls, event, given)
    assert Serde.to_dict(read) == event


@cache
def _facets() -> dict[str, type]:
    """Return the classes of facets by the URL of their schema."""
    modules = [value for value in vars(facet_v2).values() if isinstance(value, types.ModuleType)]
    return {
        each._get_schema(): each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, facet_v2.BaseFacet)
    }


def _read(cls: type, value: Any, where: str) -> Any:
    """Return a value as an instance of a class; unknown fields and other types are errors."""
    assert isinstance(value, dict), f"{where} is no object"
    attr.resolve_types(cls)
    known = {each.name: each for each in attr.fields(cls)}
    assert value.keys() <= known.keys(), f"{where}: unknown {value.keys() - known.keys()}"
    needed = {name for name, each in known.items() if each.default is attr.NOTHING}
    assert needed <= value.keys(), f"{where}: {needed - value.keys()} are missing"
    given = {
        known[name].alias: _value(known[name].type, each, f"{where}.{name}")
        for name, each in value.items()
        if known[name].init
    }
    made = cls(**given)
    for name in value.keys() - {n for n in value if known[n].init}:
        assert getattr(made, name) == value[name], f"{where}.{name}"
    return made


def _value(kind: Any, value: Any, where: str) -> Any:
    if get_origin(kind) in (types.UnionType, typing.Union):
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        return [_value(item, each, f"{where}[{i}]") for i, each in enumerate(value)]
    if get_origin(kind) is dict:
        _, item = get_args(kind)
        return {name: _value(item, each, f"{where}.{name}") for name, each in value.items()}
    if issubclass(kind, Enum):
        return kind(value)
    if issubclass(kind, facet_v2.BaseFacet):
        kind = _facets()[value["_schemaURL"]]
    if attr.has(kind):
        return _read(kind, value, where)
    assert type(value) is kind, f"{where} is {value!r}"
    return value
