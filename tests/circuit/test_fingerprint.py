"""Versions of kinds of nodes: each has one, and what differs from those of a build is named."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

from headrace.algebra import operators
from headrace.algebra.operators import StatefulOperator
from headrace.planning.catalog.policies import Fingerprint
from headrace.planning.circuit import Node, Output
from headrace.planning.circuit.digest import FORMAT, VERSIONS, changes_since, spark_version

if TYPE_CHECKING:
    import pytest


def stored(**given: Any) -> Any:
    return SimpleNamespace(circuit=f"{FORMAT}:0", fingerprint=Fingerprint(**given))


def test_each_kind_of_node_and_operator_has_a_version() -> None:
    for module in iter_modules(operators.__path__):
        import_module(f"headrace.algebra.operators.{module.name}")
    nodes = {kind.__name__ for kind in (*get_args(Node), Output)}
    kinds = {kind.__name__ for kind in StatefulOperator.__subclasses__()}
    assert VERSIONS.keys() == nodes | kinds


def test_a_fingerprint_is_read_as_it_was_written() -> None:
    made = Fingerprint((("Join", 1), ("Output", 3)), "4.3.0")
    assert Fingerprint.of_json(made.to_json()) == made


def test_only_what_a_build_rests_on_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stored(versions=(("InnerJoin", 1), ("Join", 1)), spark="")
    monkeypatch.setitem(VERSIONS, "GroupAggregate", 2)
    monkeypatch.setattr("headrace.planning.circuit.digest.spark_version", lambda: "9.0.0")
    assert changes_since(made) == ()
    monkeypatch.setitem(VERSIONS, "InnerJoin", 2)
    assert changes_since(made) == ("InnerJoin has version 2, and had 1",)
    monkeypatch.delitem(VERSIONS, "Join")
    assert changes_since(made)[-1] == "Join is gone"
    evaluated = stored(versions=(), spark="4.3.0")
    assert changes_since(evaluated) == ("Spark is 9.0.0, and was 4.3.0",)


def test_a_build_without_a_fingerprint_is_of_the_first_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    former: Any = SimpleNamespace(circuit=f"{FORMAT}:0", fingerprint=None)
    if spark_version() == "4.3.0":
        assert changes_since(former) == ()
    monkeypatch.setitem(VERSIONS, "Matches", 3)
    assert changes_since(former) == ("it may use Matches, which has version 3",)
    former.circuit = "0123"
    assert "another format" in changes_since(former)[0]
