"""``headrace token create``: the first token, of a database that nobody has open."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from headrace.lifecycle.states.access import DATABASE, Access
from headrace.planning.sql import Role
from headrace.storage.ledger import DirectoryLock, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Command


@contextmanager
def tokens(directory: Path) -> Iterator[Access]:
    ledger = Ledger.open(directory / "ledger.db")
    yield Access(ledger)
    ledger.close()


def test_it_prints_a_secret_that_is_known_later(command: Command, tmp_path: Path):
    command.connect = lambda *_: pytest.fail("Spark was started")
    place = tmp_path / "data"
    assert command("--data", str(place), "token", "create", "Admin", "--role", "owner") == 0
    secret = command.out.strip()
    assert secret.startswith("hrt_")
    with tokens(place) as access:
        found = access.principal(secret)
        assert found is not None
        assert found.name == "admin"
        assert access.find("admin").roles == {DATABASE: {Role.OWNER}}
    assert command("--data", str(place), "token", "create", "r", "--schema", "Gold") == 0
    with tokens(place) as access:
        assert access.find("r").roles == {"gold": {Role.READER}}
    assert command("--data", str(place), "token", "create", "admin") == 1
    assert 'error[conflict]: token "admin" exists already' in command.err


def test_a_database_that_is_open_is_left_alone(command: Command, tmp_path: Path):
    held = DirectoryLock(tmp_path)
    try:
        assert command("--data", str(tmp_path), "token", "create", "a") == 1
        assert "error[conflict]" in command.err
    finally:
        held.release()


@pytest.mark.parametrize("name", ["a.b", "__x", ""])
def test_a_name_that_is_none_is_refused(command: Command, tmp_path: Path, name: str):
    assert command("--data", str(tmp_path / "data"), "token", "create", name) == 1
    assert "error[invalid]" in command.err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--host-name", "a b"], "not the name of a host"),
        (["--plain-http"], "needs a name"),
        (["--plain-http", "--host-name", "db"], "without access tokens"),
        (["--host-name", "db"], "without TLS"),
    ],
)
def test_others_are_served_only_with_what_keeps_them_apart(
    command: Command, options: list[str], wrong: str
):
    assert command("serve", "--listen", "0.0.0.0:0", *options) == 1
    assert wrong in command.err
