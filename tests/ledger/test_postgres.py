"""A ledger in PostgreSQL: its directory, its one writer, what it refuses, and what it shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from headrace.errors import Code, HeadraceError
from headrace.interfaces.settings import Settings
from headrace.storage.ledger import EpochCommit, Ledger, Mode, PostgresAddress, open_ledger
from headrace.storage.ledger.modes import Availability
from headrace.storage.ledger.postgres import SessionLock, lock_key
from headrace.types import Epoch
from ledger.building import relation, segment, step
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers.postgres import Postgres

ROOT = Path(__file__).parents[2]
PASSWORD = "s3cr:t/pä@ss"  # noqa: S105
HIDDEN = "hunter" + "2"


def refused(*arguments: object, **settings: object) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        open_ledger(*arguments, **settings)  # type: ignore[arg-type]
    return caught.value


# Directories


def test_a_directory_and_a_ledger_belong_to_each_other(
    tmp_path: Path, postgres_server: Postgres, postgres_url: str
) -> None:
    address = PostgresAddress.of(postgres_url)
    with open_ledger(tmp_path / "a", address) as ledger:
        identity = ledger.settings.identity
        ledger.commit(EpochCommit(Epoch(0), "first", created=(relation(ledger, "orders"),)))
    (tmp_path / "a").rename(tmp_path / "moved")
    with open_ledger(tmp_path / "moved", address) as ledger:
        assert (ledger.settings.identity, ledger.head.epoch) == (identity, 1)

    other = refused(tmp_path / "b", address)
    assert other.code is Code.INVALID
    assert ledger.place in other.primary
    assert str(tmp_path / "b") in other.primary
    assert str(tmp_path / "moved") in (other.detail or "")

    elsewhere = PostgresAddress.of(postgres_server.empty())
    for given in (None, elsewhere):
        found = refused(tmp_path / "moved", given)
        assert found.code is Code.INVALID
        assert str(tmp_path / "moved") in found.primary
        assert ledger.place in (found.detail or "")
        assert (elsewhere.place if given else "ledger.db") in (found.detail or "")
    with pytest.raises(HeadraceError, match="does not exist"):
        Ledger.open(elsewhere, Mode.READ)  # what is refused creates nothing
    with open_ledger(tmp_path / "c", elsewhere):
        pass
    assert ledger.place in (refused(tmp_path / "moved", elsewhere).detail or "")
    assert str(tmp_path / "c") in (refused(tmp_path / "d", elsewhere).detail or "")


def test_a_directory_with_a_ledger_of_its_own_takes_no_other(
    tmp_path: Path, postgres_url: str
) -> None:
    open_ledger(tmp_path).close()
    found = refused(tmp_path, PostgresAddress.of(postgres_url))
    assert found.code is Code.INVALID
    assert str(tmp_path / "ledger.db") in (found.detail or "")
    assert PostgresAddress.of(postgres_url).place in (found.detail or "")


def test_a_directory_with_data_and_no_name_of_a_ledger_is_refused(
    tmp_path: Path, postgres_url: str
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "a.arrow").touch()
    assert refused(tmp_path, PostgresAddress.of(postgres_url)).code is Code.CORRUPT


def test_a_crash_between_the_names_leaves_a_directory_that_opens(
    tmp_path: Path, postgres_url: str
) -> None:
    address = PostgresAddress.of(postgres_url)

    class CrashError(Exception):
        pass

    armed = []

    def crash(stage: str) -> None:
        if armed and stage == "before commit":
            raise CrashError

    armed.append(True)
    with pytest.raises(CrashError):
        open_ledger(tmp_path / "a", address, fault=crash)
    assert (tmp_path / "a" / "ledger.json").exists()
    open_ledger(tmp_path / "a", address).close()
    assert str(tmp_path / "a") in (refused(tmp_path / "b", address).detail or "")


# Schemas and rights


def test_schemas_of_one_database_have_a_ledger_each(
    tmp_path: Path, postgres_server: Postgres, postgres_url: str
) -> None:
    first = PostgresAddress.of(postgres_url, 'Odd "name"')
    database = postgres_url.rpartition("/")[2]
    with postgres_server.connect(database) as session:
        session.execute("CREATE SCHEMA own")
    second = PostgresAddress.of(f"{postgres_url}?options=-csearch_path%3Down")
    third = PostgresAddress.of(postgres_url)
    with (
        open_ledger(tmp_path / "a", first) as a,
        open_ledger(tmp_path / "b", second) as b,
        open_ledger(tmp_path / "c", third) as c,
    ):
        step(a)
        step(a)
        step(b)
        assert (a.head.epoch, b.head.epoch, c.head.epoch) == (2, 1, 0)
        assert len({each.settings.identity for each in (a, b, c)}) == 3
        assert a.place.endswith('schema Odd "name"')
        assert b.place.endswith("schema own")
        assert "schema" not in c.place


@pytest.fixture
def limited(postgres_server: Postgres, postgres_url: str) -> Iterator[str]:
    """The URL of a role that may create nothing, with a password."""
    database = postgres_url.rpartition("/")[2]
    with postgres_server.connect(database) as session:
        session.execute("DROP ROLE IF EXISTS limited")
        session.execute(f"CREATE ROLE limited LOGIN PASSWORD '{PASSWORD}'")
    quoted = PASSWORD.replace("/", "%2F").replace("@", "%40").replace(":", "%3A")
    yield f"postgresql://limited:{quoted}@127.0.0.1:{postgres_server.port}/{database}"
    with postgres_server.connect(database) as session:
        session.execute("DROP OWNED BY limited")
        session.execute("DROP ROLE limited")


def test_a_role_that_may_not_create_is_told_what_it_lacks(
    tmp_path: Path, limited: str, postgres_server: Postgres
) -> None:
    for address in (PostgresAddress.of(limited), PostgresAddress.of(limited, "mine")):
        found = refused(tmp_path / "a", address)
        assert found.code is Code.INVALID
        assert "role may not create" in found.primary
        assert "GRANT" in (found.hint or "")
    with postgres_server.connect(limited.rpartition("/")[2]) as session:
        session.execute("CREATE SCHEMA mine AUTHORIZATION limited")
    with open_ledger(tmp_path / "a", PostgresAddress.of(limited, "mine")) as ledger:
        step(ledger)


def test_a_schema_with_tables_of_another_program_is_refused(
    tmp_path: Path, postgres_server: Postgres, postgres_url: str
) -> None:
    with postgres_server.connect(postgres_url.rpartition("/")[2]) as session:
        session.execute("CREATE TABLE objects (a int)")
    found = refused(tmp_path / "a", PostgresAddress.of(postgres_url))
    assert found.code is Code.INVALID
    assert '"objects"' in (found.detail or "")


def test_a_password_comes_from_the_url_or_a_file_that_is_read_again(
    tmp_path: Path, limited: str, postgres_server: Postgres
) -> None:
    with postgres_server.connect(limited.rpartition("/")[2]) as session:
        session.execute("CREATE SCHEMA mine AUTHORIZATION limited")
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n", encoding="utf-8")
    scheme, _, rest = limited.partition("limited:")
    bare = f"{scheme}limited@{rest.partition('@')[2]}"
    settings = {"ledger": bare, "ledger_schema": "mine", "ledger_password_file": str(file)}
    address = Settings.of(settings, {}).ledger_address
    with open_ledger(tmp_path / "a", address) as ledger:
        step(ledger)
    file.write_text("wrong", encoding="utf-8")
    found = refused(tmp_path / "a", address)
    assert found.code is Code.INVALID
    assert "refused the user or the database" in found.primary
    file.unlink()
    assert refused(tmp_path / "a", address).code is Code.UNAVAILABLE


# Secrets


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2word@127.0.0.1:1/d",
        "postgresql://u:hunter2word@h:port/d",
        "postgresql://u:hunter2%zzword@h/d",
        "postgresql://u:hunter2word@h/d?nonsense=1",
        "mysql://u:hunter2word@h/d",
    ],
)
def test_a_password_is_never_shown(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:

    def opened() -> None:
        settings = Settings.of({"ledger": url}, {})
        assert HIDDEN not in repr(settings)
        assert HIDDEN not in repr(settings.ledger_address)
        open_ledger(tmp_path, settings.ledger_address)

    with pytest.raises(HeadraceError) as caught:
        opened()
    shown = "".join(traceback.format_exception(caught.value))
    assert HIDDEN not in shown
    assert HIDDEN not in caplog.text
    with pytest.raises(HeadraceError) as other:
        Settings.of({}, {"HEADRACE_LEDGER": url.replace("postgresql", "mysql")})
    assert HIDDEN not in str(other.value)
    with pytest.raises(HeadraceError) as wrong:
        Settings.of({"ledger": url.encode()}, {})
    assert HIDDEN not in str(wrong.value)


# One writer


HOLD = """
import sys
from headrace.storage.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
ledger.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(postgres_url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that writes to the ledger."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, postgres_url],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_writer_is_told_who_writes(
    holder: subprocess.Popen[str], postgres_url: str
) -> None:
    with Ledger.open(postgres_url) as ledger:
        with pytest.raises(HeadraceError, match="is open for writing in process") as caught:
            ledger.acquire()
        assert caught.value.code is Code.CONFLICT
        assert str(holder.pid) in caught.value.primary
        assert os.uname().nodename in caught.value.primary
        assert "since 20" in caught.value.primary
        assert ledger.writer is not None
        assert ledger.writer.pid == holder.pid
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert ledger.acquire(lambda _error: True) == 2


