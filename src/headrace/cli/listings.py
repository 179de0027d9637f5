r"""The commands that list and describe objects: ``\d`` and others."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.cli.statement_thread import let_finish
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.interpreter import Interpreter
    from headrace.connecting import AnyDatabase

_WILD = ("*", "?")


def describe(words: str, interpreter: Interpreter) -> None:
    """Describe the relation of that name, or list the relations that match a pattern, or all."""
    if words and not any(mark in words for mark in _WILD):
        interpreter.statements.run(f"DESCRIBE {words}")
    else:
        _list(words, interpreter)


def describe_all(words: str, interpreter: Interpreter) -> None:
    """Describe a relation with its query, key and sizes."""
    if not words:
        raise HeadraceError(Code.INVALID, r"\d+ needs the name of a relation")
    interpreter.statements.run(f"DESCRIBE EXTENDED {words}")


def tables(words: str, interpreter: Interpreter) -> None:
    """List tables."""
    _list(words, interpreter, "table")


def streams(words: str, interpreter: Interpreter) -> None:
    """List streams."""
    _list(words, interpreter, "stream")


def views(words: str, interpreter: Interpreter) -> None:
    """List views."""
    _list(words, interpreter, "view")


def schemas(_: str, interpreter: Interpreter) -> None:
    """List schemas."""
    interpreter.statements.run("SHOW SCHEMAS")


def functions(words: str, interpreter: Interpreter) -> None:
    """List the functions that queries can call."""
    from headrace.catalyst.allowed import FUNCTIONS  # noqa: PLC0415  (only this command needs it)

    database, thread = interpreter.statements.database, interpreter.statements.thread
    own = thread.call(database.functions, let_finish)
    known = {**dict.fromkeys(FUNCTIONS, "built in"), **dict.fromkeys(own, "Python")}
    named = sorted((name, kind) for name, kind in known.items() if _fits(name, words))
    _show(interpreter, ("function", "kind"), named)


def opened(_: str, interpreter: Interpreter) -> None:
    """Show the opened database, and how fresh it is."""
    database = interpreter.statements.database

    def facts() -> list[tuple[str, str]]:
        return [
            database.origin,
            ("relations", counted(database) or "none"),
            ("last epoch", f"{database.last_epoch():,}"),
            ("changes that no epoch has read yet", f"{database.pending():,}"),
        ]

    rows = interpreter.statements.thread.call(facts, let_finish)
    _show(interpreter, ("what", "value"), rows)


def counted(database: AnyDatabase) -> str:
    """Return how many relations of each kind there are, such as ``1 stream, 2 views``."""
    kinds = Counter(kind for kind, _ in database.relations())
    return ", ".join(f"{n:,} {kind}{'' if n == 1 else 's'}" for kind, n in sorted(kinds.items()))


def _list(pattern: str, interpreter: Interpreter, kind: str = "") -> None:
    database = interpreter.statements.database

    def found() -> list[tuple[str, str, str]]:
        return [
            (name, of, ", ".join(f"{column} {type_}" for column, type_ in database.columns(name)))
            for of, name in sorted(database.relations(), key=lambda each: each[1])
            if kind in of and _fits(name, pattern)
        ]

    rows = interpreter.statements.thread.call(found, let_finish)
    printer = interpreter.statements.printer
    if not rows and printer.on_terminal and printer.display.chosen.for_people:
        what = f"{kind or 'relation'}s" + (f' like "{pattern}"' if pattern else "")
        printer.note(rf"There are no {what}; \h CREATE shows how to make one.")
        return
    _show(interpreter, ("name", "kind", "columns"), rows)


def _fits(name: str, pattern: str) -> bool:
    return not pattern or fnmatchcase(name.lower(), pattern.lower())


def _show(interpreter: Interpreter, names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = [pa.array(column, pa.string()) for column in columns]
    interpreter.statements.printer.rows(pa.Table.from_arrays(arrays, names=list(names)))
