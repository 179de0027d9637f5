"""The sink for PostgreSQL against a real server: exactly once, whatever is killed."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import threading
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from connectors.sink_histories import (
    KEY,
    POISON,
    SCHEMA,
    Histories,
    Row,
    begun,
    context,
    prove,
    row,
    table,
)
from headrace import postgres_session
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.execution.runtime.delivery_position import SinkDifference
from headrace.io.connectors.options import SecretName
from headrace.io.connectors.postgres import access
from headrace.io.connectors.postgres.access import PgType
from headrace.io.connectors.postgres.sink import PostgresSink, SinkTable, check
from headrace.io.connectors.postgres.target import MAPPING, keeps, type_of
from headrace.io.connectors.sinks import TableContents
from headrace.types import Column, Epoch, Schema
from servers.postgres import postgres
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.io.connectors import SinkContext
    from servers.postgres import Postgres

_COLUMNS = "id, name, amount, at, ok"


@pytest.fixture
def database(postgres_server: Postgres, request: pytest.FixtureRequest) -> str:
    name = f"sink_{abs(hash(request.node.name))}"
    return postgres_server.create(name)


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    with TemporaryDirectory() as place, postgres(Path(place) / "own") as running:
        yield running


def options(server: Postgres, database: str, **more: Any) -> SinkTable:
    given = {"table": "public.rows", "create_table": True, **more}
    return SinkTable(
        host="127.0.0.1", port=server.port, database=database, user="postgres", **given
    )


def opened(to: SinkTable, given: SinkContext) -> PostgresSink:
    """Return the writer of a sink that was created."""
    check(to, given)
    return PostgresSink(to, given)


def rows(server: Postgres, database: str, table: str = "rows") -> Counter[Row]:
    with server.connect(database) as session:
        if session.execute("SELECT to_regclass(%s)", (f"public.{table}",)).fetchone() == (None,):
            return Counter()
        return Counter(session.execute(f"SELECT {_COLUMNS} FROM {table}").fetchall())


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_rows_are_those_of_the_view_however_often_the_delivery_is_killed(
    tmp_path: Path, postgres_server: Postgres, database: str, seed: int
) -> None:
    to, given = options(postgres_server, database), context(tmp_path)
    check(to, given)
    prove(lambda: PostgresSink(to, given), lambda: rows(postgres_server, database), seed=seed)


def test_changes_add_up_to_the_view_and_each_is_there_once(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    table = options(postgres_server, database, mode=TableContents.APPEND)
    check(table, context(tmp_path))

    def summed() -> Counter[Row]:
        with postgres_server.connect(database) as session:
            found = session.execute(
                f"SELECT {_COLUMNS} FROM rows GROUP BY {_COLUMNS} HAVING sum(headrace_weight) <> 0"
            ).fetchall()
            (wrong,) = session.execute(
                f"SELECT count(*) FROM (SELECT FROM rows GROUP BY {_COLUMNS}"
                " HAVING sum(headrace_weight) NOT IN (0, 1)) AS w"
            ).fetchone()
        assert not wrong
        return Counter(found)

    outlived = prove(lambda: PostgresSink(table, context(tmp_path)), summed, seed=3)
    with postgres_server.connect(database) as session:
        (count,) = session.execute("SELECT count(*) FROM rows").fetchone()
    first = min(e for e in outlived.histories.epochs)
    written = [c for e, c in outlived.histories.epochs.items() if e >= first]
    assert count == sum(map(len, written))


def test_what_differs_is_found_and_mended_and_nothing_else_is_written(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    histories, some = Histories(), random.Random(4)
    histories.change({id_: row(some, id_) for id_ in range(40)})
    outlived = begun(histories)
    outlived.directory = tmp_path
    (tmp_path / "attempts").mkdir()
    writer = opened(options(postgres_server, database), context(tmp_path))
    delivery = outlived.delivery(writer, DeliverySettings(part_rows=6))
    assert delivery.reconcile(SCHEMA.arrow, KEY, write=False)[1].differences == 0
    with postgres_server.connect(database) as session:
        session.execute("DELETE FROM rows WHERE id IN (3, 4)")
        session.execute("UPDATE rows SET amount = 1.5, name = 'other' WHERE id = 5")
        session.execute("INSERT INTO rows (id) VALUES (91), (92), (93)")
        session.execute("CREATE TABLE touched (id bigint)")
        session.execute("CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS"
                        " 'BEGIN INSERT INTO touched VALUES (coalesce(NEW.id, OLD.id));"
                        " RETURN coalesce(NEW, OLD); END'")  # fmt: skip
        session.execute("CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON rows"
                        " FOR EACH ROW EXECUTE FUNCTION touch()")  # fmt: skip
    _, found = delivery.reconcile(SCHEMA.arrow, KEY, write=False)
    assert (found.rows, found.missing, found.different, found.extra) == (40, 2, 1, 3)
    delivery.reconcile(SCHEMA.arrow, KEY, write=True)
    assert rows(postgres_server, database) == histories.at(histories.last)
    with postgres_server.connect(database) as session:
        touched = session.execute("SELECT id FROM touched ORDER BY id").fetchall()
    assert touched == [(3,), (4,), (5,), (91,), (92,), (93,)]
    histories.change({3: row(some, 3), 7: None})
    delivery.advance()
    assert rows(postgres_server, database) == histories.at(histories.last)
    assert delivery.reconcile(SCHEMA.arrow, KEY, write=True)[1].differences == 0
    assert list((tmp_path / "attempts").iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/maps").read_text(encoding="utf-8")
    delivery.close()


def numbered(id_: int, number: int | None) -> Row | None:
    """Return a row whose amount is a number; None for none."""
    if number is None:
        return None
    id_, name, _, *others = row(random.Random(id_), id_)
    return (id_, name, Decimal(number), *others)


def passed_on(random_: random.Random, at: dict[int, int], fresh: int) -> dict[int, int | None]:
    """Return new numbers of some ids, all of which stay different; None deletes an id.

    ``fresh`` is an id and a number that was never used.
    """
    ids = random_.sample(sorted(at), random_.randrange(2, 12))
    numbers = [at[id_] for id_ in ids]
    match random_.choice(["swap", "shift", "chain", "reuse"]):
        case "swap":
            return dict(zip(ids, reversed(numbers), strict=True))
        case "shift":
            return {id_: number + 1 for id_, number in at.items()}
        case "chain":
            return dict(zip(ids, [*numbers[1:], fresh], strict=True))
        case _:
            return {ids[0]: None, ids[1]: numbers[0], fresh: numbers[1]}


@pytest.mark.parametrize("seed", [6, *(pytest.param(n, marks=pytest.mark.long) for n in range(5))])
def test_rows_that_pass_values_of_a_unique_column_on_within_an_epoch_are_not_refused(
    tmp_path: Path, postgres_server: Postgres, database: str, seed: int
) -> None:
    histories, some, at = Histories(), random.Random(seed), {id_: id_ for id_ in range(20)}
    table = options(postgres_server, database)
    check(table, context(tmp_path))
    with postgres_server.connect(database) as session:
        session.execute("ALTER TABLE rows ADD UNIQUE (amount), ADD note text DEFAULT 'new',"
                        " ADD place bigint GENERATED ALWAYS AS IDENTITY,"
                        " ADD double numeric GENERATED ALWAYS AS (2 * amount) STORED")  # fmt: skip
    histories.change({id_: numbered(id_, number) for id_, number in at.items()})
    outlived, kept = begun(histories), set(at)
    writer = PostgresSink(table, context(tmp_path))
    outlived.delivery(writer, DeliverySettings(part_rows=6)).advance()
    with postgres_server.connect(database) as session:
        session.execute("UPDATE rows SET note = 'kept'")
        places = dict(session.execute("SELECT id, place FROM rows").fetchall())
    for fresh in range(1000, 14000, 1000):
        changed = passed_on(some, at, fresh)
        at = {id_: n for id_, n in {**at, **changed}.items() if n is not None}
        kept &= set(at)
        histories.change({id_: numbered(id_, number) for id_, number in changed.items()})
        if some.random() < 0.7:
            settings = DeliverySettings(
                part_rows=some.choice([2, 6, 100]), joins=some.random() < 0.5
            )
            outlived.delivery(writer, settings).advance()
            assert rows(postgres_server, database) == histories.at(histories.last)
    outlived.delivery(writer, DeliverySettings()).advance()
    assert rows(postgres_server, database) == histories.at(histories.last)
    assert outlived.refused == []
    with postgres_server.connect(database) as session:
        others = session.execute("SELECT id, note, place FROM rows").fetchall()
    assert kept
    assert {id_ for id_, note, place in others if note == "kept"} == kept
    assert all(places[id_] == place for id_, note, place in others if note == "kept")
    writer.close()


def test_only_rows_that_still_conflict_at_the_end_of_an_epoch_are_refused(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    histories = Histories()
    histories.change({id_: numbered(id_, id_) for id_ in range(12)})
    outlived = begun(histories)
    table = options(postgres_server, database)
    check(table, context(tmp_path))
    with postgres_server.connect(database) as session:
        session.execute(f"ALTER TABLE rows ADD UNIQUE (amount), ADD CHECK (name <> '{POISON}')")
        session.execute("INSERT INTO rows (id, amount) VALUES (100, 77)")
    delivery = outlived.delivery(
        PostgresSink(table, context(tmp_path)), DeliverySettings(part_rows=4)
    )
    delivery.advance()
    poison = row(random.Random(0), 7, poison=True)
    histories.change({
        **{id_: numbered(id_, 6 - id_) for id_ in range(1, 6)},
        6: numbered(6, 77),
        7: poison,
        8: numbered(8, 7),
        20: numbered(20, 6),
        9: None,
    })  # fmt: skip
    delivery.advance()
    wrong = {json.loads(each.raw)["row"]["id"] for each in outlived.refused}
    assert wrong == {6, 7}, "8 and 20 take what these had"
    wanted = histories.at(histories.last)
    assert rows(postgres_server, database) == Counter(
        {r: 1 for r in wanted if r[0] not in wrong} | {(100, None, Decimal(77), None, None): 1}
    )
    delivery.close()


@pytest.mark.parametrize("action", ["", "ON DELETE CASCADE"])
def test_rows_that_others_refer_to_are_moved_without_deleting_these(
    tmp_path: Path, postgres_server: Postgres, database: str, action: str
) -> None:
    histories = Histories()
    histories.change({id_: numbered(id_, id_) for id_ in range(8)})
    outlived = begun(histories)
    table = options(postgres_server, database)
    check(table, context(tmp_path))
    delivery = outlived.delivery(
        PostgresSink(table, context(tmp_path)), DeliverySettings(part_rows=4)
    )
    delivery.advance()
    with postgres_server.connect(database) as session:
        session.execute("ALTER TABLE rows ADD UNIQUE (amount)")
        session.execute(f"CREATE TABLE parts (id bigint REFERENCES rows {action})")
        session.execute("INSERT INTO parts VALUES (1), (2), (3)")
    histories.change({**{id_: numbered(id_, id_ + 1) for id_ in range(7)}, 7: None})
    delivery.advance()
    assert rows(postgres_server, database) == histories.at(histories.last)
    histories.change({1: numbered(1, 3), 2: numbered(2, 2)})
    delivery.advance()
    with postgres_server.connect(database) as session:
        assert session.execute("SELECT id FROM parts ORDER BY id").fetchall() == [(1,), (2,), (3,)]
    if action:
        assert len(outlived.refused) == 2, "a swap needs one of both to be deleted"
    else:
        assert rows(postgres_server, database) == histories.at(histories.last)
        assert outlived.refused == []
    delivery.close()


def test_dates_of_any_year_are_written_and_read_back(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    days, far = [0, 2_932_897, -719_529, -735_000, None], 2_932_897 * 86_400_000_000
    times = [0, far, 9_000_000_000_000_000_000, -735_000 * 86_400_000_000, None]
    of = Schema(
        (
            Column("id", t.LongType(), nullable=False),
            Column("d", t.DateType()),
            Column("z", t.TimestampType()),
            Column("n", t.TimestampNTZType()),
            Column("l", t.ArrayType(t.DateType())),
        )
    )
    listed = pa.array([[day] for day in days], pa.list_(pa.int32()))
    columns: list[Any] = [
        pa.array(range(5), pa.int64()),
        pa.array(days, pa.int32()).cast(pa.date32()),
        pa.array(times, pa.timestamp("us", "UTC")),
        pa.array(times, pa.timestamp("us")),
        listed.cast(pa.list_(pa.date32())),
    ]
    changes = pa.table([*columns, pa.array([1] * 5)], schema=of.arrow.append(pa.field(WEIGHT, pa.int64())))  # fmt: skip
    writer = opened(
        options(postgres_server, database), replace(context(tmp_path), schema=of, key=("id",))
    )
    assert writer.durable() is None
    assert list(writer.write(Epoch(1), [changes])) == []
    with postgres_server.connect(database) as session:
        texts = session.execute("SELECT d::text, n::text, l::text FROM rows ORDER BY id").fetchall()
    assert texts[1] == ("10000-01-01", "10000-01-01 00:00:00", "{10000-01-01}")
    assert texts[2][0] == "0002-12-31 BC"
    assert texts[2][1].startswith("287168-08-24")
    stored = writer.stored()
    assert stored is not None
    found = pa.concat_tables(stored).sort_by("id")
    for name in ("d", "z", "n"):
        assert found[name].equals(changes[name]), name
    writer.close()


@pytest.mark.parametrize("stops", [False, True])
def test_a_row_that_the_server_refuses_is_kept_or_stops_the_sink(
    tmp_path: Path, postgres_server: Postgres, database: str, *, stops: bool
) -> None:
    histories, some = Histories(), random.Random(5)
    histories.change({id_: row(some, id_) for id_ in range(20)})
    histories.change({id_: row(some, id_, poison=id_ in (4, 33)) for id_ in range(30, 36)})
    histories.change({4: row(some, 4, poison=True), 5: None})
    table = options(postgres_server, database)
    check(table, context(tmp_path))
    with postgres_server.connect(database) as session:
        session.execute(f"ALTER TABLE rows ADD CHECK (name <> '{POISON}')")
    outlived = begun(histories)
    outlived.record = replace(outlived.record, begins=Epoch(1))
    writer = PostgresSink(table, context(tmp_path, stops=stops))
    delivery = outlived.delivery(writer, DeliverySettings(part_rows=8, stops=stops))
    delivery.advance()
    if stops:
        assert (delivery.state, delivery.at) == ("stopped", 1)
        assert "check constraint" in (outlived.record.why or "")
        with postgres_server.connect(database) as session:
            session.execute("ALTER TABLE rows DROP CONSTRAINT rows_name_check")
        delivery.resume()
        delivery.advance()
        assert rows(postgres_server, database) == histories.at(histories.last)
    else:
        wanted = Counter(r for r in histories.at(histories.last) if r[1] != POISON)
        old = next(r for r, _ in histories.epochs[Epoch(1)] if r[0] == 4)
        assert rows(postgres_server, database) == wanted + Counter([old])
        assert [
            (each.file, '"id":33' in each.raw.replace(" ", "")) for each in outlived.refused
        ] == [
            ("epoch 2", True),
            ("epoch 3", False),
        ]
        assert all("check constraint" in each.reason for each in outlived.refused)
        first, second = (json.loads(each.raw) for each in outlived.refused)
        assert (first["op"], first["row"]["id"]) == ("+I", 33)
        assert (second["op"], second["row"]["id"], second["row"]["name"]) == ("+U", 4, POISON)
    delivery.close()


def test_a_deletion_that_is_refused_is_that_of_its_row(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    some = random.Random(2)
    old = {id_: row(some, id_) for id_ in range(4)}
    writer = opened(options(postgres_server, database), context(tmp_path))
    writer.write(Epoch(1), [table([(each, 1) for each in old.values()])])
    with postgres_server.connect(database) as session:
        session.execute(
            "CREATE TABLE child (id bigint REFERENCES rows); INSERT INTO child VALUES (3)"
        )
    changes = [(old[0], -1), (row(some, 0), 1), (old[1], -1), (row(some, 1), 1), (old[3], -1)]
    (refused,) = writer.write(Epoch(2), [table(changes)])
    line = json.loads(refused.row)
    assert (line["op"], line["weight"], line["row"]["id"]) == ("-D", -1, 3)
    assert "foreign key" in refused.why
    writer.close()


def test_a_table_that_does_not_fit_is_refused_with_what_to_do(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    given = context(tmp_path)

    def refused(**more: Any) -> HeadraceError:
        with pytest.raises(HeadraceError) as caught:
            check(options(postgres_server, database, **more), given)
        assert caught.value.code is Code.INVALID
        return caught.value

    missing = refused(create_table=False)
    assert "does not exist" in missing.primary
    assert 'numeric(12, 2), "at" timestamp with time zone' in (missing.hint or "")
    with postgres_server.connect(database) as session:
        session.execute("CREATE TABLE rows (id bigint, name text, amount numeric(12, 1),"
                        " at timestamptz, ok boolean)")  # fmt: skip
        assert "does not keep exactly" in refused().primary
        session.execute("ALTER TABLE rows ALTER amount TYPE numeric")
        assert "no unique index on (id)" in refused().primary
        session.execute("ALTER TABLE rows DROP ok, ADD PRIMARY KEY (id)")
        assert 'no column "ok"' in refused().primary
        session.execute("ALTER TABLE rows ADD ok boolean")
        PostgresSink(options(postgres_server, database), given).write(Epoch(1), [])
        other = replace(given, identity="histories/8")
        with pytest.raises(HeadraceError, match="another sink has written") as caught:
            check(options(postgres_server, database), other)
        assert caught.value.code is Code.CONFLICT
    with pytest.raises(HeadraceError, match="no unique key"):
        check(options(postgres_server, database), replace(given, key=()))
    with postgres_server.connect() as session:
        session.execute("CREATE ROLE other LOGIN PASSWORD 'right'")
    wrong = replace(options(postgres_server, database), user="other", password=SecretName("p"))
    with pytest.raises(HeadraceError, match="refused the connection") as caught:
        check(wrong, context(tmp_path, {"p": "wrong"}))
    assert caught.value.code is Code.INVALID
    assert "wrong" not in str(caught.value).replace("wrong password", "")


@pytest.mark.long
def test_a_server_that_stops_and_comes_back_is_given_what_is_left(
    tmp_path: Path, own_postgres: Postgres
) -> None:
    table = options(own_postgres, "postgres")
    check(table, context(tmp_path))

    def restart(number: int) -> None:
        if number % 3 == 0:
            own_postgres.stop("immediate" if number % 2 else "fast")
            own_postgres.start()

    prove(
        lambda: PostgresSink(table, context(tmp_path)),
        lambda: rows(own_postgres, "postgres"),
        seed=6,
        kills=7,
        killed=restart,
    )


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_session, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(access, "_ANSWER_SECONDS", 2)


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
def test_a_server_that_falls_silent_ends_what_waits_for_it(
    tmp_path: Path, own_postgres: Postgres
) -> None:
    some = random.Random(7)
    first, second = row(some, 1), row(some, 2)
    writer = opened(options(own_postgres, "postgres"), context(tmp_path))
    writer.write(Epoch(1), [table([(first, 1)])])

    def freezing() -> Iterator[pa.Table]:
        own_postgres.freeze()
        yield table([(second, 1)])

    try:
        with pytest.raises(HeadraceError, match="could not be reached") as caught:
            writer.write(Epoch(2), freezing())
    finally:
        own_postgres.thaw()
    assert caught.value.code is Code.UNAVAILABLE
    assert "opens no other session" in (caught.value.detail or "")
    assert writer.durable() == 1
    writer.write(Epoch(2), [table([(second, 1)])])
    assert rows(own_postgres, "postgres") == Counter([first, second])
    writer.close()


@pytest.mark.usefixtures("impatient")
def test_a_statement_that_takes_long_is_waited_for(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    new = row(random.Random(8), 1)
    writer = opened(options(postgres_server, database), context(tmp_path))
    writer.durable()
    with postgres_server.connect(database) as other, other.transaction():
        other.execute("LOCK TABLE rows")
        written = threading.Thread(target=writer.write, args=(Epoch(1), [table([(new, 1)])]))
        written.start()
        sessions = "SELECT sum(sessions) FROM pg_stat_database"
        with postgres_server.connect() as watching:
            (before,) = watching.execute(sessions).fetchone()
            until(lambda: watching.execute(sessions).fetchone()[0] > before + 2)
        assert written.is_alive()
    written.join()
    assert rows(postgres_server, database) == Counter([new])
    writer.close()


EVERY = {
    "yes": (t.BooleanType(), [True, False]),
    "tiny": (t.ByteType(), [-128, 127]),
    "small": (t.ShortType(), [-32768, 32767]),
    "whole": (t.IntegerType(), [-(2**31), 2**31 - 1]),
    "big": (t.LongType(), [-(2**63), 2**63 - 1]),
    "real": (t.FloatType(), [0.1, -0.0, math.inf, 3.4028235e38, 1e-45]),
    "double": (t.DoubleType(), [0.1, -0.0, -math.inf, math.nan, 1.7976931348623157e308, 5e-324]),
    "exact": (
        t.DecimalType(38, 10),
        [Decimal("-9999999999999999999999999999.0000000001"), Decimal(0)],
    ),
    "text": (t.StringType(), ["", "NULL", "\\N", "\\.", 'q"q,\r\n\t', "ßé😀", " x "]),
    "bytes": (t.BinaryType(), [b"", b"\x00\xff\\", b"x"]),
    "day": (t.DateType(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)]),
    "of_day": (t.TimeType(6), [dt.time(0), dt.time(23, 59, 59, 999999)]),
    "to_tenths": (t.TimeType(1), [dt.time(1, 2, 3, 900_000)]),
    "at": (
        t.TimestampType(),
        [
            dt.datetime(1, 1, 1, tzinfo=dt.UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
        ],
    ),
    "local": (t.TimestampNTZType(), [dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]),  # noqa: DTZ001
    "texts": (t.ArrayType(t.StringType()), [[], ["", None, 'a"b\\,{}', "NULL"]]),
    "exacts": (t.ArrayType(t.DecimalType(9, 2)), [[Decimal("1.50"), None]]),
    "flags": (t.ArrayType(t.BooleanType()), [[True, False, None]]),
    "blobs": (t.ArrayType(t.BinaryType()), [[b"\x00\\", b""]]),
    "times": (t.ArrayType(t.TimestampType()), [[dt.datetime(2026, 1, 1, 1, 2, 3, 4, dt.UTC)]]),
    "times_of_day": (t.ArrayType(t.TimeType(3)), [[dt.time(1, 2, 3, 4000), None]]),
    "floats": (t.ArrayType(t.DoubleType()), [[0.1, math.inf, -0.0]]),
}
"""Of each type, values at which something may go wrong."""


def test_every_value_of_every_type_comes_back_as_it_was(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    columns = (
        Column("id", t.IntegerType()),
        *(Column(n, type_) for n, (type_, _) in EVERY.items()),
    )
    schema = Schema(columns)
    most = max(len(values) for _, values in EVERY.values())
    data = {"id": list(range(most + 1))}
    data |= {n: [*v, *[None] * (most + 1 - len(v))] for n, (_, v) in EVERY.items()}
    written = pa.table(
        [pa.array(data[field.name], field.type) for field in schema.arrow], schema=schema.arrow
    )
    weights = pa.array([1] * written.num_rows, pa.int64())
    given = replace(context(tmp_path), schema=schema)
    writer = opened(options(postgres_server, database), given)
    assert writer.write(Epoch(1), [written.append_column(WEIGHT, weights)]) == []
    (found,) = writer.stored() or ()
    assert found.sort_by("id").cast(schema.arrow).to_pylist().__repr__() == (
        written.to_pylist().__repr__()
    )
    with SinkDifference.of(
        tmp_path, schema.arrow, KEY, [written.append_column(WEIGHT, weights)], writer.stored() or ()
    ) as difference:
        assert difference.counted().differences == 0
    changed = written.append_column(WEIGHT, pa.array([-1] * written.num_rows, pa.int64()))
    assert writer.write(Epoch(2), [changed]) == []
    assert sum(part.num_rows for part in writer.stored() or ()) == 0
    writer.close()


def test_a_process_that_was_replaced_writes_nothing_twice(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    to = options(postgres_server, database, mode=TableContents.APPEND)
    old, new = (opened(to, context(tmp_path)) for _ in range(2))
    some = random.Random(1)
    first, second, third = ([table([(row(some, n), 1)])] for n in range(3))
    assert old.durable() is None
    assert new.durable() is None
    new.write(Epoch(1), first)
    new.write(Epoch(2), second)
    assert list(old.write(Epoch(2), [*first, *second])) == []
    with pytest.raises(HeadraceError, match="another process") as caught:
        old.write(Epoch(3), [*first, *second, *third])
    assert caught.value.code is Code.UNAVAILABLE
    assert old.durable() == 2
    old.write(Epoch(3), third)
    assert sum(rows(postgres_server, database).values()) == 3
    old.close()
    new.close()


def test_a_server_that_is_restored_while_the_sink_runs_is_said_to_have_lost_changes(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    histories, some = Histories(), random.Random(8)
    histories.change({id_: row(some, id_) for id_ in range(9)})
    outlived = begun(histories)
    outlived.directory = tmp_path
    (tmp_path / "attempts").mkdir()
    writer = opened(options(postgres_server, database), context(tmp_path))
    delivery = outlived.delivery(writer, DeliverySettings(joins=True))
    delivery.advance()
    with postgres_server.connect(database) as session:
        session.execute(
            "CREATE TABLE kept AS TABLE rows; CREATE TABLE marks AS TABLE headrace_sinks"
        )
    histories.change({1: row(some, 1), 20: row(some, 20)})
    delivery.advance()
    with postgres_server.connect(database) as session:
        session.execute("TRUNCATE rows, headrace_sinks; INSERT INTO rows TABLE kept;"
                        " INSERT INTO headrace_sinks TABLE marks")  # fmt: skip
        before = session.execute("TABLE rows ORDER BY id").fetchall()
    histories.change({2: row(some, 2)})
    for _ in range(3):
        with pytest.raises(HeadraceError, match="has lost changes") as caught:
            delivery.advance()
        assert caught.value.code is Code.CONFLICT
        assert "RECONCILE SINK" in (caught.value.hint or "")
    with postgres_server.connect(database) as session:
        assert session.execute("TABLE rows ORDER BY id").fetchall() == before
    _, found = delivery.reconcile(SCHEMA.arrow, KEY, write=True)
    assert (found.missing, found.different) == (1, 2)
    assert delivery.state == "running"
    delivery.advance()
    assert rows(postgres_server, database) == histories.at(histories.last)
    delivery.close()


def test_a_table_that_is_dropped_is_not_replaced_by_an_empty_one(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    histories, some = Histories(), random.Random(9)
    histories.change({id_: row(some, id_) for id_ in range(9)})
    outlived = begun(histories)
    to = options(postgres_server, database)
    writer = opened(to, context(tmp_path))
    delivery = outlived.delivery(writer, DeliverySettings())
    delivery.advance()
    with postgres_server.connect(database) as session:
        session.execute("DROP TABLE rows")
    histories.change({2: row(some, 2)})
    for _ in range(2):
        with pytest.raises(HeadraceError, match="does not exist") as caught:
            delivery.advance()
        assert caught.value.code is Code.INVALID
    with pytest.raises(HeadraceError, match="does not exist"):
        check(to, replace(context(tmp_path), exists=True))
    delivery.reset()
    delivery.advance()
    assert rows(postgres_server, database) == histories.at(histories.last)
    delivery.close()


def test_a_sink_moves_only_to_a_server_that_has_what_it_wrote(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    given = context(tmp_path)
    writer = opened(options(postgres_server, database), given)
    writer.write(Epoch(3), [table([(row(random.Random(1), 1), 1)])])
    writer.close()
    moving = replace(given, exists=True, moved=Epoch(3))
    check(options(postgres_server, database), moving)  # the same one, under another name
    other = postgres_server.create(f"{database}_other")
    check(options(postgres_server, other), given)  # it has the table, and no record of the sink
    with pytest.raises(
        HeadraceError, match="does not contain what this sink has written"
    ) as caught:
        check(options(postgres_server, other), moving)
    assert caught.value.code is Code.CONFLICT
    assert "CREATE OR REPLACE the sink" in (caught.value.hint or "")


def test_text_that_the_server_cannot_hold_is_refused(
    tmp_path: Path, postgres_server: Postgres, database: str
) -> None:
    writer = opened(options(postgres_server, database), context(tmp_path))
    good, bad = row(random.Random(1), 1), (2, "a\0b", None, None, None)
    (refused,) = writer.write(Epoch(1), [table([(good, 1), (bad, 1)])])
    assert "0x00" in refused.why
    assert rows(postgres_server, database) == Counter([good])
    assert writer.durable() == 1
    assert [each.why for each in writer.last_refused()] == [refused.why]
    writer.close()


def test_each_type_has_a_column_that_keeps_it() -> None:
    for name, type_ in [("DECIMAL(p, s)", t.DecimalType(9, 2)), ("INT", t.IntegerType())]:
        assert name in MAPPING
        assert type_of(Column("c", type_)) == MAPPING[name].replace("p, s", "9, 2")
    assert type_of(Column("c", t.ArrayType(t.StringType()))) == "text[]"
    with pytest.raises(HeadraceError, match="to_json"):
        type_of(Column("c", t.MapType(t.StringType(), t.StringType())))
    assert keeps(PgType(1700, -1), t.DecimalType(38, 9))
    assert not keeps(PgType(1700, (10 << 16 | 1) + 4), t.DecimalType(9, 2))
    assert not keeps(PgType(1184, 3), t.TimestampType())
    assert not keeps(PgType(701, -1), t.DecimalType(9, 2))
    assert keeps(PgType(1009, -1, "text[]", PgType(25)), t.ArrayType(t.StringType()))
    assert Schema(()).names == ()