@pytest.mark.long
def test_who_waits_takes_over_when_the_writer_ends(
    holder: subprocess.Popen[str], postgres_url: str
) -> None:
    asked = threading.Event()
    errors: list[HeadraceError] = []

    def waits(error: HeadraceError) -> bool:
        errors.append(error)
        asked.set()
        return True

    with Ledger.open(postgres_url) as ledger:
        waiting = threading.Thread(target=lambda: ledger.acquire(waits))
        waiting.start()
        assert asked.wait(30)
        holder.kill()
        waiting.join(30)
        assert not waiting.is_alive()
        step(ledger)
        assert str(holder.pid) in errors[0].primary


def test_a_writer_whose_sessions_were_lost_can_never_commit_after_another_took_over(
    postgres_server: Postgres, postgres_url: str
) -> None:
    with Ledger.open(postgres_url) as first:
        first.acquire()
        made = relation(first, "orders")
        first.commit(EpochCommit(Epoch(0), "first", created=(made,)))
        first._transactions.store.database.release()
        with postgres_server.connect(postgres_url.rpartition("/")[2]) as session:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        with Ledger.open(postgres_url) as second:
            assert second.acquire() == 2
            for write in (
                lambda: first.log.append(made.relation, segment()),
                lambda: first.commit(EpochCommit(Epoch(1), "stale")),
            ):
                with pytest.raises(HeadraceError, match="another process took over"):
                    write()
            step(second)
            assert second.head.epoch == 2


