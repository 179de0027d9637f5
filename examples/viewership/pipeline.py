"""Watched time, with late reports, and titles that are withdrawn: `make example-viewership`.

Reports that come up to 24 hours late are merged; later ones are rejects. It prints the times
watched, those after reports of 10 and of 30 hours ago, the reject, and what is left once a title is
withdrawn:

    ann  alpha  60
    bob  beta  30
    ann  alpha  75
    bob  beta  30
    1 reject
    bob  beta  30
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from printed import main, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace import Database

STATEMENTS = """
CREATE TABLE titles (title STRING, PRIMARY KEY (title));
CREATE STREAM plays (user STRING, title STRING, minutes INT, at TIMESTAMP, WATERMARK FOR at AS at)
  ALLOWED LATENESS INTERVAL '24' HOUR ON LATE REJECT;
CREATE MATERIALIZED VIEW watched AS
SELECT p.user, p.title, sum(p.minutes) AS minutes FROM plays p JOIN titles t ON t.title = p.title
GROUP BY p.user, p.title;
INSERT INTO titles VALUES ('alpha'), ('beta');
INSERT INTO plays VALUES ('ann', 'alpha', 60, TIMESTAMP '2026-03-02 12:00:00'),
    ('bob', 'beta', 30, TIMESTAMP '2026-03-02 12:00:00')
"""


def example(connect: Callable[..., Database]) -> None:
    """Report plays, late ones too, and withdraw a title."""
    with connect() as db:
        db.sql(STATEMENTS)
        show(db.sql("SELECT * FROM watched"))
        db.sql("INSERT INTO plays VALUES ('ann', 'alpha', 15, TIMESTAMP '2026-03-02 02:00:00')")
        db.sql("INSERT INTO plays VALUES ('bob', 'beta', 99, TIMESTAMP '2026-03-01 06:00:00')")
        show(db.sql("SELECT * FROM watched"))
        print(len(db.sql("SHOW REJECTS").fetchall()), "reject")
        db.sql("DELETE FROM titles WHERE title = 'alpha'")
        show(db.sql("SELECT * FROM watched"))


if __name__ == "__main__":
    main(example)
