"""``headrace plan`` and ``headrace apply`` bring a database to what files define."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from headrace.cli.command import main
from pages import LeftOpen
from served import served

if TYPE_CHECKING:
    from pathlib import Path

    import headrace

BASE = """
CREATE TABLE people (id INT PRIMARY KEY, name STRING);
CREATE STREAM orders (id INT, person INT, amount DECIMAL(10,2));
"""
VIEWS = """
CREATE MATERIALIZED VIEW named AS
  SELECT p.name, s.spent FROM spent s JOIN people p ON p.id = s.person;
CREATE MATERIALIZED VIEW spent AS
  SELECT person, sum(amount) AS spent FROM orders GROUP BY person;
CREATE VIEW everyone AS SELECT name FROM people;
CREATE INDEX by_name ON people (name);
"""


@dataclass
class Deployer:
    """Runs the commands on files of a directory, against an open database."""

    db: Any
    directory: Path
    capture: pytest.CaptureFixture[str]
    out: str = ""
    err: str = ""

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.directory / f"{name}.sql").write_text(text, encoding="utf-8")

    def __call__(self, *words: str) -> int:
        self.capture.readouterr()
        code = main(["--data", str(self.directory), *words], lambda *_, **__: LeftOpen(self.db))
        self.out, self.err = self.capture.readouterr()
        return code

    def plan(self, *options: str) -> int:
        return self("plan", str(self.directory), *options)

    def apply(self, *options: str) -> int:
        return self("apply", str(self.directory), *options)

    def changes(self, *options: str) -> list[str]:
        """Return the changes of a plan in their order."""
        self.plan("--json", *options)
        found = json.loads(self.out)
        return [f"{each['action']} {each['kind']} {each['name']}" for each in found["changes"]]


@pytest.fixture
def deployer(db: headrace.Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Deployer:
    directory = tmp_path / "views"
    directory.mkdir()
    return Deployer(db, directory, capsys)


def test_columns_follow_their_files_and_rows_stay(deployer: Deployer) -> None:
    """Columns of a stream and a table are dropped, renamed, widened and added."""
    deployer.write(
        inputs="""
CREATE TABLE people (id INT PRIMARY KEY, name STRING, age SMALLINT, note STRING);
CREATE STREAM orders (id INT, person INT, amount INT, old STRING);
""",
        views="""
CREATE MATERIALIZED VIEW named AS SELECT p.name, o.amount FROM orders o JOIN people p ON p.id = o.person;
CREATE MATERIALIZED VIEW olds AS SELECT old, count(*) AS n FROM orders GROUP BY old;
""",
    )  # fmt: skip
    assert deployer.apply() == 0, deployer.err
    db = deployer.db
    db.sql(
        "INSERT INTO people VALUES (1, 'ann', 3, 'x'); INSERT INTO orders VALUES (1, 1, 10, 'o')"
    )

    deployer.write(
        inputs="""
CREATE TABLE people (
  id INT PRIMARY KEY,
  first_name STRING, -- was name
  age INT,
  born DATE
);
CREATE STREAM orders (id INT, person INT, amount INT);
""",
        views="""
CREATE MATERIALIZED VIEW named AS SELECT p.first_name AS name, o.amount FROM orders o JOIN people p ON p.id = o.person;
CREATE MATERIALIZED VIEW olds AS SELECT person, count(*) AS n FROM orders GROUP BY person;
""",
    )  # fmt: skip
    assert deployer.plan() == 2, deployer.err
    for each in (
        "ALTER COLUMN `age` TYPE INT, RENAME COLUMN `name` TO `first_name`\n",
        "DROP COLUMN `note`\n",
        "named: none: unchanged; its query has the new name",
        "alter    stream orders (dropped columns): columns",
    ):
        assert each in deployer.out
    assert deployer.apply() == 0, deployer.err
    assert deployer.plan() == 0, deployer.out
    db.sql("INSERT INTO people VALUES (2, 'bob', 70000, DATE '2000-01-01')")
    db.sql("INSERT INTO orders VALUES (2, 2, 20)")
    assert sorted(db.sql("SELECT id, first_name, age FROM people").fetchall()) == [
        (1, "ann", 3), (2, "bob", 70000)
    ]  # fmt: skip
    assert sorted(db.sql("SELECT * FROM named").fetchall()) == [("ann", 10), ("bob", 20)]
    assert sorted(db.sql("SELECT * FROM olds").fetchall()) == [(1, 1), (2, 1)]

    # What cannot be done is said before anything is changed.
    deployer.write(
        inputs="""
