r"""The synopsis of each statement, which ``\h`` shows."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import Code, HeadraceError, meant
from headrace.planning.sql import Listing


@dataclass(frozen=True, slots=True)
class Synopsis:
    """What a statement does, its form, and an example."""

    does: str
    form: str
    example: str


STATEMENTS: dict[str, Synopsis] = {
    "ACKNOWLEDGE": Synopsis(
        "say that rejected rows need no attention any more; they stay listed",
        "ACKNOWLEDGE REJECTS [id, ...] FOR stream | table | sink",
        "ACKNOWLEDGE REJECTS FOR orders;",
    ),
    "CREATE SCHEMA": Synopsis(
        "create a schema, whose name can qualify names of relations",
        "CREATE SCHEMA [IF NOT EXISTS] name",
        "CREATE SCHEMA gold;",
    ),
    "CREATE STREAM": Synopsis(
        "declare an append-only stream in the embedded log",
        "CREATE [OR REPLACE] STREAM [IF NOT EXISTS] name (column TYPE [NOT NULL], ...)",
        "CREATE STREAM readings (sensor STRING, reading INT);",
    ),
    "CREATE TABLE": Synopsis(
        "declare a table, or store the result of a query as one",
        "CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name\n"
        "  (column TYPE [NOT NULL], ..., [PRIMARY KEY (column, ...)])\n"
        "  [WITH (effective_from = 'column')]\n"
        "CREATE TABLE name AS SELECT ...",
        "CREATE TABLE orders (id INT, customer STRING, amount DECIMAL(10,2), PRIMARY KEY (id));",
    ),
    "CREATE MATERIALIZED VIEW": Synopsis(
        "keep the result of a query up to date",
        "CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS] name AS SELECT ...",
        "CREATE MATERIALIZED VIEW totals AS\n"
        "  SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;",
    ),
    "CREATE VIEW": Synopsis(
        "name a query, to be used in other queries; nothing is stored",
        "CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name AS SELECT ...",
        "CREATE VIEW big AS SELECT * FROM orders WHERE amount > 20;",
    ),
    "CREATE FUNCTION": Synopsis(
        "name an expression, for calls in queries",
        "CREATE [OR REPLACE] FUNCTION [IF NOT EXISTS] name (parameter TYPE, ...) RETURNS TYPE\n"
        "  RETURN expression\n"
        "DROP FUNCTION [IF EXISTS] name [CASCADE]\nSHOW CREATE FUNCTION name",
        "CREATE FUNCTION vat(amount DECIMAL(10,2)) RETURNS DECIMAL(10,2) RETURN amount * 0.25;",
    ),
    "CREATE SECRET": Synopsis(
        "refer to a password or key, whose value is read when it is needed",
        "CREATE [OR REPLACE] SECRET [IF NOT EXISTS] name FROM ENV 'VARIABLE' | FILE 'path'",
        "CREATE SECRET broker FROM ENV 'BROKER_PASSWORD';",
    ),
    "CREATE INDEX": Synopsis(
        "find rows of a table or view by other columns than its key, as fast",
        "CREATE INDEX [IF NOT EXISTS] [name] ON relation (column, ...)\n"
        "DROP INDEX [IF EXISTS] name\nSHOW INDEXES [FROM relation]",
        "CREATE INDEX by_city ON users (city);",
    ),
    "CREATE TOKEN": Synopsis(
        "make an access token for a server's client; its secret is shown once",
        "CREATE TOKEN name [VALID FOR INTERVAL 'n' DAY]\nDROP TOKEN [IF EXISTS] name\nSHOW TOKENS",
        "CREATE TOKEN dashboard VALID FOR INTERVAL '90' DAY;",
    ),
    "GRANT": Synopsis(
        "let the holder of a token read, change rows, or create and drop",
        "GRANT READER | WRITER | OWNER ON SCHEMA schema | DATABASE TO token\n"
        "SHOW GRANTS [FOR token]",
        "GRANT READER ON SCHEMA gold TO dashboard;",
    ),
    "REVOKE": Synopsis(
        "take a granted role back",
        "REVOKE READER | WRITER | OWNER ON SCHEMA schema | DATABASE FROM token",
        "REVOKE READER ON SCHEMA gold FROM dashboard;",
    ),
    "CREATE CONNECTION": Synopsis(
        "name how another system is reached, for streams, sources and sinks",
        "CREATE CONNECTION [IF NOT EXISTS] name\n"
        "  TO KAFKA | POSTGRES | REDIS | CASSANDRA | DYNAMODB | S3 | ICEBERG | WEBHOOK\n"
        "  (KEY 'value', ...)",
        "CREATE CONNECTION shop TO POSTGRES\n"
        "  (HOST 'db.example.com', DATABASE 'shop', USER 'headrace', PASSWORD SECRET shop);",
    ),
    "CREATE SOURCE": Synopsis(
        "follow tables of a PostgreSQL database, through a publication",
        "CREATE SOURCE [IF NOT EXISTS] name FROM POSTGRES CONNECTION connection\n"
        "  (PUBLICATION 'name' [, SLOT 'name']) [FOR ALL TABLES | FOR TABLES (a [AS name], ...)]\n"
        "CREATE TABLE name [(column TYPE, ...)] FROM SOURCE source (REFERENCE schema.table)",
        "CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR TABLES (orders);",
    ),
    "DROP": Synopsis(
        "remove a relation; CASCADE also those that depend on it",
        "DROP STREAM | TABLE | SOURCE | VIEW | MATERIALIZED VIEW | SCHEMA | SECRET | CONNECTION\n"
        "  | SINK | JOB\n"
        "  [IF EXISTS] name [CASCADE]",
        "DROP MATERIALIZED VIEW totals;",
    ),
    "INSERT": Synopsis(
        "add rows",
        "INSERT INTO name [(column, ...)] VALUES (value, ...), ... | SELECT ...",
        "INSERT INTO orders VALUES (1, 'ann', 30), (2, 'bob', 12.50);",
    ),
    "UPDATE": Synopsis(
        "change rows of a table",
        "UPDATE name SET column = expression, ... [WHERE condition]",
        "UPDATE orders SET amount = amount + 1 WHERE customer = 'ann';",
    ),
    "DELETE": Synopsis(
        "remove rows of a table",
        "DELETE FROM name [WHERE condition]",
        "DELETE FROM orders WHERE id = 2;",
    ),
    "TRUNCATE": Synopsis(
        "remove all rows of a table", "TRUNCATE TABLE name", "TRUNCATE TABLE orders;"
    ),
    "COPY": Synopsis(
        "load a file, storing rows that do not fit as rejects; or write rows to one",
        "COPY name [(column, ...)] FROM 'file' [WITH (option = 'value', ...)]\n"
        "COPY name [(column, ...)] | (query) TO 'file' [WITH (format, header, delimiter)]\n"
        "  format = csv | json | parquet, header = true | false, delimiter, quote, null;\n"
        "  restart = true: read from the beginning a file whose COPY stopped partway\n"
        "  once = true: skip a file that was copied before; of a pattern, the default",
        "COPY orders FROM 'orders.csv';",
    ),
    "SELECT": Synopsis(
        "read streams, tables and views with all of Spark SQL",
        "SELECT ... FROM name ... [AS OF EPOCH n | AS OF TIMESTAMP '...']\n"
        "SELECT ... FROM name FOR CHANGES BETWEEN EPOCH n AND m ...\n"
        "SELECT ... FROM AS_OF(TABLE pairs, [DESCRIPTOR(time),] view[(column, ...)], ...) ...\n"
        "SELECT ... FROM name ... EMIT CHANGES",
        "SELECT customer, total FROM totals ORDER BY total DESC;",
    ),
    "FROM": Synopsis(
        "read with the relation first", "FROM name SELECT ...", "FROM totals SELECT customer;"
    ),
    "TABLE": Synopsis("read a whole relation", "TABLE name", "TABLE totals;"),
    "VALUES": Synopsis("make rows of values", "VALUES (value, ...), ...", "VALUES (1, 'one');"),
    "WITH": Synopsis(
        "name parts of a query, then read them",
        "WITH name AS (SELECT ...), ... SELECT ...",
        "WITH big AS (SELECT * FROM orders WHERE amount > 20) SELECT count(*) FROM big;",
    ),
    "SUBSCRIBE": Synopsis(
        "follow a relation or a query: its rows, then its changes, until Ctrl-C",
        "SUBSCRIBE [TO] name | (SELECT ...) [AS OF EPOCH n]",
        "SUBSCRIBE totals;",
    ),
    "PRINT": Synopsis(
        "follow the rows of a topic or a relation, from now on or from the first one",
        "PRINT name [FROM BEGINNING] [LIMIT n]",
        "PRINT readings FROM BEGINNING LIMIT 3;",
    ),
    "SHOW": Synopsis(
        "list objects, those with names by a pattern",
        f"SHOW {' | '.join(listing.value.upper() for listing in Listing)} [LIKE 'pattern%']\n"
        "SHOW PROPERTIES\nSHOW REJECTS | DIRTY [FOR name]\n"
        "SHOW ERRORS FOR name\nSHOW CREATE name\n"
        "SHOW LINEAGE OF name[.column] [UPSTREAM | DOWNSTREAM]\n"
        "SHOW LINEAGE [OF name] FORMAT OPENLINEAGE",
        "SHOW FRESHNESS;",
    ),
    "DESCRIBE": Synopsis(
        "list the columns of a relation; EXTENDED also its query, key and sizes",
        "DESCRIBE [EXTENDED] name",
        "DESCRIBE EXTENDED totals;",
    ),
    "EXPLAIN": Synopsis(
        "show what a query would store, and what a change would cost",
        "EXPLAIN [MAINTENANCE | CIRCUIT | LINEAGE] SELECT ...\n"
        "EXPLAIN [MAINTENANCE | CIRCUIT | LINEAGE] VIEW name\n"
        "EXPLAIN CHANGE INSERT ... | UPDATE ... | DELETE ... | CORRECT ... | INVALIDATE ...\n"
        "EXPLAIN CHANGE DROP ... | ALTER ... | CREATE OR REPLACE MATERIALIZED VIEW ...\n"
        "EXPLAIN CHANGE REBUILD ... | SWAP ... | ROLLBACK ...\n"
        "EXPLAIN CHANGE FUNCTION name",
        "EXPLAIN SELECT customer, count(*) FROM orders GROUP BY customer;",
    ),
    "EXPLAIN ROW": Synopsis(
        "show which rows of its inputs a row of a view comes from, or why there is none",
        "EXPLAIN ROW name WHERE condition [DEEP]",
        "EXPLAIN ROW totals WHERE customer = 'ann';",
    ),
    "VERIFY": Synopsis(
        "compare views with their queries, run again over all history",
        "VERIFY [name, ...]",
        "VERIFY totals;",
    ),
    "BACKUP": Synopsis(
        "copy the database, while it runs, to a directory or an object store",
        "BACKUP TO 'directory or URL' [WITH (keep = number)]\nSHOW BACKUPS IN 'directory or URL'",
        "BACKUP TO 's3://backups/mill' WITH (keep = 7);",
    ),
    "CREATE BRANCH": Synopsis(
        "make a database that begins as this one was, and shares its files",
        "CREATE BRANCH [IF NOT EXISTS] name [FROM EPOCH n | FROM TIMESTAMP '...']\n"
        "DROP BRANCH [IF EXISTS] name\nSHOW BRANCHES",
        "CREATE BRANCH trial;",
    ),
    "RECONCILE": Synopsis(
        "compare a sample of stored rows with a recomputation, and repair differences",
        "RECONCILE VIEW | TABLE name [SAMPLE n ROWS | PERCENT]\n"
        "RECONCILE ALL [SAMPLE n ROWS | PERCENT]\n"
        "SHOW RECONCILIATION [FOR name]\nSHOW EVIDENCE [FOR name]",
        "RECONCILE VIEW totals SAMPLE 5 PERCENT;",
    ),
    "REPAIR": Synopsis(
        "rebuild what is damaged or has stopped, and recompute dirty slices of views",
        "REPAIR [name]",
        "REPAIR totals;",
    ),
    "CORRECT STREAM": Synopsis(
        "replace or void earlier events of a stream; views follow, the log keeps what they were",
        "CORRECT STREAM name REPLACE SET column = expression, ... WHERE condition\n"
        "  [BECAUSE 'reason']\n"
        "CORRECT STREAM name VOID WHERE condition [BECAUSE 'reason']",
        "CORRECT STREAM readings REPLACE SET reading = 45 WHERE sensor = 's1' BECAUSE 'drift';",
    ),
    "SWAP": Synopsis(
        "let the candidate of a view serve, made by CREATE OR REPLACE ... WITH (auto_swap = false)",
        "SHOW DIFF name\nSWAP VIEW name, ... [WITH (keep_former = '1 day')]\n"
        "DROP CANDIDATE OF VIEW name, ...",
        "SWAP VIEW totals;",
    ),
    "REBUILD": Synopsis(
        "compute a view again beside what serves, and the views over it; all serve in one epoch",
        "REBUILD VIEW name [WITH DEPENDANTS] [WITH (auto_swap = false)]",
        "REBUILD VIEW totals WITH DEPENDANTS;",
    ),
    "VALIDATE": Synopsis(
        "compare the rows of a view's candidate with its query, run by Spark batch",
        "VALIDATE VIEW name [ALL | SAMPLE n PERCENT]",
        "VALIDATE VIEW totals SAMPLE 10 PERCENT;",
    ),
    "ROLLBACK": Synopsis(
        "let what served before SWAP VIEW serve again",
        "ROLLBACK VIEW name, ...",
        "ROLLBACK VIEW totals;",
    ),
    "INVALIDATE": Synopsis(
        "report that rows of a view are not right, so that they are computed again",
        "INVALIDATE VIEW name [WHERE condition] [SINCE timestamp] BECAUSE 'reason'",
        "INVALIDATE VIEW totals WHERE customer = 'ann' BECAUSE 'orders were lost';",
    ),
    "REPLAY": Synopsis(
        "recompute a part of a view from its inputs, and replace it in one epoch",
        "[EXPLAIN] REPLAY VIEW name [WHERE condition] [SINCE timestamp]",
        "REPLAY VIEW totals WHERE customer = 'ann';",
    ),
    "FLUSH": Synopsis("wait until everything that was written is readable", "FLUSH", "FLUSH;"),
    "ALTER STREAM": Synopsis(
        "add, drop, rename and widen columns of a stream; earlier rows have a new one's default",
        "ALTER STREAM name ADD COLUMN [IF NOT EXISTS] column type [DEFAULT expression]\n"
        "ALTER STREAM name ADD COLUMNS (column type, ...)\n"
        "ALTER STREAM name DROP COLUMN [IF EXISTS] column | DROP COLUMNS (column, ...)\n"
        "ALTER STREAM name RENAME COLUMN column TO other\n"
        "ALTER STREAM name ALTER COLUMN column TYPE type\n"
        "ALTER STREAM name SET (retention = '90 days') | RESET (retention)\n"
        "ALTER STREAM name DROP PARTITION (condition, ...)",
        "ALTER STREAM orders ADD COLUMN region STRING;",
    ),
    "ALTER TABLE": Synopsis(
        "add, drop, rename and widen columns of a table; rows that it has are NULL in new ones",
        "ALTER TABLE name ADD COLUMN [IF NOT EXISTS] column type [DEFAULT expression]\n"
        "ALTER TABLE name ADD COLUMNS (column type, ...)\n"
        "ALTER TABLE name DROP COLUMN [IF EXISTS] column | DROP COLUMNS (column, ...)\n"
        "ALTER TABLE name RENAME COLUMN column TO other\n"
        "ALTER TABLE name ALTER COLUMN column TYPE type",
        "ALTER TABLE customers ADD COLUMN region STRING;",
    ),
    "PAUSE": Synopsis(
        "stop deliveries to a sink, or the fill of a view, until it is resumed",
        "PAUSE SINK name\nPAUSE FILL OF [VIEW] name",
        "PAUSE SINK archive;",
    ),
    "RESUME": Synopsis(
        "retry a stopped source; continue a paused sink, or the paused fill of a view",
        "RESUME SOURCE name [ON ERROR REJECT]\nRESUME SINK name\nRESUME FILL OF [VIEW] name",
        "RESUME SOURCE orders;",
    ),
    "REFRESH": Synopsis(
        "bring lagging views up to date; epochs keep the other views up to date",
        "REFRESH [[MATERIALIZED VIEW] name, ...]\nREFRESH ALL",
        "REFRESH totals;",
    ),
    "ALTER MATERIALIZED VIEW": Synopsis(
        "give a view another query, say when it is refreshed, what it does with failing rows,"
        " and how long its former states can be read",
        "ALTER MATERIALIZED VIEW name [WITH (auto_swap = false)] AS query\n"
        "ALTER MATERIALIZED VIEW name SET"
        " (refresh = 'continuous' | 'every 1 hour' | 'manual' | 'on write')\n"
        "ALTER MATERIALIZED VIEW name SET (on_error = 'stop' | 'quarantine')\n"
        "ALTER MATERIALIZED VIEW name SET (history = '30 days' | '1000 epochs' | 'default')",
        "ALTER MATERIALIZED VIEW totals SET (refresh = 'every 1 hour');",
    ),
    "CREATE SINK": Synopsis(
        "write a view's changes to a table, another system or files, until the sink is dropped",
        "CREATE [OR REPLACE] SINK [IF NOT EXISTS] name INTO table FROM view\n"
        "CREATE [OR REPLACE] SINK [IF NOT EXISTS] name FROM view"
        " INTO CONNECTION connection (...)\n"
        "CREATE [OR REPLACE] SINK [IF NOT EXISTS] name FROM view"
        " WITH (connector = 'postgres' | 'file' | 'print' | ..., ...)\n"
        "  [WITH (key = 'a, b', snapshot = true | false, on_error = 'dead_letter' | 'stop',\n"
        "    batch_rows = 50000, max_rows_per_second = 1000, interval = '10 s')]",
        "CREATE SINK archive FROM totals WITH (connector = 'file', path = 'totals');",
    ),
    "ALTER SCHEMA": Synopsis(
        "rename a schema, or a relation or index; what names it follows in the same epoch",
        "ALTER SCHEMA name RENAME TO other\n"
        "ALTER STREAM | TABLE | VIEW | MATERIALIZED VIEW | SINK | INDEX | SECRET | CONNECTION"
        " [IF EXISTS] name"
        " RENAME TO other",
        "ALTER SCHEMA gold RENAME TO sales;",
    ),
    "ALTER SINK": Synopsis(
        "change the options of a sink for later deliveries",
        "ALTER SINK name SET (option = value, ...)",
        "ALTER SINK archive SET (max_rows_per_second = 1000, on_error = 'stop');",
    ),
    "RESET SINK": Synopsis(
        "remove what a sink has written, and deliver all rows of its view again",
        "RESET SINK name",
        "RESET SINK archive;",
    ),
    "RECONCILE SINK": Synopsis(
        "compare a sink's target with its view, and repair it",
        "RECONCILE SINK name [CHECK]",
        "RECONCILE SINK archive CHECK;",
    ),
    "DROP SINK": Synopsis("end a sink", "DROP SINK [IF EXISTS] name", "DROP SINK archive;"),
    "TERMINATE": Synopsis(
        "end a job that INSERT INTO table SELECT ... started",
        "TERMINATE name",
        "TERMINATE insert_into_totals_sink;",
    ),
    "SET": Synopsis(
        "set a property of the session",
        "SET 'key' = 'value'",
        "SET 'auto.offset.reset' = 'latest';",
    ),
    "RESET": Synopsis(
        "reset a property of the session, or all, to the default",
        "RESET ['key' | ALL]\nUNSET 'key'",
        "RESET 'auto.offset.reset';",
    ),
}


def help_on(words: str) -> str:
    """Return the synopses of the statements that begin with the words; without words, a list.

    Raises:
        HeadraceError: ``invalid`` for an unknown statement.
    """
    wanted = " ".join(words.upper().split())
    if not wanted:
        wide = max(map(len, STATEMENTS)) + 2
        lines = [f"  {name:<{wide}}{synopsis.does}" for name, synopsis in STATEMENTS.items()]
        return "\n".join([r"\h STATEMENT shows how one of these is written:", *lines])
    found = [name for name in STATEMENTS if name.startswith(wanted) or wanted.startswith(name)]
    if not found:
        raise HeadraceError(
            Code.INVALID,
            f'statement "{wanted}" does not exist',
            hint=meant(wanted, STATEMENTS, r"Type \h for the statements.", shown=r"\h {}"),
        )
    return "\n\n".join(_shown(name, STATEMENTS[name]) for name in found)


def _shown(name: str, synopsis: Synopsis) -> str:
    lines = [*synopsis.form.split("\n"), "", "Example:", *synopsis.example.split("\n")]
    return "\n".join([f"{name}: {synopsis.does}", *(f"  {line}".rstrip() for line in lines)])
