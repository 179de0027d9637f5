"""The work of an epoch is proportional to its changes, not to the stored rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from length import choose

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs/sql/queries.md"
COSTS = dict(
    re.findall(
        r"^\| `(SELECT .*?)` \| (few|the rows after it|its key) \|$", PAGE.read_text(), re.MULTILINE
    )
)
"""The queries that the documentation has, and what it says that a change of each costs."""

SHORT = ("ASOF", "avg(d) FROM", "session_window", "median", "lag(v)", "RANGE", " rank()", "listagg")
SIZES = choose((200, 2_000), (1_000, 100_000))
FEW = 300
"""The most rows that are read and computed again where that depends on no key, at both sizes."""


class Histories:
    """A database with two keys, one with many more rows, and views over them."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.db = headrace.connect(directory, spark=spark, continuous=False)
        self.db.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, o INT, v INT, d DOUBLE)")
        for k, rows in enumerate(SIZES):
            columns = f"CAST(id * 2 + {k} AS INT), {k}, CAST(id * 10 AS INT), CAST(id * 7919 % 100003 AS INT)"
            self.db.sql(f"INSERT INTO t SELECT {columns}, id / 8.0D + 0.1D FROM range({rows})")
        wanted = [q for q in COSTS if any(part in q for part in choose(SHORT, ("",)))]
        self.messages = {q: self._created(f"v{i}", q) for i, q in enumerate(wanted)}
        self.views = dict(zip(wanted, (f"v{i}" for i in range(len(wanted))), strict=True))

    def _created(self, name: str, query: str) -> str:
        columns = ", ".join(
            f"c{i}"
            for i in range(len(self.db.sql(f"SELECT * FROM ({query}) LIMIT 0").to_arrow().schema))
        )
        return self.db.sql(f"CREATE MATERIALIZED VIEW {name} ({columns}) AS {query}").message

    def costs(self, text: str) -> dict[str, int]:
        """Return how many rows each view reads or computes for one change of the table."""
        loop = self.db.parts.loop
        before = dict(loop.work._by_operator)
        self.db.sql(text)
        loop.advance()
        catalog = self.db.parts.reader.catalog
        builds = {str(catalog.resolve(view).build): q for q, view in self.views.items()}
        found = dict.fromkeys(self.views, 0)
        for name, now in loop.work._by_operator.items():
            query = builds.get(name.partition("/")[0])
            if query is not None:
                then = before.get(name)
                read, out = (then.rows_read, then.rows_out) if then else (0, 0)
                found[query] += now.rows_read - read + now.rows_out - out
        return found


@pytest.fixture(scope="module")
def histories(spark, tmp_path_factory):
    made = Histories(spark, tmp_path_factory.mktemp("histories"))
    yield made
    made.db.close()


@pytest.mark.parametrize("place", ["end", "middle"])
def test_a_change_costs_what_the_documentation_says(histories, place):
    for change in ("INSERT", "UPDATE", "DELETE"):
        found = []
        for k, rows in enumerate(SIZES):
            at, id_ = (rows, rows // 2)[place == "middle"] * 10 - 5, 10**9 + k
            text = {
                "INSERT": f"INSERT INTO t VALUES ({id_}, {k}, {at}, 77, 1.5D)",
                "UPDATE": f"UPDATE t SET v = 78, d = 2.5D, o = o + 1 WHERE id = {id_}",
                "DELETE": f"DELETE FROM t WHERE id = {id_}",
            }
            found.append(histories.costs(text[change]))
        for query, said in COSTS.items():
            if query not in histories.views:
                continue
            few, many = (costs[query] for costs in found)
            if said == "few" or (said == "the rows after it" and place == "end"):
                assert max(few, many) <= FEW, (query, change)
                assert few, (query, change)
            elif said == "the rows after it":
                assert SIZES[1] // 2 <= many <= 3 * SIZES[1] + FEW, (query, change)
            else:
                assert SIZES[0] <= few <= 6 * SIZES[0] + FEW, (query, change)
                assert SIZES[1] <= many <= 6 * SIZES[1] + FEW, (query, change)


def test_what_costs_more_is_said_when_a_view_is_made(histories):
    for query, message in histories.messages.items():
        assert ("; a change recomputes " in message) == (COSTS[query] != "few"), message


@pytest.mark.long
def test_views_over_long_histories_equal_batch(histories):
    verdicts = [row[3] for row in histories.db.sql("VERIFY").fetchall()]
    assert len(verdicts) == len(histories.views)
    assert all(each.startswith("equal to batch") for each in verdicts)


@pytest.mark.long
def test_one_change_over_many_rows_touches_a_handful(oracle):
    run = oracle()
    run.table("t", "id INT, g INT, x INT", key="id")
    run.table("names", "g INT, name STRING", key="g")
    run.insert("names", [(g, f"name {g}") for g in range(2000)])
    run.insert("t", [(i, i % 2000, i) for i in range(10_000)])
    run.view("groups", "SELECT g, count(*) AS n, sum(x) AS s FROM t GROUP BY g")
    run.view("named", "SELECT names.name, groups.s FROM groups JOIN names ON groups.g = names.g")
    run.view("wide", "SELECT t.id, names.name FROM t JOIN names ON t.g = names.g")
    for write in (
        lambda: run.insert("t", [(10_001, 5, 1)]),
        lambda: run.update("t", {"x": "x + 1"}, "id = 77"),
        lambda: run.delete("t", "id = 78"),
    ):
        write()
        run.epoch()
        counters = run.db.parts.ledger.epochs.newest(1)[0].counters
        assert counters["changes"] == 1
        assert counters["rows_in"] <= 16
        assert counters["rows_read"] <= 16
        assert counters["rows_out"] <= 16
    run.insert("names", [(3, "five rows of t")])
    run.epoch()
    counters = run.db.parts.ledger.epochs.newest(1)[0].counters
    assert counters["rows_out"] <= 30
    run.finish()