def test_a_token_that_a_restored_database_repeats_lets_no_former_writer_in(
    postgres_server: Postgres, postgres_url: str
) -> None:
    with Ledger.open(postgres_url) as first, Ledger.open(postgres_url) as second:
        first.acquire()
        first._transactions.store.database.release()
        second.acquire()
        with postgres_server.connect(postgres_url.rpartition("/")[2]) as session:
            session.execute("UPDATE fence SET token = 1")
        with pytest.raises(HeadraceError, match="another process took over"):
            step(first)


def test_a_writer_whose_writes_the_database_has_lost_does_not_go_on(
    postgres_server: Postgres, postgres_url: str
) -> None:
    with Ledger.open(postgres_url) as ledger:
        ledger.acquire()
        step(ledger)
        with postgres_server.connect(postgres_url.rpartition("/")[2]) as session:
            session.execute("DELETE FROM epochs WHERE epoch = 1")
            session.execute("UPDATE meta SET value = '0' WHERE key = 'written'")
        with pytest.raises(HeadraceError, match="has lost writes") as caught:
            step(ledger)
        assert caught.value.code is Code.CONFLICT
    with Ledger.open(postgres_url) as again:
        again.acquire()
        assert again.head.epoch == 0


def test_a_pool_that_shares_sessions_between_transactions_is_refused(
    postgres_url: str,
) -> None:
    address = PostgresAddress.of(postgres_url)
    shared = address.connect()

    class Shared:
        """A session that another one shares, as in a pool of transactions."""

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def execute(self, text: str) -> object:
            return shared.execute(text)

        def close(self) -> None:
            pass

    answers = Availability("there", 0.0, lambda: True)
    lock = SessionLock(Shared, lock_key("test"), "there", answers, lambda: None)
    with pytest.raises(HeadraceError, match="pool of transactions") as caught:
        lock.acquire(lambda _error: False, lambda: None)
    assert caught.value.code is Code.UNSUPPORTED
    shared.close()


def test_a_lock_whose_session_was_lost_is_taken_again(
    postgres_server: Postgres, postgres_url: str
) -> None:
    with Ledger.open(postgres_url) as ledger, Ledger.open(postgres_url) as other:
        ledger.acquire()
        with postgres_server.connect(postgres_url.rpartition("/")[2]) as session:
            held = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
            (before,) = session.execute(held).fetchone()
            session.execute(f"SELECT pg_terminate_backend({before})")
            while (found := session.execute(held).fetchone()) in (None, (before,)):
                pass
            assert found != (before,)
        with pytest.raises(HeadraceError, match="is open for writing"):
            other.acquire()
        step(ledger)


def test_a_process_that_writes_nothing_notices_that_another_took_over(
    postgres_server: Postgres, postgres_url: str
) -> None:
    with Ledger.open(postgres_url) as idle, Ledger.open(postgres_url) as other:
        idle.acquire()
        waiting = threading.Thread(target=lambda: other.acquire(lambda _error: True))
        waiting.start()
        with postgres_server.connect(postgres_url.rpartition("/")[2]) as session:
            locks = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted = %s"
            until(lambda: session.execute(locks, [False]).fetchone() is not None)
            (holder,) = session.execute(locks, [True]).fetchone()
            session.execute("SELECT pg_terminate_backend(%s)", [holder])
        waiting.join(30)
        until(lambda: idle.overtaken is not None)
        assert other.overtaken is None
