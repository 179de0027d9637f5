"""Secrets: references that outlive a restart, and values that are nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

VALUE = "s3cr3t-value"


def test_a_secret_is_read_when_it_is_needed_and_stored_nowhere(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_SECRET_OF_A_BROKER", VALUE)
    file = tmp_path / "token"
    file.write_text(f"{VALUE}\n", encoding="utf-8")
    place = tmp_path / "d"
    with headrace.connect(place, spark=spark, partitions=1, continuous=False) as db:
        said = db.sql(
            "CREATE SECRET broker FROM ENV 'HEADRACE_TEST_SECRET_OF_A_BROKER';"
            f" CREATE SECRET token FROM FILE '{file}'"
        )
        assert "not stored" in said.message
        secrets = db.parts.secrets
        assert (secrets.value("broker"), secrets.value("token")) == (VALUE, VALUE)
        with pytest.raises(HeadraceError, match='secret "token" exists already'):
            db.sql("CREATE SECRET token FROM ENV 'PATH'")
        assert "exists" in db.sql("CREATE SECRET IF NOT EXISTS token FROM ENV 'PATH'").message
        with pytest.raises(HeadraceError, match="cannot be read") as unset:
            db.sql("CREATE SECRET other FROM ENV 'HEADRACE_NO_SUCH_VARIABLE'")
        assert unset.value.code is Code.UNAVAILABLE
        with pytest.raises(HeadraceError, match="is a reference") as literal:
            db.sql(f"CREATE SECRET other AS '{VALUE}'")
        assert "FROM ENV" in (literal.value.hint or "")
        with pytest.raises(HeadraceError, match='secret "toke" does not exist') as missing:
            db.sql("DROP SECRET toke")
        assert missing.value.hint == 'Did you mean "token"?'
    with headrace.connect(place, spark=spark, continuous=False) as db:
        assert db.sql("SHOW SECRETS").fetchall() == [
            ("broker", "env", "HEADRACE_TEST_SECRET_OF_A_BROKER", None),
            ("token", "file", str(file), None),
        ]
        assert db.parts.secrets.value("token") == VALUE
        monkeypatch.delenv("HEADRACE_TEST_SECRET_OF_A_BROKER")
        ((_, _, _, problem),) = db.sql("SHOW SECRETS LIKE 'broker'").fetchall()
        assert "is not set" in problem
        db.sql("CREATE OR REPLACE SECRET broker FROM ENV 'PATH'; DROP SECRET token")
        assert "does not exist" in db.sql("DROP SECRET IF EXISTS token").message
        assert [name for name, *_ in db.sql("SHOW SECRETS")] == ["broker"]
    assert not any(
        VALUE.encode() in path.read_bytes() for path in place.rglob("*") if path.is_file()
    )


def test_an_option_takes_a_secret_only_where_it_is_one(db: headrace.Database) -> None:
    db.sql("CREATE TABLE t (k INT PRIMARY KEY); CREATE SECRET s FROM ENV 'PATH'")
    with pytest.raises(HeadraceError, match='option "path" is not a secret') as refused:
        db.sql("CREATE SINK out FROM t WITH (connector = 'file', path = SECRET s)")
    assert refused.value.span is not None
    with pytest.raises(HeadraceError, match="is not supported"):
        db.sql("SET x = SECRET s")
