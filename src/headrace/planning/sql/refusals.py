"""One list of refused statements, each with an alternative.

Spark would run most of them by default, outside of Headrace's guarantees: they change files, the
session or the process. Forms inside a query are refused by the allow-list of plan nodes and
functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.alter import at_rename
from headrace.planning.sql.lexer import TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.errors import Span
    from headrace.planning.sql.cursor import Cursor
    from headrace.planning.sql.lexer import Token


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first words of a refused statement, its name in messages, and an alternative."""

    words: tuple[str, ...]
    thing: str
    hint: str
    code: Code = Code.UNSUPPORTED

    def error(self, span: Span) -> HeadraceError:
        """Return the error for a statement at a place."""
        return HeadraceError(self.code, f"{self.thing} is not supported", hint=self.hint, span=span)


_SQL_FUNCTIONS = "Leave TEMPORARY out: CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1."
_FUNCTIONS = "Register a Python function instead: db.register, or headrace.connect(functions=...)."
_SOURCES = "Use CREATE STREAM or CREATE TABLE; COPY loads files into it."
_SCHEMAS = "Use CREATE SCHEMA name, or qualify names, such as gold.orders."
_INDEXES = "Use CREATE INDEX name ON relation (columns)."
_DEFINITION = "Use ALTER MATERIALIZED VIEW name AS SELECT ..., or CREATE OR REPLACE a plain view."
_REFRESH = "Views are maintained as their inputs change: FLUSH waits for all changes so far."
_ATOMIC = "Every statement is atomic: one INSERT of many rows is one transaction."
_ACCOUNTS = "Use CREATE TOKEN name, and GRANT a role to it: READER, WRITER or OWNER."
_FILES = "Use COPY to load rows, and db.register for Python functions: statements cannot load code."
UPSERT = "INSERT into a table with a PRIMARY KEY replaces the row of the same key."
_CACHE = "Create a materialized view of this query: its rows are stored."
_STATISTICS = "DESCRIBE EXTENDED shows the sizes, which Headrace records automatically."
_TEMPORARY = (
    "Leave the word out: a view costs nothing until it is materialized, and can be dropped."
)
_PLAIN_EXPLAIN = "Use EXPLAIN: it shows the circuit and Spark's plan."
_SHOW_LIST = "Use SHOW STREAMS, TABLES or VIEWS; DESCRIBE shows one relation."
_SCRIPTS = "Send single statements: control flow belongs in Python."


def _refused(words: str, hint: str, thing: str | None = None) -> Refusal:
    return Refusal(tuple(words.split()), thing or words, hint)


