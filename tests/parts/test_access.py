"""Access tokens: what is kept, who is known by them, and what they may do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from headrace.lifecycle.states.access import DATABASE, OWNER, Access
from headrace.planning.sql import Role
from headrace.storage.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger.open(tmp_path / "ledger.db")
    made.acquire()
    yield made
    made.close()


def test_of_a_secret_only_its_hash_is_kept(ledger: Ledger, tmp_path: Path):
    _, secret = Access(ledger).create("ann")
    assert len(secret) >= 43 + len("hrt_")
    kept = json.dumps(ledger.settings.get("tokens"))
    assert secret not in kept
    assert all(
        secret.encode() not in path.read_bytes() for path in tmp_path.iterdir() if path.is_file()
    )
    assert Access(ledger).create("bob")[1] != secret


def test_a_token_is_known_by_its_secret_also_when_opened_again(ledger: Ledger):
    access = Access(ledger)
    assert not access.is_required
    _, secret = access.create("ann")
    again = Access(ledger)
    assert again.is_required
    found = again.principal(secret)
    assert found is not None
    assert found.name == "ann"
    for wrong in ("", secret[:-1], secret + "x", "ann", secret.upper()):
        assert again.principal(wrong) is None


def test_a_role_includes_those_before_it_where_it_was_granted(ledger: Ledger):
    access = Access(ledger)
    made, _ = access.create("ann")
    ann = access.holder(made)
    assert not ann.may(Role.READER, "gold")
    access.grant("ann", Role.WRITER, "gold")
    assert ann.may(Role.READER, "gold")
    assert ann.may(Role.WRITER, "gold")
    assert not ann.may(Role.OWNER, "gold")
    assert not ann.may(Role.READER, "silver")
    assert not ann.may(Role.READER)
    access.grant("ann", Role.READER, DATABASE)
    assert ann.may(Role.READER, "silver")
    assert not ann.may(Role.WRITER, "silver")
    access.revoke("ann", Role.WRITER, "gold")
    assert ann.may(Role.READER, "gold")
    assert not ann.may(Role.WRITER, "gold")
    assert access.find("ann").roles == {DATABASE: {Role.READER}}


def test_what_is_seen_follows_from_the_schema(ledger: Ledger):
    access = Access(ledger)
    made, _ = access.create("ann")
    access.grant("ann", Role.READER, "default")
    ann = access.holder(made)
    names = {"t": True, "gold.t": False, "__log_1": False, "information_schema.tables": True}
    assert {name: ann.sees(name) for name in names} == names
    assert all(map(OWNER.sees, names))


def test_a_token_ends_when_it_is_dropped_or_expires(ledger: Ledger):
    now = [100.0]
    access = Access(ledger, lambda: now[0])
    made, secret = access.create("ann", valid_for=10)
    access.grant("ann", Role.OWNER, DATABASE)
    ann = access.holder(made)
    assert ann.may(Role.OWNER)
    now[0] = 110.0
    assert access.principal(secret) is None
    assert not ann.may(Role.READER)
    assert not ann.is_known
    assert access.is_required  # nobody may come in only because the last token has expired
    access.drop("ann")
    access.create("ann")
    access.grant("ann", Role.OWNER, DATABASE)
    assert not ann.is_known  # the next token of its name is another


def test_roles_in_a_schema_end_with_it(ledger: Ledger):
    access = Access(ledger)
    access.create("ann")
    access.grant("ann", Role.OWNER, "gold")
    access.grant("ann", Role.READER, "silver")
    access.forget_schema("gold")
    assert access.find("ann").roles == {"silver": {Role.READER}}


def test_what_is_not_there_is_refused(ledger: Ledger):
    access = Access(ledger)
    access.create("ann")
    with pytest.raises(HeadraceError) as taken:
        access.create("ann")
    assert taken.value.code is Code.CONFLICT
    with pytest.raises(HeadraceError, match="was not granted role reader in the database"):
        access.revoke("ann", Role.READER, DATABASE)
    with pytest.raises(HeadraceError) as missing:
        access.grant("anne", Role.READER, DATABASE)
    assert missing.value.hint == 'Did you mean "ann"?'
