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
    assert "it would have 3 columns instead of 2" in deployer.err
    assert "a.sql:4:1" in deployer.err
    assert "b.sql:2:1" in deployer.err
    wider = "CREATE MATERIALIZED VIEW spent AS SELECT person, sum(amount) AS spent, count(*) AS n"
    deployer.write(a=f"{wider} FROM orders GROUP BY person;", b=BASE)
    assert deployer.plan() == 1, "the view over it is kept"
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
