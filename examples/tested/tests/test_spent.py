"""The same views, tested in Python: pytest examples/tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing import TestDatabase


@pytest.fixture
def db(headrace_db: TestDatabase) -> TestDatabase:
    """The views of the project in an empty database, in which nothing comes from Kafka."""
    return headrace_db.load("../views", at="2026-03-01 12:00:00")


def test_payments_of_a_customer_add_up(db: TestDatabase) -> None:
    """Rows can be inserted by SQL."""
    db.sql("INSERT INTO payments VALUES ('p-1', 1, 10.00, TIMESTAMP '2026-03-01 11:30:00')")
    db.sql("INSERT INTO payments VALUES ('p-2', 1, 5.50, TIMESTAMP '2026-03-01 12:00:00')")
    db.expect("spent", "customer_id | spent\n1 | 15.50")


def test_a_payment_that_is_too_late_is_rejected(db: TestDatabase) -> None:
    """Rows can be given as text; what a stream rejects is kept with the reason."""
    db.insert(
        "payments",
        """
        id  | customer_id | amount | paid_at
        p-1 |           1 |  10.00 | 2026-03-01 12:00:00
        p-2 |           1 |  40.00 | 2026-03-01 10:58:00
        """,
    )
    (reject,) = db.rejects("payments")
    assert reject["row"]["id"] == "p-2"
    db.expect("spent", [{"spent": 10}])


def test_a_customer_who_stops_paying_is_no_longer_active(db: TestDatabase) -> None:
    """Rows of a view leave it as time passes."""
    db.sql("INSERT INTO payments VALUES ('p-1', 1, 10.00, now())")
    db.expect("active", [{"customer_id": 1}])
    db.clock.advance("30 days")
    db.expect("active", [])
