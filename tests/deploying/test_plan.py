"""What differs between files of definitions and a database, and the order of the changes."""

from __future__ import annotations

from random import Random

import pytest

from deploying.definition_sets import first_set, next_set
from headrace.errors import masked
from headrace.planning.sql.definitions import Definitions, name_of
from headrace.tools.deploying.applying import next_round, together
from headrace.tools.deploying.changes import Action
from headrace.tools.deploying.forms import form_of, statements_of
from headrace.tools.deploying.plan import planned
from headrace.tools.deploying.stored import StoredDefinitions
from length import choose

ORDERS = "CREATE STREAM orders (id INT, amount DECIMAL(10,2));"
SPENT = "CREATE MATERIALIZED VIEW spent AS SELECT id, sum(amount) AS spent FROM orders GROUP BY id;"
LARGE = "CREATE MATERIALIZED VIEW large AS SELECT id FROM spent WHERE spent > 50;"


def database(text: str, **read_by: set[str]) -> StoredDefinitions:
    """Return the definitions of a database in which statements were run one by one."""
    found = StoredDefinitions(read_by={name: set(readers) for name, readers in read_by.items()})
    made: dict[str, list[str]] = {}
    for each in statements_of(text):
        name = each.name.dotted if each.span.source.startswith("ALTER") else name_of(each)
        made.setdefault(name, []).append(masked(each.span.source))
    kinds = {"STREAM": "stream", "TABLE": "table", "MATERIALIZED": "materialized view",
             "VIEW": "view", "SINK": "sink", "FUNCTION": "function", "INDEX": "index",
             "SECRET": "secret", "SOURCE": "source"}  # fmt: skip
    for name, texts in made.items():
        words = [word for word in texts[0].split() if word not in {"OR", "REPLACE"}]
        found.add(kinds[words[1]], name, ";\n".join(texts))
    return found


def plan(files: str, stored: StoredDefinitions, *, prune: bool = False):
    return planned(Definitions.of([], files, "views.sql").every(), stored, prune=prune)


def shown(found):
    assert not found.problems, found.problems
    return [f"{each.action} {each.name}" for each in found.changes]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SPENT, SPENT.lower().replace(" as ", "\n  AS -- so\n ").replace("sum(", "SUM(")),
        (SPENT, SPENT.replace("CREATE", "CREATE OR REPLACE")),
        (SPENT, SPENT.replace(" AS SELECT", " WITH (auto_swap = false) AS SELECT")),
        (SPENT, SPENT.replace(" AS SELECT", " WITH (reuse = false) AS SELECT")),
        (ORDERS, "CREATE STREAM IF NOT EXISTS orders (id int, amount decimal(10, 2));"),
        (ORDERS, "CREATE STREAM orders (id INT); ALTER STREAM orders ADD COLUMN amount DECIMAL(10,2)"),
        (
            "CREATE STREAM s (key INT, v BIGINT, e TIMESTAMP, WATERMARK FOR e AS e) DEDUPLICATE ON key",
            ("CREATE STREAM s (k INT, w INT, v INT, at TIMESTAMP, WATERMARK FOR at AS at) DEDUPLICATE ON k;"
            "ALTER STREAM s DROP COLUMN w; ALTER STREAM s RENAME COLUMN k TO key;"
            "ALTER STREAM s ALTER COLUMN v TYPE BIGINT; ALTER STREAM s RENAME COLUMN at TO e"),
        ),
        (
            "CREATE STREAM s (k INT) WITH (retention = '2 days', topic = 't')",
            "CREATE STREAM s (k INT) WITH (topic = 't'); ALTER STREAM s SET (retention = '2 days')",
        ),
        (
            "CREATE STREAM s (k INT) WITH (connector = 'kafka', 'sasl.password' = 'one')",
            "CREATE STREAM s (k INT) WITH (connector = 'kafka', 'sasl.password' = 'another')",
        ),
    ],
)  # fmt: skip
def test_what_is_written_otherwise_is_the_same(one, other):
    assert form_of(statements_of(one)).differences(form_of(statements_of(other))) == ()
    stored = database(one)
    assert plan(other, stored).changes == []


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        (SPENT, SPENT.replace("sum", "max"), ("query",)),
        (SPENT, SPENT.replace("AS spent F", "AS Spent F"), ("query",)),
        (SPENT, SPENT.replace(" AS SELECT", " WITH (refresh = 'manual') AS SELECT"),
         ('option "refresh"',)),
        (ORDERS, ORDERS.replace("10,2", "12,2"), ("columns",)),
        ("CREATE TABLE t (k INT PRIMARY KEY)", "CREATE TABLE t (k INT)", ("key", "columns")),
        ("CREATE SECRET s FROM ENV 'A'", "CREATE SECRET s FROM ENV 'B'", ("where",)),
        (
            "CREATE STREAM s (k INT) WITH (connector = 'kafka', 'sasl.password' = SECRET one)",
            "CREATE STREAM s (k INT) WITH (connector = 'kafka', 'sasl.password' = SECRET two)",
            ('option "sasl.password"',),
        ),
    ],
)  # fmt: skip
def test_what_says_something_else_differs(one, other, differs):
    found = form_of(statements_of(one)).differences(form_of(statements_of(other)))
    shown = {str(each).partition(" (")[0] for each in found}
    assert shown <= set(differs)
    assert shown