CREATE TABLE people (id INT PRIMARY KEY, age INT, born DATE);
CREATE STREAM orders (id INT, person INT, amount STRING);
"""
    )
    before = db.parts.ledger.head.epoch
    assert deployer.apply() == 1
    assert "people: none" not in deployer.out
    assert "table people cannot be changed: named: " in deployer.err
    assert 'column "amount" of type INT cannot become STRING' in deployer.err
    assert db.parts.ledger.head.epoch == before


def test_a_database_follows_its_files(deployer: Deployer) -> None:
    """A renamed table, a new column, a changed query and a view that is gone."""
    deployer.write(a=VIEWS.replace("CREATE INDEX by_name ON people (name);", ""), b=BASE)
    assert deployer.apply() == 0, deployer.err
    assert deployer.apply() == 0, deployer.err
    assert "nothing to change, 5 unchanged" in deployer.out
    db = deployer.db
    db.sql("INSERT INTO people VALUES (1, 'ann'); INSERT INTO orders VALUES (1, 1, 10.00);")

    deployer.write(
        a="""-- Renamed: people.
CREATE MATERIALIZED VIEW named AS SELECT c.name, s.spent FROM spent s JOIN customers c ON c.id = s.person;
CREATE MATERIALIZED VIEW spent AS SELECT person, sum(-amount) AS spent FROM orders GROUP BY person;
""",
        b="""
