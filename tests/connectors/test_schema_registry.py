"""The client of schema registries, against a real one."""

from __future__ import annotations

import json

import pytest

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.schema_registry import Registry
from headrace.io.formats.protobuf import RegisteredSchema
from servers.machine import Unavailable, free_port
from servers.schema_registry import registry as schema_registry

INNER = json.dumps({"type": "record", "name": "inner", "fields": [{"name": "x", "type": "int"}]})
OUTER = json.dumps({"type": "record", "name": "outer", "fields": [{"name": "i", "type": "inner"}]})


def test_schemas_are_found_with_those_that_they_name(registry) -> None:
    library = pytest.importorskip("confluent_kafka.schema_registry")
    client = library.SchemaRegistryClient({"url": registry})
    inner_id = client.register_schema("inner", library.Schema(INNER, "AVRO"))
    named = [library.SchemaReference("inner", "inner", 1)]
    outer_id = client.register_schema("outer", library.Schema(OUTER, "AVRO", named))
    found = Registry(registry)
    assert found.schema(inner_id) == RegisteredSchema("AVRO", INNER)
    assert found.schema(outer_id) == RegisteredSchema("AVRO", OUTER, (("inner", INNER),))
    assert found.latest("outer") == found.schema(outer_id)
    assert found.schema(999) is None
    assert found.latest("nothing") is None


def test_a_registry_that_does_not_answer_is_unavailable() -> None:
    pytest.importorskip("confluent_kafka.schema_registry")
    with pytest.raises(HeadraceError, match="did not answer") as caught:
        Registry(f"http://127.0.0.1:{free_port()}").schema(1)
    assert caught.value.code is Code.UNAVAILABLE
    with pytest.raises(HeadraceError, match="cannot be made") as wrong:
        Registry("nonsense").schema(1)
    assert wrong.value.code is Code.INVALID


def test_a_registry_may_ask_for_a_login() -> None:
    pytest.importorskip("confluent_kafka.schema_registry")
    try:
        with schema_registry(login="ann:secret") as url:
            assert Registry(url, lambda: "ann:secret").schema(1) is None
            for login in (None, lambda: "ann:wrong"):
                with pytest.raises(HeadraceError, match="refuses access") as caught:
                    Registry(url, login).schema(1)
                assert caught.value.code is Code.INVALID
    except Unavailable as reason:
        pytest.skip(f"no schema registry: {reason}")