def test_changes_come_after_what_they_read_and_drops_after_their_readers():
    stored = database(
        ORDERS + SPENT + LARGE + "CREATE VIEW unread AS SELECT id FROM orders;",
        orders={"spent", "unread"}, spent={"large"},
    )  # fmt: skip
    files = (
        SPENT.replace("FROM orders", "FROM sales")
        + "CREATE VIEW top AS SELECT id FROM spent; CREATE STREAM sales (id INT, amount INT);"
    )
    found = plan(files, stored, prune=True)
    order = shown(found)
    assert sorted(order) == [
        "create sales", "create top", "drop large", "drop orders", "drop unread", "replace spent",
    ]  # fmt: skip
    at = order.index
    assert at("create sales") < at("replace spent") < at("create top")
    assert at("drop large") < at("replace spent") < at("drop orders")
    assert at("drop unread") < at("drop orders")
    assert plan(files, stored).kept == [
        ("stream", "orders"), ("materialized view", "large"), ("view", "unread"),
    ]  # fmt: skip
    assert shown(plan(files, stored)) == ["create sales", "replace spent", "create top"]


def test_what_another_object_made_is_not_dropped_and_jobs_are_known_by_what_they_say():
    made = "CREATE TABLE t (k INT) WITH (connector = 'kafka', topic = 't'); CREATE TABLE s (k INT);"
    stored = database(made)
    stored.add("sink", "t_to_kafka", "CREATE TABLE t (k INT) WITH (topic = 't')")
    stored.add("sink", "insert_into_t", "INSERT INTO t SELECT k FROM s")
    stored.add("sink", "insert_into_t_1", "INSERT INTO t SELECT k + 1 FROM s")
    stored.add("schema", "schema gold", None)
    both = f"{made} INSERT INTO t SELECT k + 1 FROM s; insert into t select k from s;"
    assert shown(plan(both, stored, prune=True)) == []
    found = plan(both.replace("+ 1", "+ 2"), stored, prune=True)
    assert [each.statements for each in found.changes] == [
        ("DROP JOB `insert_into_t_1`", "INSERT INTO t SELECT k + 2 FROM s".rjust(len(made) + 34))
    ]
    assert shown(plan(made, stored, prune=True)) == ["drop insert_into_t", "drop insert_into_t_1"]
    none = (
        f"{made} INSERT INTO s SELECT k FROM t; INSERT INTO t VALUES (1); INSERT INTO t SELECT 1;"
    )
    assert shown(plan(none, stored)) == []


def test_a_stream_gets_new_columns_at_its_end_and_another_retention():
    stored = database("CREATE STREAM s (k INT) WITH (retention = '2 days')")
    (change,) = plan("CREATE STREAM s (k INT, v STRING DEFAULT 'a', w DATE)", stored).changes
    assert change.action is Action.ALTER
    assert change.statements == (
        "ALTER STREAM `s` ADD COLUMNS (`v` STRING DEFAULT 'a', `w` DATE)",
        "ALTER STREAM `s` RESET (retention)",
    )


