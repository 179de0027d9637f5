"""``headrace plan`` and ``headrace apply`` bring a database to what files define."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import headrace.tools.deploying.applying
from deploying.definition_sets import first_set, next_set
from headrace.interfaces.session.table import TABLE
from headrace.lifecycle.definitions.filling import FILL_RATE
from headrace.planning.sql import parse
from headrace.tools.cli.command import main
from length import choose
from pages import LeftOpen
from served import served

if TYPE_CHECKING:
    from pathlib import Path

    from servers.postgres import Postgres

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
        "alter    table people: columns (new first_name, born; gone name, note; age SMALLINT to INT)",
        "ALTER COLUMN `age` TYPE INT, RENAME COLUMN `name` TO `first_name`, DROP COLUMN `note`\n",
        "named: none: unchanged; its query has the new name",
        "alter    stream orders (dropped columns): columns (gone old)",
        "1 to replace, 2 to alter, 1 unchanged; 1 row to read",  # named only has another name in it
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
    assert 'column "first_name" of table "people" is used by view "named"' in deployer.err
    assert 'column "amount" of type INT cannot become STRING' in deployer.err
    assert db.parts.ledger.head.epoch == before


def test_a_database_follows_its_files(deployer: Deployer) -> None:
    """A renamed table, a new column, a changed query and a view that is gone."""
    deployer.write(a="CREATE VEIW x AS SELECT 1;\nCREATE TABLE y (k INTT);", b="SELEC 1; SELECT '")
    assert deployer.plan() == 1
    assert deployer.err.count("error[") == 3, "all that is wrong is shown"
    deployer.write(a=VIEWS.replace("CREATE INDEX by_name ON people (name);", ""), b=BASE)
    missing, opened = deployer.directory / "missing", list[Any]()

    def connect(target: Path, *_: Any, **__: Any) -> Any:
        opened.append(target)
        return LeftOpen(deployer.db)

    assert main(["--data", str(missing), "plan", str(deployer.directory)], connect) == 2
    assert not missing.exists(), "all is to be created, and planning does not create it"
    assert opened != [missing]
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
    db.parts.ledger.settings.set(FILL_RATE, 0.5)
    assert deployer.plan("--prune") == 2
    lines = [line.partition("  (")[0] for line in deployer.out.splitlines() if line[0] != " "]
    assert lines[0] == "replace  materialized view spent: query", "it reads most rows"
    assert lines[-1] == (
        "1 to create, 2 to replace, 1 to alter, 2 to drop, 0 unchanged; 1 row, about 2 s to read"
    )
    assert "people: drop: its rows are deleted" in deployer.out
    assert deployer.changes("--prune") == [
        "create table customers",
        "alter stream orders",
        "replace materialized view spent",
        "replace materialized view named",
        "drop view everyone",
        "drop table people",
    ]
    assert deployer.apply("--prune") == 0, deployer.err
    assert deployer.plan("--prune") == 0, deployer.out
    assert [name for _, name in db.relations()] == ["orders", "spent", "named", "customers"]
    db.sql("INSERT INTO customers VALUES (1, 'anna')")
    assert db.sql("SELECT name, CAST(spent AS STRING) FROM named").fetchall() == [
        ("anna", "-10.00")
    ]
    assert db.columns("orders")[-1] == ("at", "timestamp")


ONE_OF_EACH = """
CREATE SCHEMA gold;
CREATE SECRET pw FROM ENV 'PG'; CREATE SECRET written FROM FILE '{place}/written';
CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {port}, DATABASE '{name}', USER 'postgres',
  PASSWORD SECRET pw);
CREATE SOURCE src FROM POSTGRES CONNECTION pg (PUBLICATION 'p');
CREATE TABLE followed FROM SOURCE src (REFERENCE public.items);
CREATE SOURCE "Two" FROM POSTGRES CONNECTION pg (PUBLICATION 'p', SLOT '{name}') FOR TABLES (items AS others);
CREATE SOURCE every FROM POSTGRES CONNECTION pg (PUBLICATION 'q') FOR ALL TABLES;
CREATE STREAM s (id INT, who STRING COMMENT 'a', at TIMESTAMP, day AS CAST(at AS DATE),
  WATERMARK FOR at AS at - INTERVAL '5' SECOND) DEDUPLICATE ON id WITH (retention = '30 days');
