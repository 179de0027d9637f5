"""What the ledger's parts promise is said without the database that they are in."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from headrace.storage.ledger.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.storage.ledger import Ledger


def test_no_public_method_of_the_ledger_or_its_parts_names_a_database_type(ledger: Ledger) -> None:
    parts = {name: part for name, part in vars(ledger).items() if not name.startswith("_")}
    assert {"epochs", "log", "spines", "builds", "dirty", "settings"} <= parts.keys()
    for part in (ledger, *parts.values()):
        methods = dict(public_signatures(type(part)))
        assert methods
        assert not {name: said for name, said in methods.items() if names_database(said)}
    assert names_database(dict(public_signatures(Transactions))["reading"])


def public_signatures(of: type) -> Iterator[tuple[str, str]]:
    for name, member in vars(of).items():
        function = member.fget if isinstance(member, property) else member
        function = function.__func__ if isinstance(function, classmethod) else function
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, str(inspect.signature(function))


def names_database(signature: str) -> bool:
    return any(word in signature for word in ("sa.", "sqlite", "Connection", "Transactions"))