@pytest.mark.parametrize("kind", ["STREAM", "TABLE"])
def test_columns_are_dropped_renamed_widened_and_added(kind):
    stored = database(f"CREATE {kind} s (k INT, gone STRING, v INT, d DECIMAL(6,2))")
    files = f"""CREATE {kind} s (
        key INT, -- was k
        v BIGINT, /* as it is */
        d DECIMAL(8, 2), e DATE -- new
    )"""
    (change,) = plan(files, stored).changes
    assert change.action is Action.ALTER
    assert [each.removeprefix(f"ALTER {kind} `s` ") for each in change.statements] == [
        "ALTER COLUMN `v` TYPE BIGINT",
        "ALTER COLUMN `d` TYPE DECIMAL(8, 2)",
        "RENAME COLUMN `k` TO `key`",
        "ADD COLUMNS (`e` DATE)",
        "DROP COLUMN `gone`",
    ]
    assert change.note.endswith("RENAME COLUMN `k` TO `key`, DROP COLUMN `gone`")
    after = database(
        f"CREATE {kind} s (k INT, gone STRING, v INT, d DECIMAL(6,2));"
        + ";".join(change.statements)
    )
    found = plan(files, after)
    assert (found.changes, found.problems, found.unchanged) == ([], [], ["s"])


@pytest.mark.parametrize(
    ("before", "after", "statements"),
    [
        # What has the same name is the same column: comments may be old ones.
        ("a DATE, b INT", "b BIGINT -- was a", ["ALTER COLUMN `b` TYPE BIGINT", "DROP COLUMN `a`"]),
        ("a INT, b INT", "b INT, c INT -- was a", None),
        ("a INT, b INT", "b INT, /* was a */ c INT", None),
        ("k INT, b INT, a INT", "k INT, c INT, b INT -- was a", None),
        ("a INT, b INT", "c INT /* was a */, d INT /* was b */",
         ["RENAME COLUMN `a` TO `c`", "RENAME COLUMN `b` TO `d`"]),
        ("a INT, b DATE", "a INT, c STRING", ["ADD COLUMNS (`c` STRING)", "DROP COLUMN `b`"]),
        ("a INT, b INT", "a INT, c INT -- new", ["ADD COLUMNS (`c` INT)", "DROP COLUMN `b`"]),
        ("a INT, b INT", "A INT, b INT", ["RENAME COLUMN `a` TO `A`"]),
        ("a INT, b INT", "a INT", ["DROP COLUMN `b`"]),
        ("a INT, b INT", "a INT DEFAULT '-- was b'", None),
    ],
)  # fmt: skip
def test_the_statements_follow_from_names_types_and_comments(before, after, statements):
    found = plan(f"CREATE STREAM s ({after}\n)", database(f"CREATE STREAM s ({before})"))
    if statements is None:
        assert [each.code for each in found.problems] == ["unsupported"]
        return
    (change,) = found.changes
    assert [each.removeprefix("ALTER STREAM `s` ") for each in change.statements] == statements


def test_a_column_that_may_be_renamed_or_another_one_is_asked_about():
    stored = database("CREATE TABLE t (k INT PRIMARY KEY, a INT)")
    (problem,) = plan("CREATE TABLE t (k INT PRIMARY KEY, b BIGINT)", stored).problems
    assert problem.primary == (
        'column "b" of table "t" is new, and "a" is gone: it may have another name, or be another'
        " column"
    )
    assert problem.hint == "Write behind it which it is: -- was a, or -- new."
    assert problem.span.source == "b BIGINT"


def test_columns_are_dropped_after_what_uses_them_is_replaced():
    view = "CREATE MATERIALIZED VIEW v AS SELECT k, {} FROM s;"
    stored = database("CREATE STREAM s (k INT, a INT);" + view.format("a"), s={"v"})
    files = "CREATE STREAM s (k INT, b STRING);" + view.format("b")
    found = plan(files, stored)
    assert shown(found) == ["alter s", "replace v", "alter s (dropped columns)"]
    now = next_round(found.changes)
    assert [each.name for each in now.changes] == ["s", "v"]
    assert [each.statements for each in now.rest] == [("ALTER STREAM `s` DROP COLUMN `a`",)]
    found = plan("CREATE STREAM s (k INT);" + view.format("k AS b"), stored)
    assert shown(found) == ["replace v", "alter s (dropped columns)"]


