"""The page of PayLedger in a real browser: balances that follow a policy, and what is dirty."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from served import served
from server.browser import browser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "payledger"

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_the_page_shows_balances_a_change_before_and_after_it_and_what_is_replayed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import balances
    import events

    with headrace.connect(
        tmp_path / "db",
        spark=spark,
        partitions=2,
        continuous=True,
        functions=[balances.merchant_balance_of],
    ) as db:
        db.sql((EXAMPLE / "statements.sql").read_text(encoding="utf-8"))
        db.insert("merchants", events.merchants(20))
        db.insert("reserve_policy", events.policies())
        db.insert("payments", events.payments(400, 20))
        db.flush()
        with (
            served(db, pages=EXAMPLE / "page") as running,
            browser(running.server.url) as page,
        ):
            page.open("pages/")
            page.wait_for("travel EUR", "#balances")
            page.wait_for("merchant_balance", "#freshness")
            page.run("document.querySelector('#segment').value = 'travel'")
            page.run("document.querySelector('#doubted').value = 'travel'")
            page.run("document.querySelector('#try').click()")
            page.wait_for("deltas", "#explained")
            assert "version 2" not in page.text("#balances")
            page.run("document.querySelector('#change button').click()")
            page.wait_for("1 row inserted", "#done")
            page.wait_for("version 2", "#balances")
            page.run("document.querySelector('#doubt button').click()")
            page.wait_for("a slice of view merchant_balance is dirty", "#done")
            page.wait(lambda: not page.text("#dirty"), "a repaired slice")
            page.run("document.querySelector('#lookup button').click()")
            page.wait_for("available balance", "#found")
            assert page.complaints() == []
            page.driver.get("about:blank")
        assert {verdict for *_, verdict in db.sql("VERIFY").fetchall()} == {"equal to batch"}