CREATE STREAM made (id INT, n INT) WITH (connector = 'datagen', 'rows-per-second' = '1');
CREATE TABLE appended (id INT) APPEND ONLY; CREATE STREAM upserted (id INT PRIMARY KEY, n INT);
CREATE TABLE t (id INT PRIMARY KEY, name STRING DEFAULT 'none', `a b` ARRAY<INT>);
CREATE TABLE versions (id INT, rate INT, at TIMESTAMP, PRIMARY KEY (id)) WITH (effective_from = 'at');
CREATE STREAM derived AS SELECT id, at FROM s; CREATE TABLE ctas AS SELECT id FROM t;
CREATE MATERIALIZED VIEW gold.v (id, n, PRIMARY KEY (id)) WITH (on_error = 'stop') AS
  SELECT id, count(*) FROM s GROUP BY id;
CREATE MATERIALIZED VIEW hourly SCHEDULE EVERY 1 HOUR AS SELECT id FROM t;
CREATE DYNAMIC TABLE dynamic AS SELECT id FROM t; CREATE VIEW plain (a) AS SELECT twice(id) FROM t;
CREATE FUNCTION twice(x INT) RETURNS INT RETURN x * 2;
CREATE INDEX by_name ON t (name); CREATE INDEX ON followed (note); CREATE INDEX by_n ON gold.v (n);
CREATE TABLE copy (id INT PRIMARY KEY, n BIGINT); CREATE SINK into_copy INTO copy FROM gold.v;
CREATE SINK file FROM gold.v WITH (connector = 'file', path = 'v', format = 'json');
CREATE SINK asked WITH (connector = 'blackhole') AS SELECT id + 1 AS id FROM t;
CREATE SINK back FROM gold.v INTO CONNECTION pg (TABLE 'back') WITH (create_table = true);
CREATE TABLE outside (id INT) WITH (connector = 'print');
INSERT INTO outside SELECT id FROM t WHERE id > 1; INSERT INTO outside SELECT id FROM t WHERE id < 1;
INSERT INTO t (id) VALUES (1);
"""
NOT_DEFINED = {"CreateToken", "CreateBranch"}
"""A token has a secret that is only shown when it is created; a branch is a database of its own."""


def test_a_database_with_one_of_each_kind_of_object_has_nothing_to_change(
    deployer: Deployer, postgres_server: Postgres, monkeypatch: Any, tmp_path: Path
) -> None:
    name = postgres_server.create("deployed")
    there = postgres_server.connect(name)
    there.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, note TEXT); CREATE TABLE more (id INT PRIMARY KEY)"
    )
    there.execute("CREATE PUBLICATION p FOR TABLE items; CREATE PUBLICATION q FOR TABLE more")
    (tmp_path / "written").write_text("x", encoding="utf-8")
    text = ONE_OF_EACH.format(place=tmp_path, port=postgres_server.port, name=name)
    creates = {each.__name__ for each in TABLE if each.__name__.startswith("Create")}
    assert creates - {type(each).__name__ for each in parse(text)} == NOT_DEFINED
    deployer.write(all=text)

    # What cannot be made is known before anything is changed, and what it prevents is not tried.
    assert deployer.plan() == 1
    assert "The variable PG is not set." in deployer.err
    assert 'not checked: it needs pw: the value of secret "pw" cannot be read' in deployer.out
    assert not there.execute("SELECT 1 FROM pg_replication_slots").fetchall()
    assert deployer.db.relations() == []
    monkeypatch.setenv("PG", "any")
    deployer.write(
        all=text.replace(
            "FROM gold.v INTO CONNECTION pg (TABLE 'back') WITH (create_table = true)",
            "FROM gold.v INTO CONNECTION pg (TABLE 'nowhere')",
        )
    )
    assert deployer.plan() == 1
    assert deployer.err.count("error[") == 1
    assert 'table "public.nowhere" does not exist in PostgreSQL' in deployer.err
    deployer.write(all=text)
    assert deployer.plan() == 2, deployer.err
    assert "not checked" not in deployer.out
    assert not there.execute("SELECT to_regclass('back')").fetchone()[0]
    assert deployer.plan("--offline") == 2, deployer.err
    assert (
        'not checked: the columns of "public.items" in PostgreSQL are not asked for' in deployer.out
    )

    assert deployer.apply() == 0, deployer.err + deployer.out
    for options in ((), ("--prune",)):
        assert deployer.plan(*options) == 0, deployer.out + deployer.err
        assert "kept" not in deployer.out
    assert deployer.apply() == 0, deployer.err
    deployer.write(
        all=text.replace("WHERE id > 1", "WHERE id > 2").replace(
            "(items AS others)", "(items AS others, items AS again)"
        )
    )
    assert deployer.changes() == ["alter source two", "replace job insert into outside"]
    deployer.write(all="")
    (deployer.directory / "all.sql").write_text("CREATE SCHEMA gold;", encoding="utf-8")
    assert deployer.apply("--prune") == 0, deployer.err
    for each in ("src", "`Two`", "every"):
        deployer.db.sql(f"DROP SOURCE {each} CASCADE")


@pytest.mark.long
def test_views_are_swapped_after_a_look(deployer: Deployer, monkeypatch: Any) -> None:
    deployer.write(a=VIEWS, b=BASE)
    assert deployer.apply() == 0, deployer.err
    db = deployer.db
    db.sql("INSERT INTO people VALUES (1, 'ann'); INSERT INTO orders VALUES (1, 1, 10.00);")
    deployer.write(a=VIEWS.replace("sum(amount)", "sum(-amount)"))
    monkeypatch.setattr("headrace.tools.cli.deploying.click.confirm", lambda *_, **__: False)
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
    monkeypatch.setattr("headrace.tools.cli.deploying.verdict", lambda *_: "differs: 1 row")
    before = db.parts.reader.catalog
    assert deployer.apply("--prune", "--validate") == 1
    assert "b1 is not what Spark batch computes: differs: 1 row" in deployer.err
    left = {each.name for each in db.parts.reader.catalog} - {"bronze4"}
    assert left == {each.name for each in before}, "no candidate is left, and nothing is swapped"
    monkeypatch.undo()
    assert deployer.apply("--prune", "--validate") == 0, deployer.err
    assert "materialized view b1: new column most, 0 added, 0 gone, 0 changed" in deployer.out
    assert "materialized view b2: 0 added, 1 gone, 0 changed" in deployer.out
    assert "swapped views b1, b2, b3, s1, s3, s4, g3: " in deployer.out
    assert "elsewhere 1 row changed" in deployer.out
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
def test_a_function_gets_another_body_with_the_views_that_call_it(deployer: Deployer) -> None:
    text = """CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1; CREATE TABLE t (k INT PRIMARY KEY);