@pytest.mark.parametrize(
    ("before", "after", "match"),
    [
        ("CREATE STREAM s (k INT)", "CREATE STREAM s (v INT, k INT)", "cannot be changed"),
        ("CREATE STREAM s (k INT)", "CREATE STREAM s (k INT, v INT NOT NULL)", "cannot be changed"),
        ("CREATE STREAM s (k INT, v INT)", "CREATE STREAM s (v INT, k INT)", "cannot be changed"),
        ("CREATE TABLE s (k INT)", "CREATE TABLE s (k INT NOT NULL)", "cannot be changed"),
        ("CREATE TABLE s (k INT)", "CREATE MATERIALIZED VIEW s AS SELECT 1 AS k", "become a"),
    ],
)
def test_what_would_lose_rows_is_a_problem_and_no_change(before, after, match):
    found = plan(after, database(before), prune=True)
    assert [match in each.primary for each in found.problems] == [True]
    assert found.problems[0].span.file == "views.sql"
    assert found.problems[0].hint
    assert found.changes == []


def test_what_others_read_is_neither_dropped_nor_replaced_below_them():
    plain = "CREATE VIEW p AS SELECT id FROM orders;"
    stored = database(
        ORDERS + plain + "CREATE MATERIALIZED VIEW v AS SELECT id FROM p",
        orders={"p", "v"}, p={"v"},
    )  # fmt: skip
    (found,) = plan(
        ORDERS
        + plain.replace("id F", "id + 1 AS id F")
        + "CREATE MATERIALIZED VIEW v AS SELECT id FROM p",
        stored,
    ).problems
    assert found.primary == 'view p cannot be replaced while "v" depends on it'
    without = plan(plain + "CREATE MATERIALIZED VIEW v AS SELECT id FROM p", stored, prune=True)
    assert {each.primary for each in without.problems} == {
        'stream orders is not in the files, but "p" reads it',
        'stream orders is not in the files, but "v" reads it',
    }


def test_statements_keep_the_lines_of_their_files():
    files = f"-- first\n\n{SPENT.replace('sum', 'max')}"
    (change,) = plan(ORDERS + "\n" + files, database(ORDERS + SPENT)).changes
    text = change.statements[0]
    assert text.startswith("\n\n\nCREATE OR REPLACE MATERIALIZED VIEW spent AS")
    assert change.to_json()["line"] == 4
    assert change.candidate is not None
    assert "spent WITH (auto_swap = false) AS SELECT" in change.candidate


@pytest.mark.parametrize(
    ("head", "candidate"),
    [
        ("WITH (on_error = 'stop')", "WITH (on_error = 'stop', auto_swap = false)"),
        ("SCHEDULE EVERY 1 HOUR", None),  # a view that is refreshed apart has none
        ("WITH (auto_swap = true)", "WITH (auto_swap = false)"),
    ],
)
def test_a_candidate_is_the_replacement_that_waits(head, candidate):
    former = "CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT 1 AS k"
    (change,) = plan(
        f"CREATE MATERIALIZED VIEW v {head} AS SELECT 2 AS k", database(former)
    ).changes
    if candidate is None:
        assert change.candidate is None
        return
    assert change.candidate is not None
    assert change.candidate.strip() == (
        f"CREATE OR REPLACE MATERIALIZED VIEW v {candidate} AS SELECT 2 AS k"
    )
    statements_of(change.candidate)


def test_an_index_without_a_name_is_known_by_its_columns():
    table = "CREATE TABLE t (k INT PRIMARY KEY, v INT, w INT);"
    stored = database(table + "CREATE INDEX t_v ON t (v)", t={"index t_v"})
    assert shown(plan(table + "CREATE INDEX ON T (V);", stored)) == []
    found = plan(table + "CREATE INDEX ON t (w);", stored, prune=True)
    assert shown(found) == ["create index on t (w)", "drop index t_v"]
    assert found.changes[1].statements == ("DROP INDEX `t_v`",)


