"""The most viewed titles of the last five minutes: `make example-trending`.

The clock is the example's own. It prints the top titles in all countries and in each, and the hours
watched in seven days; then the same six minutes later, after one more view: titles have left:

    alpha  3
    beta  2
    NO  alpha  1
    NO  beta  1
    SE  alpha  2
    SE  beta  1
    alpha  1.5
    beta  1.0
    beta  1
    SE  beta  1
    alpha  1.5
    beta  1.5
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from printed import main, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace import Database

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
STATEMENTS = """
CREATE STREAM views (title STRING, country STRING, hours DOUBLE, at TIMESTAMP);
CREATE MATERIALIZED VIEW recent AS
SELECT title, country FROM views WHERE at > now() - INTERVAL '5' MINUTE;
CREATE MATERIALIZED VIEW trending AS
SELECT title, count(*) AS views FROM recent GROUP BY title ORDER BY views DESC, title LIMIT 10;
CREATE MATERIALIZED VIEW trending_by_country AS
SELECT country, title, views FROM (
    SELECT country, title, count(*) AS views,
        row_number() OVER (PARTITION BY country ORDER BY count(*) DESC, title) AS place
    FROM recent GROUP BY country, title)
WHERE place <= 10;
CREATE MATERIALIZED VIEW engagement AS
SELECT title, sum(CAST(hours AS DECIMAL(9,1))) AS hours FROM views
WHERE at > now() - INTERVAL '7' DAY GROUP BY title
"""


def example(connect: Callable[..., Database]) -> None:
    """View titles, and let time pass."""
    time = START
    with connect(clock=lambda: (time - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND) as db:
        db.sql(STATEMENTS)
        seen = [("alpha", "SE"), ("alpha", "NO"), ("beta", "NO"), ("alpha", "SE"), ("beta", "SE")]
        db.insert("views", [(title, country, 0.5, time) for title, country in seen])
        _show(db)
        time += timedelta(minutes=6)
        db.insert("views", [("beta", "SE", 0.5, time)])
        _show(db)


def _show(db: Database) -> None:
    show(db.sql("SELECT * FROM trending"))
    show(db.sql("SELECT * FROM trending_by_country"))
    show(db.sql("SELECT * FROM engagement"))


if __name__ == "__main__":
    main(example)
