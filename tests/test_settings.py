"""Settings that make no sense or cannot take effect, and paths that cannot be data directories."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.interfaces.settings import Settings
from headrace.storage.ledger import data_directory, prepare_directory


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"driver_memory": "lots"}, "512m or more"),
        ({"driver_memory": "100m"}, "512m or more"),
        ({"attempts": 0}, "from 1 to 100"),
        ({"partitions": 0}, "from 1 to 1024"),
        ({"fill_rows": 0}, "1 or more"),
        ({"continuous": 1}, "true or false"),
        ({"partition": 4}, '"partitions"'),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_before_spark_starts(given, hint):
    with pytest.raises(HeadraceError) as refused:
        Settings.of(given, {})
    assert refused.value.code is Code.INVALID
    assert hint in refused.value.hint


def test_a_variable_that_is_nearly_that_of_a_setting_is_refused():
    with pytest.raises(HeadraceError, match="HEADRACE_PARTITION") as refused:
        Settings.of({}, {"HEADRACE_PARTITION": "4"})
    assert refused.value.hint == 'Did you mean "HEADRACE_PARTITIONS"?'
    fine = {"HEADRACE_HISTORY": "h", "HEADRACE_PARTITIONS": "3", "HEADRACE_SITE": "x"}
    assert Settings.of({}, fine).partitions == 3
    with pytest.raises(HeadraceError, match="HEADRACE_DRIVER_MEMORY"):
        Settings.of({}, {"HEADRACE_DRIVER_MEMORY": "1"})


def test_a_path_that_cannot_be_a_data_directory_is_refused_and_left_alone(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("mine")
    file = other / "letter.txt"
    for path in (file, file / "below", Path("/proc/none"), other):
        with pytest.raises(HeadraceError) as refused:
            prepare_directory(path)
        assert refused.value.code is Code.INVALID
        assert str(path) in refused.value.primary
    assert [path.name for path in other.iterdir()] == ["letter.txt"]
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "new" / "deep"):
        prepare_directory(path)
        assert (path / "log").is_dir()


@pytest.mark.parametrize(
    "target",
    ["hdfs://n/d", "postgresql://u@h/d", "jdbc:postgresql://h", "ftp://d"],
)
def test_a_url_that_is_no_directory_is_refused_and_makes_none(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (target, Path(target)):
        with pytest.raises(HeadraceError) as refused:
            headrace.connect(given)
        assert refused.value.code is Code.UNSUPPORTED
        assert target.rpartition(":")[0] in refused.value.primary
    assert not list(tmp_path.iterdir())


def test_a_file_url_is_a_path():
    assert data_directory("file:///tmp/a%20b") == Path("/tmp/a b")  # noqa: S108
    for path in ("data", "./data", "c:d", "/a:/b"):
        assert data_directory(path) == Path(path)
    with pytest.raises(HeadraceError, match="host"):
        data_directory("file://elsewhere/data")


def test_what_a_running_database_or_spark_cannot_take_on_is_said(tmp_path, spark):
    settings = {"spark": spark, "continuous": False}
    with headrace.connect(tmp_path / "d", partitions=2, **settings) as db:
        assert repr(db) == f"<headrace.Database '{tmp_path / 'd'}', 0 relations, epoch 0>"
        db.sql("CREATE TABLE t (k INT, v STRING)")
        with db.subscribe("t") as following:
            assert repr(following) == "<headrace.Subscription to (k, v), at epoch 0>"
    assert repr(db) == f"<headrace.Database '{tmp_path / 'd'}', closed>"
    with pytest.raises(HeadraceError, match='"partitions" cannot be 4') as refused:
        headrace.connect(tmp_path / "d", partitions=4, **settings)
    assert refused.value.hint == "Leave it out, or give 2."
    with (
        pytest.warns(UserWarning, match="driver_memory='7g' has no effect"),
        headrace.connect(tmp_path / "d", driver_memory="7g", **settings),
    ):
        pass
    headrace.connect(tmp_path / "d", driver_memory="2g", **settings).close()
