"""Bundles: names, and objects with several files."""

from __future__ import annotations

import pytest

from headrace.errors import Code, HeadraceError
from headrace.files.bundles import (
    DIGITS,
    bundle_of,
    bundle_of_object,
    composed,
    members,
    name_in,
    object_of,
    unit_of,
)

BUNDLE = "0123456789abcdef" + "7" * (DIGITS - 16)


def test_a_name_says_its_bundle() -> None:
    name = name_in(BUNDLE, "run-1")
    assert bundle_of(name) == unit_of(name) == BUNDLE
    assert bundle_of_object(object_of(BUNDLE)) == BUNDLE
    alone = name_in(None, "run-1")
    for other in (
        alone,
        "",
        "a",
        f"-b{BUNDLE}",
        f"x-b{BUNDLE.upper()}.arrow",
        f"x-c{BUNDLE}.arrow",
    ):
        assert bundle_of(other) is None
        assert unit_of(other) == other
    assert bundle_of_object(alone) is None


def test_an_object_has_its_files() -> None:
    files = {"a": b"first", "b": b"", "c": bytes(1000)}
    assert {name: bytes(body) for name, body in members(composed(files), "x").items()} == files
    assert members(composed({}), "x") == {}


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b[:0], lambda b: b[9:]]
)
def test_a_damaged_object_is_refused(damage) -> None:
    with pytest.raises(HeadraceError, match="is damaged") as raised:
        members(damage(composed({"a": b"first"})), "x")
    assert raised.value.code is Code.CORRUPT


def test_a_flip_of_any_byte_of_an_object_is_found() -> None:
    whole = composed({"a": b"first", "b": b"second"})
    for at in range(len(whole)):
        with pytest.raises(HeadraceError, match="is damaged"):
            members(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], "x")


def test_an_object_without_a_checksum_of_a_former_version_is_read() -> None:
    index = b'{"a": 5}'
    former = len(index).to_bytes(8) + index + b"first"
    assert {name: bytes(body) for name, body in members(former, "x").items()} == {"a": b"first"}