REFUSALS: tuple[Refusal, ...] = (
    _refused("ADD", _FILES),
    _refused("ADD ARCHIVE", _FILES),
    _refused("ADD FILE", _FILES),
    _refused("ADD FILES", _FILES),
    _refused("ADD JAR", _FILES),
    _refused("ADD JARS", _FILES),
    _refused("ALTER SESSION", "Use SET for settings of the session."),
    _refused("ALTER SYSTEM", "Use SET for settings of the session."),
    _refused("ALTER VIEW", _DEFINITION),
    _refused("ANALYZE", _STATISTICS),
    _refused("ANALYZE TABLE", _STATISTICS),
    _refused("ASSERT", "Use VERIFY to compare views with an independent recompute."),
    _refused("BEGIN", _ATOMIC),
    _refused("CACHE", _CACHE),
    _refused("CACHE TABLE", _CACHE),
    _refused("CALL", "Use the statements of Headrace: procedures are not called from SQL."),
    _refused("CLEAR CACHE", "Nothing is cached: a view's state is its contents."),
    _refused("COMMENT", "Use COMMENT '...' after a column when it is declared."),
    _refused("COMMIT", _ATOMIC),
    _refused("COPY INTO", "Use COPY name FROM 'path' WITH (format = ...)."),
    _refused("CREATE AGGREGATE", _FUNCTIONS, "CREATE AGGREGATE FUNCTION"),
    _refused("CREATE CATALOG", _SCHEMAS),
    _refused("CREATE CLUSTER", "Leave it out: one process maintains all views."),
    _refused("CREATE CONNECTOR", _SOURCES),
    _refused("CREATE DEFAULT INDEX", _INDEXES),
    _refused("CREATE EXTERNAL", _SOURCES, "CREATE EXTERNAL TABLE"),
    _refused("CREATE PROCEDURE", _SCRIPTS),
    _refused("CREATE ROLE", _ACCOUNTS),
    _refused("CREATE STREAMING", "Use CREATE STREAM or CREATE TABLE.", "CREATE STREAMING TABLE"),
    _refused("CREATE TASK", "Views are maintained as their inputs change: no task is needed."),
    _refused("CREATE TRANSIENT", "Use CREATE TABLE.", "CREATE TRANSIENT TABLE"),
    _refused("CREATE TRIGGER", "Use a view, or SUBSCRIBE to one."),
    _refused("CREATE TYPE", "Write the type, such as STRUCT<...>, at each column."),
    _refused("CREATE UNIQUE INDEX", "Use PRIMARY KEY on the table."),
    _refused("CREATE USER", _ACCOUNTS),
    _refused("DECLARE", _SCRIPTS),
    _refused("DEFINE", "Write the value where it is used: there are no variables."),
    _refused("DESCRIBE CATALOG", _SHOW_LIST),
    _refused("DESCRIBE DATABASE", _SHOW_LIST),
    _refused("DESCRIBE FUNCTION", "Spark's own documentation describes its functions."),
    _refused("DESCRIBE QUERY", "Use EXPLAIN, which shows a query's columns too."),
    _refused("DESCRIBE SCHEMA", _SHOW_LIST),
    _refused("DROP CATALOG", _SCHEMAS),
    _refused("DROP CONNECTOR", "Drop the stream or table that the connector feeds."),
    _refused("DROP ROLE", _ACCOUNTS),
    _refused("DROP TEMPORARY", "Leave the word out: nothing is temporary."),
    _refused("DROP TEMPORARY FUNCTION", _FUNCTIONS),
    _refused("DROP USER", _ACCOUNTS),
    _refused("EXECUTE", _SCRIPTS),
    _refused("EXPLAIN ANALYZE", _PLAIN_EXPLAIN),
    _refused("EXPLAIN CODEGEN", _PLAIN_EXPLAIN),
    _refused("EXPLAIN COST", _PLAIN_EXPLAIN),
    _refused("EXPLAIN LOGICAL", _PLAIN_EXPLAIN),
    _refused("EXPORT", "Use CREATE SINK name FROM view WITH (connector = 'file', ...)."),
    _refused("IMPORT", "Use COPY name FROM 'path' WITH (format = ...)."),
    _refused("INSERT OVERWRITE", "Use TRUNCATE, then INSERT INTO; or create a view of the query."),
    _refused("LOAD", "Use COPY name FROM 'path' WITH (format = ...)."),
    _refused("LOAD DATA", "Use COPY name FROM 'path' WITH (format = ...)."),
    _refused("LOCK", _ATOMIC),
    _refused("MAP", "Use SELECT: queries cannot start other programs.", "MAP ... USING"),
    _refused("MERGE", UPSERT),
    _refused("MERGE INTO", UPSERT),
    _refused("MSCK", _REFRESH),
    _refused("OPTIMIZE", "Compaction runs automatically."),
    _refused("PREPARE", _SCRIPTS),
    _refused("REDUCE", "Use SELECT: queries cannot start other programs.", "REDUCE ... USING"),
    _refused("REINDEX", "Arrangements are sorted automatically."),
    _refused("RENAME", "Use ALTER TABLE name RENAME TO other."),
    _refused("REPLACE", "Use CREATE OR REPLACE, or INSERT INTO a table with a PRIMARY KEY."),
    _refused("ROLLBACK", _ATOMIC),
    _refused("RUN", _SCRIPTS),
    _refused("SAVEPOINT", _ATOMIC),
    _refused("SET CATALOG", _SCHEMAS),
    _refused("SET ROLE", _ACCOUNTS),
    _refused("SET TIME ZONE", "Timestamps are stored and shown in UTC."),
    _refused("SET TRANSACTION", _ATOMIC),
    _refused("SHOW CATALOGS", _SHOW_LIST),
    _refused("SHOW COLUMNS", "Use DESCRIBE name."),
    _refused("SHOW CONNECTORS", _SHOW_LIST),
    _refused("SHOW PARTITIONS", "Use DESCRIBE EXTENDED name."),
    _refused("SHOW QUERIES", "Use SHOW VIEWS or SHOW JOBS: these queries run continuously."),
    _refused("SHOW TBLPROPERTIES", "Use DESCRIBE EXTENDED name."),
    _refused("SHOW TOPICS", "Use SHOW STREAMS."),
    _refused("START", _ATOMIC),
    _refused("START TRANSACTION", _ATOMIC),
    _refused("UNCACHE", _CACHE),
    _refused("UNDEFINE", "Write values where they are used: there are no variables."),
    _refused("UNDROP", "A dropped object cannot be restored: CREATE it again from its sources."),
    _refused("UNLOAD", "Use CREATE SINK name FROM view WITH (connector = 'file', ...)."),
    _refused("UPSERT", UPSERT),
    _refused("USE", _SCHEMAS),
    _refused("VACUUM", "Files that no readable epoch uses are deleted automatically."),
)
"""All statements that are refused by their first words, in alphabetical order."""