CREATE TABLE customers (id INT PRIMARY KEY, name STRING);
CREATE STREAM orders (id INT, person INT, amount DECIMAL(10,2), at TIMESTAMP);
""",
    )  # fmt: skip
    assert deployer.plan("--prune") == 2
    lines = [line.partition("  (")[0] for line in deployer.out.splitlines() if line[0] != " "]
    assert lines[:-1] == [
        "create   table customers",
        "alter    stream orders: columns",
        "replace  materialized view spent: query",
        "replace  materialized view named: query",
        "drop     view everyone",
        "drop     table people",
    ]
    assert (
        "named: deltas: follows the difference of what it reads, in the same epoch" in deployer.out
    )
    assert "checked once what it reads exists" in deployer.out
    assert "people: drop: its rows are deleted" in deployer.out
    assert deployer.apply("--prune") == 0, deployer.err
    assert deployer.plan("--prune") == 0, deployer.out
    assert [name for _, name in db.relations()] == ["orders", "spent", "named", "customers"]
    db.sql("INSERT INTO customers VALUES (1, 'anna')")
    assert db.sql("SELECT name, CAST(spent AS STRING) FROM named").fetchall() == [
        ("anna", "-10.00")
    ]
    assert db.columns("orders")[-1] == ("at", "timestamp")


@pytest.mark.long
def test_views_are_swapped_after_a_look(deployer: Deployer, monkeypatch: Any) -> None:
    deployer.write(a=VIEWS, b=BASE)
    assert deployer.apply() == 0, deployer.err
    db = deployer.db
    db.sql("INSERT INTO people VALUES (1, 'ann'); INSERT INTO orders VALUES (1, 1, 10.00);")
    deployer.write(a=VIEWS.replace("sum(amount)", "sum(-amount)"))
    monkeypatch.setattr("headrace.cli.deploying.click.confirm", lambda *_, **__: False)
    assert deployer.apply("--review") == 1
    assert "changed | spent" in deployer.out
    assert "0 of 1 change made; not made:\n  replace materialized view spent" in deployer.err
    (row,) = db.sql("SELECT spent FROM named").fetchall()
    assert str(row[0]) == "10.00"
    assert deployer.apply("--review", "--yes") == 0, deployer.err
    (row,) = db.sql("SELECT spent FROM named").fetchall()
    assert str(row[0]) == "-10.00"
    assert deployer.plan() == 0, deployer.out


LAYERS = (
    (
        "CREATE STREAM orders (id INT, customer STRING, region STRING, amount BIGINT);"
        "CREATE TABLE customers (customer STRING PRIMARY KEY, tier STRING);"
    ),
    (
        "CREATE MATERIALIZED VIEW b{0} AS SELECT region, customer, count(*) AS n, sum(amount) AS total"
        " FROM orders WHERE id % {0} = 0 GROUP BY region, customer;"
    ),
    (
        "CREATE MATERIALIZED VIEW s{0} AS SELECT b.region, c.tier, sum(b.total) AS total, sum(b.n) AS n"
        " FROM b{0} b JOIN customers c ON c.customer = b.customer GROUP BY b.region, c.tier;"
    ),
    (
        "CREATE MATERIALIZED VIEW g{0} AS SELECT tier, sum(total) AS total, sum(n) AS n FROM s{0}"
        " GROUP BY tier;"
    ),
    (
        "CREATE VIEW report AS SELECT a.tier, a.total + b.total AS both FROM g1 a JOIN g2 b"
        " ON a.tier = b.tier; CREATE MATERIALIZED VIEW summary AS SELECT tier, both FROM report;"
        "CREATE MATERIALIZED VIEW obsolete AS SELECT tier, n FROM g4;"
    ),
)
"""A repository of views at four levels; the three in the middle are made for 1, 2, ..."""


@pytest.mark.long
def test_many_changes_of_a_graph_of_views_are_one_swap(
    deployer: Deployer, monkeypatch: Any
) -> None:
    """At once: a new column that is used above, one that goes, a query, a name, and a drop."""
    inputs, *made, top = LAYERS
    layers = [[text.format(i) for i in range(1, 7)] for text in made]

    def write() -> None:
        bronze, silver, gold = map("\n".join, layers)
        deployer.write(inputs=inputs, bronze=bronze, silver=silver, gold=gold, top=top)

    write()
    assert deployer.apply() == 0, deployer.err
    db = deployer.db
    db.sql("INSERT INTO orders VALUES (1, 'a', 'eu', 5), (6, 'b', 'eu', 7), (60, 'b', 'us', 2)")
    db.sql("INSERT INTO customers VALUES ('a', 'gold'), ('b', 'silver')")
    bronze, silver, gold = layers
    bronze[0] = bronze[0].replace("AS total", "AS total, max(amount) AS most")
    silver[0] = silver[0].replace("AS n FROM", "AS n, max(b.most) AS most FROM")
    bronze[1] = bronze[1].replace("= 0", "= 0 AND amount > 2")
    bronze[2] = bronze[2].replace("count(*) AS n, ", "")
    silver[2] = silver[2].replace(", sum(b.n) AS n", "")
    gold[2] = gold[2].replace(", sum(n) AS n", "")
    bronze[3] = bronze[3].replace("VIEW b4", "VIEW bronze4")
    silver[3] = silver[3].replace("b4 b", "bronze4 b")
    top = top.partition("CREATE MATERIALIZED VIEW obsolete")[0]
    write()
    monkeypatch.setattr("headrace.cli.deploying.verdict", lambda *_: "differs: 1 row")
    before = db.parts.reader.catalog
    assert deployer.apply("--prune", "--validate") == 1
    assert "b1 is not what Spark batch computes: differs: 1 row" in deployer.err
    left = {each.name for each in db.parts.reader.catalog} - {"bronze4"}
    assert left == {each.name for each in before}, "no candidate is left, and nothing is swapped"
    monkeypatch.undo()
    assert deployer.apply("--prune", "--validate") == 0, deployer.err
    assert "materialized view b1: new column most, 0 added, 0 gone, 0 changed" in deployer.out
    assert "materialized view b2: 0 added, 1 gone, 0 changed" in deployer.out
    assert "swapped views b1, b2, b3, s1, s3, s4, g3: 1 row changed" in deployer.out
    assert {verdict for *_, verdict in db.sql("VERIFY").fetchall()} == {"equal to batch"}
    assert deployer.apply("--prune", "--validate") == 0, deployer.err
    assert "nothing to change, 22 unchanged" in deployer.out


@pytest.mark.long
def test_what_cannot_be_changed_is_said_before_anything_is(deployer: Deployer) -> None:
    deployer.write(a=VIEWS, b=BASE)
    assert deployer.apply() == 0, deployer.err
    deployer.write(
        a=VIEWS.replace("SELECT person,", "SELECT person, count(*) AS n,"),
        b=BASE.replace("name STRING", "name STRING NOT NULL"),
    )
    assert deployer.plan() == 1
    assert 'table "people" cannot be changed to its definition' in deployer.err
    assert "b.sql:2:1" in deployer.err
    other = "CREATE MATERIALIZED VIEW spent AS SELECT person, count(*) AS n"
    deployer.write(a=f"{other} FROM orders GROUP BY person;", b=BASE)
    assert deployer.plan() == 1, "the view over it is kept, and uses a column that goes"
    assert "spent cannot be changed: named: column" in deployer.err
    assert "a.sql:1:1" in deployer.err
    assert deployer.apply("--prune") == 0, deployer.err
    assert deployer.plan("--prune") == 0, "its columns changed once nothing read it"
    assert deployer("plan", "--nothing") == 1


@pytest.mark.long
def test_a_run_that_failed_is_continued(deployer: Deployer, monkeypatch: Any) -> None:
    monkeypatch.setenv("PG", "secret")
    deployer.write(
        a="CREATE VIEW v AS SELECT nam FROM t;",
        b="CREATE TABLE t (name STRING); CREATE SECRET pg FROM ENV 'PG';",
    )
    assert deployer.plan() == 2, "what v reads does not exist yet"
    assert deployer.apply() == 1
    assert "2 of 3 changes made; not made:\n  create view v" in deployer.err
    assert "a.sql:1" in deployer.err
    deployer.write(a="CREATE VIEW v AS SELECT name FROM t;")
    assert deployer.changes() == ["create view v"]
    assert deployer.apply() == 0

    deployer.write(c="CREATE VIEW wrong AS\n  SELECT nam FROM t;", d="CREATE TABLE new (k INT);")
    assert deployer.apply() == 1
    assert "c.sql:2:10" in deployer.err
    assert "nothing was changed" in deployer.err
    assert deployer.db.parts.reader.catalog.find("new") is None


@pytest.mark.long
def test_a_server_is_deployed_to(deployer: Deployer) -> None:
    deployer.write(
        a=VIEWS,
        b=BASE,
        c="CREATE FUNCTION twice(x INT) RETURNS INT RETURN x * 2;"
        " CREATE SINK out INTO copy FROM spent; CREATE SCHEMA gold;"
        " CREATE TABLE copy (person INT PRIMARY KEY, spent DECIMAL(20,2));"
        " CREATE VIEW gold.v AS SELECT twice(id) AS id FROM people;"
        " INSERT INTO people VALUES (1, 'ann');",
    )
    with served(deployer.db) as running:
        url = ["--url", running.server.url]
        path = str(deployer.directory)
        assert main([*url, "apply", path]) == 0, deployer.capture.readouterr().err
        deployer.capture.readouterr()
        assert main([*url, "plan", path]) == 0
        out = deployer.capture.readouterr().out
    assert "this statement defines nothing, and is left out" in out
    assert "nothing to change, 11 unchanged" in out
    deployer.write(c="")
    assert deployer.apply("--prune") == 0, deployer.err
    assert deployer.plan("--prune") == 0, deployer.out
    assert {name for _, name in deployer.db.relations()} == {
        "people", "orders", "spent", "named", "everyone",
    }  # fmt: skip
