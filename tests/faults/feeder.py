"""What feeds sinks until it is killed: it writes the same changes at every start, each once.

``feeder.py DIRECTORY BATCHES [STAGE NTH [THREAD]]`` prints ``ready`` once it is open and ``batch N``
after each batch; with a stage it kills itself, as ``kill -9`` does, when that stage is reached for
the NTH time, in a thread of that name. What is printed to a sink comes as lines of JSON.
FEEDER_TARGETS are other systems as an object of JSON, each with where it is: see TARGETS.
FEEDER_STAGES is a file that is told of each stage. At its end it prints ``done`` with what the
views hold, after checking that the sinks' tables hold the same, and after ``sinks`` the ids of
those to other systems.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from killing import dying, joined

from headrace.interfaces.database import Database
from headrace.interfaces.settings import Settings

ACCOUNTS = 5
DEFINITIONS = """
CREATE TABLE IF NOT EXISTS payments (id INT PRIMARY KEY, account INT, amount INT);
CREATE MATERIALIZED VIEW IF NOT EXISTS totals AS
  SELECT account, count(*) AS n, sum(amount) AS total FROM payments GROUP BY account;
CREATE MATERIALIZED VIEW IF NOT EXISTS large AS SELECT amount FROM payments WHERE amount > 50;
CREATE TABLE IF NOT EXISTS by_key (account INT PRIMARY KEY, n BIGINT, total BIGINT);
CREATE TABLE IF NOT EXISTS bag (amount INT);
CREATE TABLE IF NOT EXISTS copied (account INT, n BIGINT, total BIGINT) WITH (connector = 'kafka');
CREATE STREAM IF NOT EXISTS arrived (id INT);
CREATE MATERIALIZED VIEW IF NOT EXISTS seen AS SELECT id FROM arrived;
CREATE STREAM IF NOT EXISTS seen_again (id INT);
CREATE SINK IF NOT EXISTS k INTO by_key FROM totals WITH (batch_rows = 2);
CREATE SINK IF NOT EXISTS b INTO bag FROM large WITH (batch_rows = 1);
CREATE SINK IF NOT EXISTS s INTO seen_again FROM seen;
CREATE SINK IF NOT EXISTS f FROM totals WITH (connector = 'file', path = 'totals');
CREATE SINK IF NOT EXISTS c FROM large WITH (connector = 'file', path = 'large', format = csv);
CREATE SINK IF NOT EXISTS p FROM seen WITH (connector = 'print')
"""


TARGETS = {
    "postgres": {
        "to_totals": "connector = 'postgres', host = '127.0.0.1', port = {at[0]}, user = 'postgres',"
        " database = '{at[1]}', table = 'totals', create_table = true",
        "to_changes": "connector = 'postgres', host = '127.0.0.1', port = {at[0]}, user = 'postgres',"
        " database = '{at[1]}', table = 'changes', mode = 'append', create_table = true",
    },
    "kafka": {
        "to_kafka": "connector = 'kafka', brokers = '{at}', topic = 'killed-changes',"
        " partitions = 2, envelope = 'changelog'",
    },
    "redis": {
        "to_redis": "connector = 'redis', host = '127.0.0.1', port = {at},"
        " pattern = 'killed:{{account}}'",
    },
    "cassandra": {
        "to_cassandra": "connector = 'cassandra', hosts = '127.0.0.1', port = {at},"
        " user = 'cassandra', password = SECRET of_cassandra, keyspace = 'k', table = 'killed',"
        " create_table = true",
    },
    "dynamodb": {
        "to_dynamodb": "connector = 'dynamodb', endpoint = '{at}', region = 'eu-central-1',"
        " access_key = 'test', secret_key = SECRET of_dynamodb, table = 'killed',"
        " create_table = true",
    },
    "delta": {
        "to_delta": "connector = 'delta', path = '{at}/rows'",
        "to_delta_changes": "connector = 'delta', path = '{at}/changes', mode = 'append'",
    },
    "iceberg": {
        "to_iceberg": "connector = 'iceberg', path = '{at}', table = 'k.held'",
        "to_iceberg_changes": "connector = 'iceberg', path = '{at}', table = 'k.changes',"
        " mode = 'append'",
    },
}
"""The sinks from ``totals`` into each other system, by where that is."""
SECRETS = """
CREATE SECRET IF NOT EXISTS of_cassandra FROM ENV 'FEEDER_CASSANDRA';
CREATE SECRET IF NOT EXISTS of_dynamodb FROM ENV 'FEEDER_DYNAMODB'
"""


def main() -> None:
    """Feed, or die at the stage that is asked for."""
    directory, batches = Path(sys.argv[1]), int(sys.argv[2])
    with Database(
        directory,
        Settings.of({"partitions": 1}),
        joined(),
        fault=dying(sys.argv[3:], os.environ.get("FEEDER_STAGES")),
    ) as db:
        print("ready", flush=True)
        db.sql(DEFINITIONS)
        sinks = into_others(db)
        if "insert_into_copied" not in [name for name, *_ in db.sql("SHOW JOBS").fetchall()]:
            db.sql("INSERT INTO copied SELECT * FROM totals")
        for batch in range(batches):
            rows = [(batch * 4 + i, i % ACCOUNTS, (37 * batch + i) % 100) for i in range(4)]
            # What was there is paid anew: accounts change, and large payments go.
            rows += [(id_ // 2, id_ % 3, amount // 2) for id_, _, amount in rows]
            db.insert("payments", rows, producer="payments", sequence=batch)
            db.insert("arrived", [(batch,)], producer="arrived", sequence=batch)
            print("batch", batch, flush=True)
        db.flush()
        held = {name: contents(db, name) for name in ("totals", "large", "seen")}
        for name, table in SINKS:
            if contents(db, table) != held[name]:
                print("WRONG", table, contents(db, table), held[name], flush=True)
                sys.exit(3)
        wrong = [row for row in db.verify() if row[3] != "equal to batch"]
        if wrong:
            print("WRONG", wrong, flush=True)
            sys.exit(3)
        print("sinks", json.dumps(sinks), flush=True)
        print("done", json.dumps(held), flush=True)


def into_others(db: Database) -> dict[str, int]:
    """Make the sinks into other systems, where they are missing; return their ids by name."""
    made: dict[str, int] = {}
    targets = json.loads(os.environ.get("FEEDER_TARGETS", "{}"))
    if {"cassandra", "dynamodb"} & set(targets):
        db.sql(SECRETS)
    for target, at in targets.items():
        for name, options in TARGETS[target].items():
            with_ = options.format(at=at)
            db.sql(f"CREATE SINK IF NOT EXISTS {name} FROM totals WITH ({with_})")
            made[name] = db.parts.reader.catalog.resolve(name).id
    return made


SINKS = [("totals", "by_key"), ("totals", "copied"), ("large", "bag"), ("seen", "seen_again")]


def contents(db: Database, name: str) -> list[list[object]]:
    """Return the rows of a relation, in order."""
    return sorted([list(row) for row in db.sql(f"SELECT * FROM {name}").fetchall()])


if __name__ == "__main__":
    main()
