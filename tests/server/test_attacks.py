"""What SQL over HTTP must not do: run code, read or write files, change Spark, see secrets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.interfaces.server.limits import Limits
from served import Client, served
from sessions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

CANARY = "canary-7c1f"
ATTACKS = [
    "SELECT TRANSFORM (k) USING 'touch {mark}' AS (k) FROM t",
    "FROM t MAP k USING 'touch {mark}' AS k",
    "SELECT reflect('java.lang.Runtime', 'getRuntime') AS r FROM t",
    "SELECT java_method('java.lang.System', 'getenv', 'HEADRACE_CANARY') AS r FROM t",
    "SELECT try_reflect('java.lang.System', 'getenv', 'HEADRACE_CANARY') AS r",
    "SELECT /* */ ReFlEcT('java.lang.System', 'getenv', 'HEADRACE_CANARY') AS r",
    "SELECT `reflect`('java.lang.System', 'getenv', 'HEADRACE_CANARY') AS r",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'getenv', 'HEADRACE_CANARY') AS r",
    "WITH c AS (SELECT reflect('java.lang.System', 'getenv', 'HEADRACE_CANARY') AS r) SELECT * FROM c",
    "SELECT k FROM t WHERE k IN (SELECT length(java_method('java.lang.System', 'lineSeparator')))",
    "CREATE VIEW evil AS SELECT reflect('java.lang.System', 'getenv', 'HEADRACE_CANARY') AS r FROM t",
    "CREATE MATERIALIZED VIEW evil AS SELECT java_method('a', 'b') AS r FROM t",
    "SELECT * FROM text.`{file}`",
    "SELECT * FROM csv./**/`{file}`",
    "SELECT * FROM IDENTIFIER('text.`{file}`')",
    "SELECT * FROM `text`.`{file}` -- ; SELECT 1",
    "TABLE text.`{file}`",
    "SELECT * FROM binaryFile.`{file}`",
    "SELECT * FROM read_files('{file}')",
    "CREATE TABLE evil USING text OPTIONS (path '{file}')",
    "CREATE TEMPORARY VIEW evil USING text OPTIONS (path '{file}')",
    "INSERT OVERWRITE DIRECTORY '{mark}' USING text SELECT name FROM t",
    "COPY t FROM '{file}'",
    "CoPy/**/t FROM '{file}'",
    "COPY t FROM '{root}/../secret.txt'",
    "COPY t FROM '{root}/link'",
    "CREATE STREAM evil (x STRING) WITH (connector = 'filesystem', path = '{file}', format = 'csv')",
    "CREATE STREAM evil (x STRING) WITH (\"CONNECTOR\" = 'FileSystem', 'PATH' = 'file://{file}', format = 'csv')",
    "CREATE SECRET evil FROM FILE '{file}'",
    "CREATE SECRET evil FROM ENV 'HEADRACE_CANARY'",
    "ADD JAR '{file}'",
    "ADD FILE '{file}'",
    "LIST FILES",
    "SET spark.sql.ansi.enabled = false",
    "SET -v",
    "RESET spark.sql.ansi.enabled",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "BEGIN DECLARE x INT; SELECT 1; END",
    "DECLARE VARIABLE x INT DEFAULT 1",
    "CREATE FUNCTION evil AS 'java.lang.Runtime' USING JAR '{file}'",
    "LOAD DATA INPATH '{file}' INTO TABLE t",
    "DESCRIBE FUNCTION EXTENDED reflect",
    "USE spark_catalog",
    "SHOW CATALOGS",
    "REFRESH '{file}'",
    "CREATE SINK evil FROM t WITH (connector = 'file', path = '../../evil')",
    "SELECT * FROM t; ADD JAR '{file}'",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("attacked")
    (found / "secret.txt").write_text(f"{CANARY}\n")
    (found / "root").mkdir()
    (found / "root" / "rows.csv").write_text("k,name\n9,nine\n")
    (found / "root" / "link").symlink_to(found / "secret.txt")
    return found


@pytest.fixture(scope="module")
def attacked(place: Path, spark: SparkSession) -> Iterator[Client]:
    os.environ["HEADRACE_CANARY"] = CANARY
    with (
        headrace.connect(place / "db", spark=spark, partitions=PARTITIONS) as database,
        served(database, Limits(), [place / "root"]) as running,
    ):
        running.client.sql("CREATE TABLE t (k INT PRIMARY KEY, name STRING)")
        running.client.sql("INSERT INTO t VALUES (1, 'one')")
        yield running.client
    del os.environ["HEADRACE_CANARY"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_and_shows_nothing(attacked: Client, place: Path, attack: str):
    mark = place / "mark"
    sql = attack.format(mark=mark, file=place / "secret.txt", root=place / "root")
    for answer in (attacked.sql(sql), attacked.get("/v1/subscribe", sql=sql)):
        assert answer.status in (400, 422), answer.body
        assert CANARY.encode() not in answer.body
        assert b"Traceback" not in answer.body
        assert b"org.apache" not in answer.body
        assert str(place / "db").encode() not in answer.body
    assert not mark.exists()
    assert attacked.rows("SELECT * FROM t") == [[1, "one"]]
    assert [row[0] for row in attacked.rows("SHOW TABLES")] == ["t"]


@pytest.mark.long
def test_a_query_that_is_nested_too_deeply_is_refused_and_shows_nothing(attacked: Client):
    answer = attacked.sql("SELECT " + "(" * 3000 + "1" + ")" * 3000)
    assert answer.status == 422
    assert answer.error["primary"] == "the query is nested too deeply"
    assert b"java" not in answer.body
    assert len(answer.error["span"]["text"]) <= 200


def test_files_below_a_named_directory_are_read(attacked: Client, place: Path):
    attacked.sql("CREATE TABLE u (k INT PRIMARY KEY, name STRING)")
    answer = attacked.sql(f"COPY u FROM '{place / 'root' / 'rows.csv'}'")
    assert answer.status == 200, answer.body
    assert attacked.rows("SELECT * FROM u") == [[9, "nine"]]
    attacked.sql("DROP TABLE u")
