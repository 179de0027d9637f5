"""Completion in the shell: keywords, names of relations, their columns, and commands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

from headrace.cli.choices import Format
from headrace.cli.commands import NAMES
from headrace.cli.pieces import SqlPiece, pieces
from headrace.cli.statement_help import STATEMENTS
from headrace.errors import HeadraceError
from headrace.sql import KEYWORDS, quote, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

_WORD = re.compile(r"\w+$")
_WORDS = re.compile(r"\w+")
_PLAIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
_COMMAND = re.compile(r"\\(?P<name>\S*)(?P<rest>\s.*)?\Z")
_AFTER_THESE = re.compile(
    r"\b(FROM|JOIN|INTO|UPDATE|DESCRIBE|EXTENDED|SUBSCRIBE|VERIFY|REPAIR|COPY|TRUNCATE\s+TABLE|"
    r"(INVALIDATE|REPLAY|RECONCILE)\s+VIEW|RECONCILE\s+TABLE|"
    r"(PAUSE|RESUME|RESET|ALTER|RECONCILE)\s+SINK|(PAUSE|RESUME)\s+FILL\s+OF|"
    r"ALTER\s+(STREAM|TABLE|(MATERIALIZED\s+)?VIEW)|"
    r"(DIRTY|RECONCILIATION|EVIDENCE|ERRORS)\s+FOR)"
    r"\s+\w*$",
    re.IGNORECASE,
)
"""Matches text after which only a relation can follow."""
_MEMBER = re.compile(r"(\w+)\.\w*$")
_ALIAS = r"(?i)\b`?{relation}`?\s+(?:AS\s+)?{alias}\b"
_READING = frozenset({"select", "with"})
_BEGINNINGS = tuple(dict.fromkeys(name.split()[0] for name in STATEMENTS))


@dataclass(slots=True)
class Names:
    """The relations and columns that can be completed, as of the last :meth:`refresh`.

    ``read_relations`` returns names; ``read_columns`` returns the columns of a relation, and is
    called once for each until the next refresh.
    """

    read_relations: Callable[[], Iterable[str]]
    read_columns: Callable[[str], Sequence[str]]
    relations: list[str] = field(default_factory=list)
    _columns: dict[str, Sequence[str]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the relations again: statements may have changed them."""
        self.relations = sorted(self.read_relations())
        self._columns = {}

    def columns(self, relation: str) -> Sequence[str]:
        """Return the columns of a relation."""
        if relation not in self._columns:
            self._columns[relation] = self.read_columns(relation)
        return self._columns[relation]


@dataclass(slots=True)
class ShellCompleter(Completer):
    """Completes the word before the cursor: columns first, then relations, then keywords.

    The columns are those of the relations in the statement; after ``alias.``, only of that one.
    """

    names: Names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield the completions of the word."""
        del complete_event
        command = _COMMAND.search(document.current_line_before_cursor)
        if command is not None:
            yield from self._of_command(command["name"], command["rest"])
            return
        found = _WORD.search(document.text_before_cursor)
        word = found[0] if found else ""
        before, after = _statement(document)
        for text, kind in self._candidates(before, before + after, word):
            yield Completion(text, -len(word), display_meta=kind)

    # -- statements ------------------------------------------------------------------------

    def _candidates(self, before: str, statement: str, word: str) -> Iterator[tuple[str, str]]:
        start = word.lower()
        member = _MEMBER.search(before)
        if member is not None:
            yield from self._members(member[1], statement, start)
            return
        if before.strip() == word:
            yield from (
                (keyword.lower() if word.islower() else keyword, "keyword")
                for keyword in _BEGINNINGS
                if keyword.startswith(word.upper())
            )
            return
        relations_only = _AFTER_THESE.search(before) is not None
        if not relations_only:
            yield from self._columns(statement, start)
        for name in self.names.relations:
            if name.lower().startswith(start):
                yield _written(name), "relation"
        if word and not relations_only:
            for keyword in KEYWORDS:
                if keyword.startswith(word.upper()):
                    yield keyword.lower() if word.islower() else keyword, "keyword"

    def _columns(self, statement: str, start: str) -> Iterator[tuple[str, str]]:
        mentioned = {mention.lower() for mention in _WORDS.findall(statement)}
        used = [n for n in self.names.relations if n.lower().rpartition(".")[2] in mentioned]
        if "from" not in mentioned and mentioned & _READING:
            # The select list precedes FROM, so any relation may follow.
            used = used or self.names.relations
        columns = {column: name for name in used for column in self.names.columns(name)}
        for column, name in columns.items():
            if column.lower().startswith(start):
                yield _written(column), f"column of {name}"

    def _members(self, alias: str, statement: str, start: str) -> Iterator[tuple[str, str]]:
        for name in self.names.relations:
            if name.lower().startswith(f"{alias.lower()}.{start}"):
                yield _written(name[len(alias) + 1 :]), "relation"
        for name in self.names.relations:
            pattern = _ALIAS.format(relation=re.escape(name), alias=re.escape(alias))
            if name.lower() == alias.lower() or re.search(pattern, statement):
                for column in self.names.columns(name):
                    if column.lower().startswith(start):
                        yield _written(column), f"column of {name}"
                return

    # -- commands --------------------------------------------------------------------------

    def _of_command(self, name: str, rest: str | None) -> Iterator[Completion]:
        if rest is None:
            word = f"\\{name}"
            for command in NAMES:
                if command.startswith(word):
                    yield Completion(command, -len(word), display_meta="command")
            return
        word = rest.lstrip()
        for text, kind in self._arguments(name, word):
            if text.lower().startswith(word.lower()):
                yield Completion(text, -len(word), display_meta=kind)

    def _arguments(self, name: str, word: str) -> Iterator[tuple[str, str]]:
        match name:
            case "d" | "d+" | "dt" | "ds" | "dv":
                yield from ((_written(relation), "relation") for relation in self.names.relations)
            case "h":
                yield from ((statement, "statement") for statement in STATEMENTS)
            case "format" | "f":
                yield from ((form.value, "format") for form in Format)
            case "x" | "live" | "pager" | "timing":
                yield from (("on", ""), ("off", ""))
            case "i" | "o" | "e":
                yield from _paths(word)


def _paths(start: str) -> Iterator[tuple[str, str]]:
    """Yield the files and directories whose path begins with ``start``."""
    folder, _, _ = start.rpartition("/")
    root = Path(folder or ("/" if start.startswith("/") else ".")).expanduser()
    try:
        entries = sorted(root.iterdir())
    except (OSError, RuntimeError):
        return
    prefix = start[: len(start) - len(start.rpartition("/")[2])]
    for entry in entries:
        yield prefix + entry.name + ("/" if entry.is_dir() else ""), "file"


def _statement(document: Document) -> tuple[str, str]:
    """Return the statement under the cursor in two parts: before the cursor, and after it."""
    before, after = document.text_before_cursor, document.text_after_cursor
    try:
        parts = pieces(before)
        last = parts[-1] if parts else None
        if not isinstance(last, SqlPiece):
            return "", after
        found = split(before[last.start :])
        whole = before[last.start :]
        if not found:
            return "", after
        start = found[-1].end + 1 if found[-1].terminated else found[-1].start
        return whole[start:], after.partition(";")[0]
    except HeadraceError:  # inside a string or comment
        return before, ""


def _written(name: str) -> str:
    """Return a name as it is written in SQL."""
    return name if _PLAIN.match(name) else quote(name)