def test_drops_wait_for_the_swap_of_what_is_reviewed():
    stored = database(ORDERS + SPENT + LARGE, orders={"spent"}, spent={"large"})
    files = SPENT.replace("orders", "sales") + LARGE + ORDERS.replace("orders", "sales")
    changes = plan(files, stored, prune=True).changes
    first = next_round(changes)
    assert [each.name for each in first.changes] == ["sales", "spent"]
    assert [each.name for each in first.candidates] == ["spent"]
    assert [each.name for each in first.rest] == ["orders"]
    assert next_round(first.rest).rest == ()


def test_what_is_created_over_a_view_that_waits_comes_after_its_swap():
    stored = database(ORDERS + SPENT, orders={"spent"})
    over = "CREATE MATERIALIZED VIEW over AS SELECT more FROM spent; CREATE VIEW top AS TABLE over;"
    files = ORDERS + SPENT.replace("AS spent", "AS spent, 1 AS more") + over
    first = next_round(plan(files, stored).changes)
    assert [each.name for each in first.changes] == ["spent"]
    assert [each.name for each in first.rest] == ["over", "top"]


def test_a_sink_comes_after_the_swap_of_what_its_view_reads():
    """The view over it is not in the plan, and gets other columns by the swap."""
    over = "CREATE MATERIALIZED VIEW over AS SELECT * FROM spent;"
    stored = database(ORDERS + SPENT + over, orders={"spent"}, spent={"over"})
    sink = "CREATE SINK k FROM over WITH (connector = 'blackhole');"
    files = ORDERS + SPENT.replace("AS spent", "AS spent, 1 AS more") + over + sink
    first = next_round(plan(files, stored).changes)
    assert [each.name for each in first.changes] == ["spent"]
    assert [each.name for each in first.rest] == ["k"]
    del stored.by_name["over"]  # which is not in the files either
    stored.add("materialized view", "over", over)
    first = next_round(plan(files.replace(over, ""), stored).changes)
    assert [each.name for each in first.rest] == ["k"]


def test_a_renamed_column_is_no_change_of_what_reads_it():
    view = "CREATE MATERIALIZED VIEW v AS SELECT {} AS k, b FROM s;"
    stored = database("CREATE STREAM s (a INT, b INT);" + view.format("a"), s={"v"})
    stored.redefined("v", view.format("`c`"))  # as EXPLAIN SCRIPT of the rename says
    found = plan("CREATE STREAM s (c INT, -- was a\n b INT);" + view.format("c"), stored)
    assert shown(found) == ["alter s"]


def test_a_source_gets_tables_and_keeps_what_it_has():
    source = "CREATE SOURCE s FROM POSTGRES CONNECTION c (PUBLICATION 'p'{}){};"
    stored = database("CREATE TABLE a FROM SOURCE s (REFERENCE `public`.`a`)")
    stored.add("source", "source s", source.format(", SLOT 'x'", ""))
    bare = source.format("", "") + "CREATE TABLE a FROM SOURCE s (REFERENCE a);"
    for files in (bare, source.format("", " FOR TABLES (a)"), source.format("", " FOR ALL TABLES")):
        found = plan(files, stored, prune=True)
        assert shown(found) == [], files
    (change,) = plan(source.format("", " FOR TABLES (a, gold.b AS c)"), stored).changes
    assert change.statements == ("CREATE TABLE `c` FROM SOURCE `s` (REFERENCE `gold`.`b`)",)
    assert str(change.differs[0]) == "tables (new c)"
    assert shown(plan(source.format("", ""), stored, prune=True)) == ["drop a"]
    (problem,) = plan(source.format(", SLOT 'y'", ""), stored).problems
    assert problem.detail == 'It differs from the database in: option "slot".'


def test_candidates_that_need_each_other_are_given_up_together():
    over = "CREATE MATERIALIZED VIEW over AS SELECT spent FROM spent;"
    other = "CREATE MATERIALIZED VIEW other AS SELECT id FROM orders;"
    stored = database(ORDERS + SPENT + over + other, orders={"spent", "other"}, spent={"over"})
    files = (ORDERS + SPENT + over + other).replace("SELECT", "SELECT 1 AS one,")
    sets = together(next_round(plan(files, stored).changes).candidates)
    assert sorted(sorted(each.name for each in one) for one in sets) == [
        ["other"],
        ["over", "spent"],
    ]