CREATE MATERIALIZED VIEW v AS SELECT k, f(k) AS n FROM t;
CREATE MATERIALIZED VIEW w AS SELECT n, f(n) AS m FROM v;
CREATE MATERIALIZED VIEW total AS SELECT sum(m) AS m FROM w;"""
    deployer.write(all=text)
    assert deployer.apply() == 0, deployer.err
    deployer.db.sql("INSERT INTO t VALUES (1), (2)")
    deployer.write(all=text.replace("x + 1", "x * 10"))
    assert deployer.plan() == 2, deployer.err
    assert deployer.apply() == 0, deployer.err
    assert deployer.plan() == 0, deployer.out
    assert deployer.db.sql("SELECT m FROM total").fetchall() == [(300,)]
    assert {verdict for *_, verdict in deployer.db.sql("VERIFY").fetchall()} == {"equal to batch"}
    listed = deployer.db.sql("SHOW FUNCTIONS").to_arrow().to_pylist()
    assert [(each["name"], each["views"]) for each in listed] == [("f", "total, v, w")]
    tried = 'EXPLAIN SCRIPT "REBUILD VIEW v; SWAP VIEW v; DELETE FROM t; DROP TABLE t CASCADE"'
    rows = deployer.db.sql(tried).to_arrow().to_pylist()
    assert [each["statement"] for each in rows if each["path"] == "wrong"] == [2]
    assert {each["view"] for each in rows if each["statement"] == 4} == {"t", "v", "w", "total"}
    assert deployer.db.sql("SELECT m FROM total").fetchall() == [(300,)]


def test_a_run_goes_on_past_what_fails_and_a_second_one_converges(
    deployer: Deployer, tmp_path: Path, monkeypatch: Any
) -> None:
    """A query fails on its rows, a directory is taken meanwhile, a variable is not set."""
    table = "CREATE TABLE t (k INT PRIMARY KEY, name STRING);"
    views = "CREATE MATERIALIZED VIEW n AS SELECT k, CAST(name AS INT) AS n FROM t;"
    deployer.write(t=table, v=views.replace("CAST(name AS INT)", "1"))
    assert deployer.apply() == 0, deployer.err
    deployer.db.sql("INSERT INTO t VALUES (1, '1'), (2, 'two')")
    deployer.write(
        t=f"{table} CREATE SECRET key FROM ENV 'NO_KEY'; CREATE TABLE new (k INT);",
        v=f"{views} CREATE MATERIALIZED VIEW over AS SELECT n FROM n;"
        "CREATE MATERIALIZED VIEW apart AS SELECT k FROM t;",
        k="CREATE SINK k FROM apart WITH (connector = 'file', path = 'd', format = 'json');"
        "CREATE INDEX ON t (k);",
    )
    # What is wrong is found by the plan, all of it, and then nothing is changed.
    deployer.write(more="CREATE VIEW bad AS SELECT nam FROM new; CREATE VIEW worse AS TABLE bad;")
    assert deployer.apply() == 1
    assert '(k) is the key of table "t"' in deployer.err
    assert "more.sql:1:27" in deployer.err
    assert 'not checked: it needs bad: column "nam" does not exist' in deployer.out
    assert "nothing was changed" in deployer.err
    assert deployer.db.parts.reader.catalog.find("new") is None

    deployer.write(
        more="",
        k="CREATE SINK k FROM apart WITH (connector = 'file', path = 'd', format = 'json');",
    )
    make = "headrace.tools.cli.deploying.make"
    original = headrace.tools.deploying.applying.make

    def taken(db: Any, change: Any, progress: Any) -> Any:
        if change.name == "k":
            (tmp_path / "db" / "sinks" / "d").mkdir(parents=True)
            (tmp_path / "db" / "sinks" / "d" / "1.json").write_text("{}", encoding="utf-8")
        yield from original(db, change, progress)

    monkeypatch.setattr(make, taken)
    assert deployer.apply() == 1
    monkeypatch.undo()
    undone = deployer.err.partition("made; not made:\n")[2].splitlines()
    assert [each.partition(":")[0].strip() for each in undone[:-1]] == [
        "create secret key",
        "replace materialized view n",
        "create materialized view over",
        "create sink k",
    ]
    assert "over: it needs n" in deployer.err
    assert "The variable NO_KEY is not set." in deployer.err
    assert {"new", "apart"} <= {name for _, name in deployer.db.relations()}
    assert deployer.db.sql("SELECT n FROM n WHERE k = 2").fetchall() == [(1,)]

    assert deployer.plan() == 1
    assert "has the changelog of a sink that was dropped" in deployer.err, "the plan finds it too"
    monkeypatch.setenv("NO_KEY", "x")
    deployer.write(k=(deployer.directory / "k.sql").read_text().replace("'d'", "'e'"))
    deployer.db.sql("UPDATE t SET name = '2' WHERE k = 2")
    assert deployer.apply() == 0, deployer.err
    assert deployer.plan() == 0, deployer.out


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


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_what_a_plan_says_can_be_made_and_then_there_is_nothing_to_change(
    deployer: Deployer, seed: int
) -> None:
    """Random sets of definitions, each after the one before; rows are written in between."""
    random, steps = Random(seed), choose(3, 40)
    wanted = first_set(random)
    made, reached = 0, wanted
    for step in range(steps):
        deployer.write(all=wanted.text)
        planned = deployer.plan("--prune")
        if planned == 1:
            assert deployer.apply("--prune") == 1
            assert "nothing was changed" in deployer.err
            wanted = next_set(reached, random)
            continue
        made += planned
        assert deployer.apply("--prune") == 0, deployer.out + deployer.err
        assert deployer.plan("--prune") == 0, deployer.out + deployer.err
        for each in wanted.inputs:
            deployer.db.sql(f"INSERT INTO {each.name} (id) VALUES ({step})")
        reached, wanted = wanted, next_set(wanted, random)
    assert made
    verified = deployer.db.sql("VERIFY").to_arrow().to_pylist()
    assert not [each for each in verified if each["differences"]]