_BY_WORDS = {refusal.words: refusal for refusal in REFUSALS}
_LONGEST = max(len(refusal.words) for refusal in REFUSALS)
_TEMPORARIES = frozenset({"TEMPORARY", "TEMP", "GLOBAL"})
_PROGRAM = Refusal(
    ("TRANSFORM",), "TRANSFORM ... USING", "Use SELECT: queries cannot start other programs."
)
_SPARK_SETTING = Refusal(
    ("SET", "SPARK"),
    "SET of a Spark setting",
    "Give them to the session that headrace.connect(spark=...) is called with.",
)
FIRST_WORDS = tuple(sorted({refusal.words[0] for refusal in REFUSALS}))
"""The first words of refused statements."""


def refuse_statement(cursor: Cursor) -> None:
    """Raise if the statement is refused by its first words.

    ``OR REPLACE`` and ``IF NOT EXISTS`` are skipped to find the kind of object.
    """
    taken: list[Token] = []
    for ahead in range(_LONGEST + 2):
        token = cursor.peek(ahead)
        if token.kind is not TokenKind.WORD:
            break
        taken.append(token)
    words = [token.word for token in taken]
    if words[:2] in (["ROLLBACK", "VIEW"], ["ROLLBACK", "MATERIALIZED"]) or at_rename(cursor):
        return
    if words[:1] == ["DESC"]:
        words[0] = "DESCRIBE"
    if words[:3] == ["CREATE", "OR", "REPLACE"]:
        del words[1:3], taken[1:3]
    if words[:1] == ["CREATE"] and len(words) > 1 and words[1] in _TEMPORARIES:
        _refuse_temporary(cursor, words, taken)
    for length in range(min(_LONGEST, len(words)), 0, -1):
        refusal = _BY_WORDS.get(tuple(words[:length]))
        if refusal is not None and not _is_name(words, length, cursor.peek(length)):
            raise refusal.error(cursor.span(taken[0], taken[length - 1]))


def refuse_setting(key: str, span: Span) -> None:
    """Raise if a setting is Spark's: it could load code, open files or change results."""
    if key.lower().startswith(("spark.", "hive.", "hadoop.", "fs.")):
        raise _SPARK_SETTING.error(span)


def refuse_in_query(cursor: Cursor, body: Sequence[Token]) -> None:
    """Raise if a query starts another program or inserts rows."""
    for index, token in enumerate(body):
        if token.kind is not TokenKind.WORD:
            continue
        words = tuple(following.word for following in body[index : index + 2])
        if words == ("SELECT", "TRANSFORM") and _uses_program(body, index + 2):
            raise _PROGRAM.error(cursor.span(body[index + 1], body[index + 1]))
        if words in {("INSERT", "INTO"), ("INSERT", "OVERWRITE")}:
            raise Refusal(
                words, "INSERT within a query", "Use INSERT INTO name SELECT ..., one at a time."
            ).error(cursor.span(token, body[index + 1]))


def _refuse_temporary(cursor: Cursor, words: list[str], taken: list[Token]) -> None:
    rest = [word for word in words[1:] if word not in _TEMPORARIES]
    if "FUNCTION" in rest[:1]:
        thing, hint = "CREATE TEMPORARY FUNCTION", _SQL_FUNCTIONS
    else:
        thing, hint = f"CREATE TEMPORARY {rest[0] if rest else 'VIEW'}", _TEMPORARY
    last = next((i for i, word in enumerate(words) if i and word not in _TEMPORARIES), 1)
    raise Refusal((), thing, hint).error(cursor.span(taken[0], taken[last]))


def _is_name(words: list[str], length: int, following: Token) -> bool:
    """Return whether the word is a name here, as in ``DESCRIBE query`` or ``SET role = 'x'``."""
    if length == 1:
        return False
    match words[0]:
        case "DESCRIBE":
            return following.kind is TokenKind.END
        case "SET":
            return following.text == "="
        case _:
            return False


def _uses_program(body: Sequence[Token], index: int) -> bool:
    """Return whether USING or ROW FORMAT follows the parentheses that open at the index."""
    depth = 0
    for place, token in enumerate(body[index:], index):
        if token.kind is TokenKind.SYMBOL:
            depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            after = [following.word for following in body[place + 1 : place + 3]]
            return after[:1] in (["USING"], ["RECORDWRITER"]) or after == ["ROW", "FORMAT"]
    return False
