"""GET /v1/views/{name}: names are looked up, values are bound, and freshness can be demanded."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from headrace.execution.runtime.published import Published
from headrace.execution.serving import Contents
from headrace.interfaces.server.limits import Limits
from headrace.storage.ledger import Dirty, DirtyState, RepairPath, Slice
from length import each

if TYPE_CHECKING:
    from served import Client, Served


@pytest.fixture(scope="module", autouse=True)
def _view(server: Served) -> None:
    server.client.sql(
        "CREATE TABLE sales (id INT PRIMARY KEY, name STRING, day DATE, price DECIMAL(9,2));"
        "CREATE MATERIALIZED VIEW totals AS SELECT name, sum(price) AS total, count(*) AS n"
        " FROM sales GROUP BY name;"
        "INSERT INTO sales VALUES (1, 'ann', DATE '2026-01-01', 1.50), (2, 'bob', NULL, 2.00),"
        " (3, 'ann', DATE '2026-01-02', 3.00);"
        "FLUSH"
    )


def found(client: Client, name: str = "totals", **query: object) -> list[list[object]]:
    answer = client.get(f"/v1/views/{name}", **query)
    assert answer.status == 200, answer.body
    return answer.json["rows"]


def test_a_key_finds_its_row(client: Client):
    assert found(client, key="ann") == [["ann", "4.50", 2]]
    assert found(client, key="nobody") == []
    assert found(client, "sales", key=2, select="name,price") == [["bob", "2.00"]]
    assert found(client, "SALES", key=2, select="NAME") == [["bob"]]


def test_a_row_of_a_dirty_slice_says_so(server: Served):
    client, parts = server.client, server.database.parts
    view = parts.reader.catalog.resolve("totals").id
    entry = Dirty(
        view,
        "x",
        1.0,
        slice=Slice("name = 'ann'"),
        repair=RepairPath.REPLAY,
        state=DirtyState.QUARANTINED,  # so that nothing repairs it meanwhile
    )
    parts.ledger.dirty.mark(entry)
    parts.loop.published.publish()
    try:
        for key, dirty in (("ann", ["totals"]), ("bob", []), ("nobody", ["totals"])):
            answer = client.get("/v1/views/totals", key=key)
            assert answer.json["freshness"]["dirty"] == dirty, key
            assert answer.headers.get("headrace-dirty", "") == ", ".join(dirty)
        metrics = client.get("/metrics").body.decode()
        assert 'headrace_view_dirty_slices{view="totals"} 1.0' in metrics
        assert 'headrace_view_dirty_age_seconds{view="totals"} 0.0' not in metrics
    finally:
        parts.ledger.dirty.clear(view)
        parts.loop.published.publish()
    assert client.get("/v1/views/totals", key="ann").json["freshness"]["dirty"] == []


def test_conditions_order_and_limit(client: Client):
    assert found(client, "sales", where=["price>=2", "name=ann"], select="id") == [[3]]
    assert found(client, "sales", where="day is null", select="id") == [[2]]
    assert found(client, "sales", where="day IS NOT NULL", order="-id", select="id") == [[3], [1]]
    assert found(client, "sales", where="day>2026-01-01", select="id") == [[3]]
    assert found(client, "sales", order="-price,id", limit=2, select="id") == [[3], [2]]
    assert found(client, "sales", where="id!=1", order="id", select="id") == [[2], [3]]


@pytest.mark.parametrize(
    "value", ["ann' OR '1'='1", "' UNION SELECT 1", "\\", "x`; DROP TABLE sales", "?"]
)
def test_values_are_bound_never_spliced(client: Client, value: str):
    assert found(client, key=value) == []
    assert found(client, "sales", where=f"name={value}") == []
    assert len(found(client, "sales")) == 3


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"select": "name`, (SELECT 1) AS `x"}, 400),
        ({"select": "nme"}, 400),
        ({"order": "total; DROP TABLE sales"}, 400),
        ({"where": "1=1 OR name=ann"}, 400),
        ({"where": "name"}, 400),
        ({"where": "total=many"}, 400),
        ({"where": "`name`x=ann"}, 400),
        ({"where": "`name=ann"}, 400),
        ({"select": "`name`, `x"}, 400),
        ({"max_staleness": "-1"}, 400),
        ({"max_staleness": "nan"}, 400),
        ({"max_staleness": "1e400"}, 400),
        ({"max_staleness": "\u0663", "key": "ann"}, 400),
        ({"limit": "-1"}, 400),
        ({"limit": "1; DROP TABLE sales"}, 400),
        ({"key": ["a", "b"]}, 400),
        ({"as_of_epoch": "9999999"}, 400),
        ({"min_epoch": "soon"}, 400),
        ({"min_epoch": "1@1:99999999"}, 400),
        ({"keys": "a"}, 400),
        ({"limit": ["1", "2"]}, 400),
    ],
)
def test_what_is_no_name_and_no_value_is_refused(client: Client, query: dict, status: int):
    assert client.get("/v1/views/totals", **query).status == status


def test_strings_keep_their_spaces(client: Client):
    client.sql(
        "CREATE TABLE spaced (s STRING PRIMARY KEY, x INT);"
        "INSERT INTO spaced VALUES ('a', 1), ('a ', 2), (' a', 3); FLUSH"
    )
    for s, x in (("a", 1), ("a ", 2), (" a", 3)):
        assert found(client, "spaced", where=f"s={s}") == [[s, x]]
    assert found(client, "spaced", where=["x = 2 ", "s>a"]) == [["a ", 2]]


@pytest.mark.long
def test_binary_values_are_base64_as_in_answers(client: Client):
    client.sql(
        "CREATE TABLE bytes (b BINARY PRIMARY KEY, x INT);"
        "INSERT INTO bytes VALUES (X'00ff', 1), (X'', 2), (X'61', 3); FLUSH"
    )
    for shown, x in found(client, "bytes", order="x"):
        assert found(client, "bytes", key=shown, select="x") == [[x]]
        assert found(client, "bytes", where=f"b={shown}", select="x") == [[x]]
    for query in ({"key": "a"}, {"where": "b=a"}, {"where": "b=\u00e9"}):
        answer = client.get("/v1/views/bytes", **query)
        assert (answer.status, "is not base64" in answer.error["primary"]) == (400, True)


def test_names_may_be_between_backticks(client: Client):
    client.sql(
        "CREATE TABLE odd (`a b` INT PRIMARY KEY, `c``,>=d` INT, ` e` INT);"
        "INSERT INTO odd VALUES (1, 10, 5), (2, 20, 4); FLUSH"
    )
    assert found(client, "odd", where="`A b`=2") == [[2, 20, 4]]
    assert found(client, "odd", where=" `c``,>=d` >= 20", select="`c``,>=d`, ` e`") == [[20, 4]]
    assert found(client, "odd", where="` e` is not null", order="-`c``,>=d`,`a b`") == [
        [2, 20, 4],
        [1, 10, 5],
    ]
    assert found(client, "odd", key=1, select="` e`,a b") == [[5, 1]]


def test_columns_without_a_text_are_not_compared(client: Client):
    client.sql(
        "CREATE TABLE listed (id INT PRIMARY KEY, l ARRAY<INT>);"
        "INSERT INTO listed VALUES (1, array(1)), (2, NULL); FLUSH"
    )
    assert found(client, "listed", where="l is null", select="id") == [[2]]
    answer = client.get("/v1/views/listed", where="l=1")
    assert (answer.status, answer.error["code"]) == (422, "unsupported")
    assert answer.error["primary"].startswith('where: column "l" of type ARRAY<INT>')


@pytest.mark.parametrize(
    ("name", "query", "primary"),
    [
        ("sales", {"key": "abc"}, 'key: "abc" is not an INT'),
        ("sales", {"key": "\u0663"}, 'key: "\u0663" is not an INT'),
        ("sales", {"key": "2147483648"}, 'key: "2147483648" does not fit INT'),
        ("sales", {"where": "day=soon"}, 'where: "soon" is not a DATE'),
        ("sales", {"where": "price>=1.234"}, 'where: "1.234" does not fit DECIMAL(9,2)'),
    ],
)
def test_a_value_of_another_type_is_refused_without_sql(
    client: Client, name: str, query: dict, primary: str
):
    answer = client.get(f"/v1/views/{name}", **query)
    assert (answer.status, answer.error["primary"]) == (400, primary)
    assert answer.error["span"] is None
    assert "try_cast" not in answer.body.decode().lower()


def test_a_view_that_does_not_exist_is_not_found(client: Client):
    answer = client.get("/v1/views/totls")
    assert (answer.status, answer.error["hint"]) == (404, 'Did you mean "totals"?')


def test_an_earlier_epoch_is_read_back_and_a_token_is_waited_for(client: Client):
    before = client.get("/v1/views/totals", key="bob")
    token = client.sql("INSERT INTO sales VALUES (4, 'bob', NULL, 5.00)").json["token"]
    assert found(client, key="bob", min_epoch=token) == [["bob", "7.00", 2]]
    assert found(client, key="bob", as_of_epoch=before.json["epoch"]) == [["bob", "2.00", 1]]
    sql = f"SELECT * FROM totals AS OF EPOCH {before.json['epoch']}"
    for earlier in (
        client.get("/v1/views/totals", where="n>0", as_of_epoch=before.json["epoch"]),
        client.sql(sql),
    ):
        assert earlier.json["freshness"]["epoch"] == before.json["epoch"]
        at = before.json["freshness"]["committed_at"]
        assert earlier.json["freshness"]["committed_at"] == at
        assert earlier.headers["headrace-committed-at"] == repr(at)
    late = client.get("/v1/views/totals", min_epoch=10**9, timeout=0.3)
    assert (late.status, late.error["code"]) == (408, "cancelled")


def test_an_answer_that_is_too_old_is_refused(server: Served, monkeypatch: pytest.MonkeyPatch):
    client, reader = server.client, server.database.parts.reader
    assert found(client, key="ann", max_staleness=0)
    monkeypatch.setattr(type(reader), "unseen_since", lambda *_: 1_000_000.0)
    monkeypatch.setattr(Published, "behind", lambda *_: 1)
    for answer in (
        client.get("/v1/views/totals", key="ann", max_staleness=60),
        client.get("/v1/views/totals", where="n>0", max_staleness=60),
        client.sql("SELECT * FROM totals WHERE name = 'ann'", max_staleness=60),
    ):
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
    assert found(client, key="ann") == [["ann", "4.50", 2]]


@pytest.mark.parametrize(
    ("type_", "values"),
    each(
        3,
        [
            ("STRING", ["", "ann", "é'\"", "007", " ann "]),
            ("TINYINT", [0, 7, -128, 127]),
            ("SMALLINT", [0, 7, -32768, 32767]),
            ("INT", [0, 7, -(2**31), 2**31 - 1]),
            ("BIGINT", [0, 7, 10**17, -(2**63), 2**63 - 1]),
            ("BOOLEAN", [True, False]),
            ("DATE", ["2026-01-01", "1900-02-28"]),
            ("DECIMAL(9,2)", ["0.00", "7.50", "-1.25"]),
            ("TIMESTAMP", ["2026-01-01T00:00:00Z"]),
        ],
    ),
)
def test_a_row_by_key_is_that_of_the_query(client: Client, type_: str, values: list):
    """Some types are looked up at once, others by the query; each row has been changed twice."""
    name = "keyed_" + "".join(filter(str.isalpha, type_)).lower()
    client.sql(f"CREATE TABLE {name} (k {type_} PRIMARY KEY, x INT)")
    for x in range(3):
        marks = ", ".join(f"(CAST(? AS {type_}), {x})" for _ in values)
        token = client.sql(f"INSERT INTO {name} VALUES {marks}", values).json["token"]
    for value in values:
        text = str(value).lower() if type_ == "BOOLEAN" else value
        assert found(client, name, key=text, min_epoch=token) == [[value, 2]]
        assert found(client, name, key=text, select="X,k") == [[2, value]]
    for text in ("99999999999999999999", "-0", "1e3", "+7", "0x7", "tr", "\u0663"):
        by_key = client.get(f"/v1/views/{name}", key=text)
        by_value = client.get(f"/v1/views/{name}", where=f"k={text}")
        assert (by_key.status, by_key.json.get("rows")) == (
            by_value.status,
            by_value.json.get("rows"),
        )


def test_where_finds_rows_by_an_index(client: Client, monkeypatch: pytest.MonkeyPatch):
    client.sql(
        "CREATE TABLE dogs (id INT PRIMARY KEY, kind STRING, age INT); CREATE INDEX ON dogs (kind);"
        "INSERT INTO dogs VALUES (1, 'pug', 3), (2, 'pug', 5), (3, 'collie', 3); FLUSH"
    )
    used, by_key = [], Contents.by_key
    monkeypatch.setattr(
        Contents, "by_key", lambda self, key: (used.append(self.layout.key), by_key(self, key))[1]
    )
    assert sorted(found(client, "dogs", where="kind=pug", select="id")) == [[1], [2]]
    assert found(client, "dogs", where="kind=poodle") == []
    assert used == [("kind",), ("kind",)]
    assert found(client, "dogs", where=["kind=pug", "age>3"], select="id") == [[2]]


def test_a_key_of_several_columns_is_given_in_their_order(client: Client):
    client.sql(
        "CREATE TABLE pairs (b STRING, x INT, a INT, PRIMARY KEY (b, a));"
        "INSERT INTO pairs VALUES ('1', 10, 2), ('2', 20, 1); FLUSH"
    )
    assert found(client, "pairs", key=["1", "2"]) == [["1", 10, 2]]
    assert found(client, "pairs", key=["2", "1"]) == [["2", 20, 1]]
    assert found(client, "pairs", key=["2", "2"]) == []
    assert client.get("/v1/views/pairs", key="1").status == 400


def test_a_query_waits_for_a_token_and_may_be_old(client: Client):
    token = client.sql("INSERT INTO sales VALUES (5, 'eve', NULL, 9.00)").json["token"]
    sql = "SELECT total FROM totals WHERE name = 'eve'"
    assert client.rows(sql, min_epoch=token, max_staleness=60) == [["9.00"]]
    assert client.rows(sql, min_epoch=1, max_staleness=60) == [["9.00"]]
    assert client.sql(sql, min_epoch="soon").status == 400
    assert client.sql(sql, max_staleness="long").status == 400
    assert client.sql(sql, max_staleness=-1).status == 400


def test_what_a_state_does_not_show_has_an_age(tmp_path, spark):
    import time

    import headrace

    with headrace.connect(tmp_path / "db", spark=spark, continuous=False, partitions=2) as db:
        db.sql("CREATE TABLE s (x INT); CREATE MATERIALIZED VIEW v AS SELECT x FROM s")
        reader = db.parts.reader
        view, began = reader.catalog.resolve("v").id, time.time()
        assert reader.unseen_since(reader.published, view) is None
        db.insert("s", [(1,)])
        db.insert("s", [(2,)])
        since = reader.unseen_since(reader.published, view)
        assert since is not None
        assert began - 1 <= since <= time.time()
        db.flush()
        assert reader.unseen_since(reader.published, view) is None


def test_what_is_older_than_a_view_is_refused_with_its_name(client: Client):
    answer = client.get("/v1/views/totals", as_of_epoch=0)
    assert answer.status == 400
    assert answer.error["primary"] == 'view "totals" cannot be read at epoch 0'
    assert answer.error["detail"].startswith("The first epoch at which it can be read is ")


def test_a_lookup_does_not_wait_for_writes_that_wait_for_the_ledger(server: Served, client: Client):
    client.sql("CREATE TABLE waited (k INT PRIMARY KEY, v INT)")
    client.sql("INSERT INTO waited VALUES (1, 10)")
    assert client.sql("SELECT v FROM waited").json["rows"] == [[10]]  # epochs have read it
    runner, ledger = server.server.service.runner, threading.Event()
    blocked = [runner._threads.submit(ledger.wait, 60) for _ in range(Limits().statements)]
    try:
        found = client.get("/v1/views/waited", where="v = 10", timeout=20)
        assert (found.status, found.json["rows"]) == (200, [[1, 10]])
    finally:
        ledger.set()
        for each in blocked:
            each.result()
        client.sql("DROP TABLE waited")