class Simulated:
    """The definitions of a database that runs the statements of plans, and what reads what."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}

    def stored(self) -> StoredDefinitions:
        found = database("\n".join(";".join(texts) + ";" for texts in self.texts.values()))
        wanted = Definitions.of([], self.script(), "stored.sql").by_name
        for name, each in wanted.items():
            for below in {*each.surely, *each.over}:
                found.read_by.setdefault(below, set()).add(name)
        return found

    def script(self) -> str:
        return "\n".join(";".join(texts) + ";" for texts in self.texts.values())

    def run(self, text: str) -> None:
        """Run a statement; what it needs must be there, and what it drops must not be read."""
        (made,) = statements_of(text)
        if text.lstrip().startswith("DROP"):
            name = text.rsplit(maxsplit=1)[-1].replace("`", "")
            name = f"index {name}" if "DROP INDEX" in text else name
            assert not self.stored().read_by.get(name), f"{name} is read"
            del self.texts[name]
        elif text.lstrip().startswith("ALTER"):
            self.texts[made.name.dotted].append(text)
        else:
            name = name_of(made)
            assert made.or_replace if name in self.texts else not getattr(made, "or_replace", False)
            others = set(self.texts) - {name}
            every = Definitions.of([], self.script() + text, "both.sql")
            needed = every.by_name[name].surely | set(every.by_name[name].over)
            assert needed <= others, f"{name} needs {needed - others}"
            self.texts[name] = [text.replace(" OR REPLACE", "", 1)]


@pytest.mark.parametrize("seed", range(choose(30, 300)))
def test_after_the_changes_of_a_plan_there_is_nothing_to_change(seed):
    random, there = Random(seed), Simulated()
    made, wanted = 0, first_set(random)
    reached = wanted
    for _ in range(6):
        found = plan(wanted.text, there.stored(), prune=True)
        assert not [each for each in found.problems if "cannot be replaced" not in each.primary]
        if found.problems:  # a plain view that others read would have another query
            wanted = next_set(reached, random)
            continue
        rest = tuple(found.changes)
        while rest:
            now = next_round(rest)
            for text in (text for change in now.changes for text in change.statements):
                there.run(text)
                made += 1
            rest = now.rest
        again = plan(wanted.text, there.stored(), prune=True)
        assert (again.changes, again.problems, again.kept) == ([], [], [])
        reached, wanted = wanted, next_set(wanted, random)
    assert made


def test_what_calls_a_function_that_is_replaced_is_swapped_with_it():
    made = "CREATE FUNCTION f(x INT) RETURNS INT RETURN x {} 1;"
    view = "CREATE MATERIALIZED VIEW {} AS SELECT F(id) AS id FROM {};"
    both = ORDERS + view.format("v", "orders") + view.format("w", "v")
    stored = database(made.format("+") + both, f={"v", "w"}, orders={"v"}, v={"w"})
    found = plan(made.format("*") + both.replace("AS id FROM v", "AS key FROM v"), stored)
    assert shown(found) == [
        "create f__next",
        "replace v",
        "replace w",
        "replace f",
        "replace v (with its functions)",
        "replace w (with its functions)",
        "drop f__next (dropped)",
    ]
    first = next_round(found.changes)
    assert [each.name for each in first.changes] == ["f__next", "v", "w"]
    assert [each.target for each in first.candidates] == ["v", "w"]
    assert first.changes[0].statements[0].strip() == (
        "CREATE OR REPLACE FUNCTION f__next(x INT) RETURNS INT RETURN x * 1"
    )
    assert "SELECT f__next(id) AS key FROM v" in first.changes[2].candidate
    second = next_round(first.rest)
    assert [each.target for each in second.changes] == ["f", "v", "w"]
    assert "SELECT F(id) AS key FROM v" in second.changes[2].candidate
    assert [each.statements for each in second.rest] == [("DROP FUNCTION `f__next`",)]

    stored.add("view", "p", "CREATE VIEW p AS SELECT f(id) AS id FROM orders")
    stored.read_by["f"].add("p")
    (problem,) = plan(made.format("*") + both, stored).problems
    assert problem.primary == 'function f cannot be replaced while "p", "v", "w" depend on it'
