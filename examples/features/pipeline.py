"""A feature table as of any event time, for a model to learn from: `make example-features`.

For each user and time that is asked for: the purchases of the seven days before, and the tier that
was valid then. Nothing from after that time is used, however late it became known. It prints the
features, then the same after a purchase and a tier became known late:

    ann  2026-03-05 00:00:00+00:00  2  30  basic
    ann  2026-03-12 00:00:00+00:00  1  5  gold
    ann  2026-03-05 00:00:00+00:00  3  37  silver
    ann  2026-03-12 00:00:00+00:00  1  5  gold
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from printed import main, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace import Database

STATEMENTS = """
CREATE STREAM purchases (user STRING, amount INT, at TIMESTAMP);
CREATE TABLE tiers (user STRING, since TIMESTAMP, tier STRING, PRIMARY KEY (user))
  WITH (effective_from = 'since');
CREATE TABLE asked (user STRING, at TIMESTAMP, PRIMARY KEY (user, at));
CREATE MATERIALIZED VIEW week AS
SELECT a.user, a.at, count(p.amount) AS purchases, coalesce(sum(p.amount), 0) AS spent
FROM asked a LEFT JOIN purchases p
  ON p.user = a.user AND p.at < a.at AND p.at >= a.at - INTERVAL '7' DAY
GROUP BY a.user, a.at;
CREATE MATERIALIZED VIEW features AS
SELECT w.user, w.at, w.purchases, w.spent, t.tier
FROM week w LEFT JOIN tiers FOR SYSTEM_TIME AS OF w.at AS t ON t.user = w.user;
INSERT INTO tiers VALUES ('ann', TIMESTAMP '2026-03-01 00:00:00', 'basic'),
    ('ann', TIMESTAMP '2026-03-06 00:00:00', 'gold');
INSERT INTO purchases VALUES ('ann', 10, TIMESTAMP '2026-03-01 09:00:00'),
    ('ann', 20, TIMESTAMP '2026-03-04 09:00:00'), ('ann', 5, TIMESTAMP '2026-03-10 09:00:00');
INSERT INTO asked VALUES ('ann', TIMESTAMP '2026-03-05 00:00:00'),
    ('ann', TIMESTAMP '2026-03-12 00:00:00')
"""


def example(connect: Callable[..., Database]) -> None:
    """Read features at two times, and again once the past has changed."""
    with connect() as db:
        db.sql(STATEMENTS)
        show(db.sql("SELECT * FROM features"))
        db.sql("INSERT INTO purchases VALUES ('ann', 7, TIMESTAMP '2026-03-04 23:00:00')")
        db.sql("INSERT INTO tiers VALUES ('ann', TIMESTAMP '2026-03-03 00:00:00', 'silver')")
        show(db.sql("SELECT * FROM features"))


if __name__ == "__main__":
    main(example)
