"""Completion in the shell: keywords, names of relations, and their columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

from headrace.sql import KEYWORDS, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

_WORD = re.compile(r"\\?\w+$|\\$")
_WORDS = re.compile(r"\w+")
_PLAIN = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(slots=True)
class Names:
    """The relations and columns that can be completed, as of the last :meth:`refresh`.

    ``read_relations`` returns names; ``read_columns`` the columns of one, and is asked once.
    """

    read_relations: Callable[[], Iterable[str]]
    read_columns: Callable[[str], Sequence[str]]
    relations: list[str] = field(default_factory=list)
    _columns: dict[str, Sequence[str]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the relations anew, since statements may have changed them."""
        self.relations = sorted(self.read_relations())
        self._columns = {}

    def columns(self, relation: str) -> Sequence[str]:
        """Return the columns of a relation."""
        if relation not in self._columns:
            self._columns[relation] = self.read_columns(relation)
        return self._columns[relation]


@dataclass(slots=True)
class SqlCompleter(Completer):
    """Completes the word before the cursor: columns first, then relations, then keywords.

    Columns are those of relations that the statement names.
    """

    names: Names
    commands: Sequence[str]

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Yield what the word can become."""
        del complete_event
        found = _WORD.search(document.text_before_cursor)
        word = found[0] if found else ""
        if word.startswith("\\"):
            for command in self.commands:
                if command.startswith(word):
                    yield Completion(command, -len(word), display_meta="command")
            return
        for text, kind in self._candidates(document.text, word):
            yield Completion(text, -len(word), display_meta=kind)

    def _candidates(self, text: str, word: str) -> Iterator[tuple[str, str]]:
        start = word.lower()
        mentioned = {mention.lower() for mention in _WORDS.findall(text)}
        used = [name for name in self.names.relations if name.lower() in mentioned]
        columns = {column: name for name in used for column in self.names.columns(name)}
        for column, name in columns.items():
            if column.lower().startswith(start):
                yield _written(column), f"column of {name}"
        for name in self.names.relations:
            if name.lower().startswith(start):
                yield _written(name), "relation"
        if not word:
            return
        for keyword in KEYWORDS:
            if keyword.startswith(word.upper()):
                yield keyword.lower() if word.islower() else keyword, "keyword"


def _written(name: str) -> str:
    """Return a name as it stands in SQL."""
    return name if _PLAIN.match(name) else quote(name)
