"""Notes of a load: kept one by one beside its progress, in the transaction of an append."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.storage.ledger import LoadProgress

if TYPE_CHECKING:
    from headrace.storage.ledger import Ledger, NewObject


def test_notes_are_replaced_one_by_one_and_belong_to_their_source(
    ledger: Ledger, orders: NewObject
) -> None:
    def land(source: str, **notes: object) -> None:
        load = LoadProgress(source, {"at": 1}, notes=notes)
        ledger.log.append(orders.relation, None, load=load)

    land("dir|/In", a=[1, 2], b={"line": 7})
    land("dir|/in", a=0)
    land("dir|/In%", a="other")
    land("dir|/In", b=None, c=True)
    assert ledger.loads.notes(orders.relation, "dir|/In") == {"a": [1, 2], "b": None, "c": True}
    assert ledger.loads.notes(orders.relation, "dir|/in") == {"a": 0}
    assert ledger.loads.notes(orders.relation, "dir|/I") == {}
    assert [load.source for load in ledger.loads.unfinished(orders.relation)] == ["dir|/In", "dir|/In%", "dir|/in"]  # fmt: skip
