"""Runs the examples of a page of the documentation, in their order, as a reader would.

What a block is follows from the word after its backticks:

========== =====================================================================================
``sql``    a script for ``headrace sql``, in one data directory for the whole page
``python`` a program; if its first line is ``# name.py``, a file of that name, whose functions
           later scripts have, as by ``--functions``
``text``   what the block before it has printed; ``…`` stands for any text within a line
``sh``     commands for a terminal: not run, but see :func:`commands_of`; of one that is a
           ``curl`` of a URL, the answer is what is printed, if there is a server
========== =====================================================================================

``sql refused`` is a script that fails; its errors are printed. A block with another second word,
such as ``sql example``, is not run: it needs another system.
"""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import urlopen

from headrace.tools.cli.command import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import headrace


class Block(NamedTuple):
    """A fenced block of a page; ``word`` is the second one, if any."""

    kind: str
    text: str
    word: str


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in their order."""
    fenced = r"^( *)```(\w*)([^\n]*)\n(.*?)^ *```"
    for indented, kind, word, text in re.findall(
        fenced, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        yield Block(kind, re.sub(rf"^{indented}", "", text, flags=re.MULTILINE), word.strip())


def commands_of(page: Path) -> list[list[str]]:
    """Return the arguments of each ``headrace`` command that a page shows in a terminal."""
    return [
        shlex.split(words, comments=True)[1:]
        for block in blocks_of(page)
        if block.kind in ("sh", "")
        for line in block.text.replace("\\\n", " ").splitlines()
        for words in re.split(r"\||&&|<|>| &$", line)
        if re.match(r"\s*(?:\S*/)?headrace\s", words)
    ]


@dataclass
class Reader:
    """Does what a page says, in a directory of its own, with one open database.

    ``replaced`` are texts of the page to exchange before a block runs, such as the address of a
    server. A query whose rows are still on their way is asked again for ``patience`` seconds.
    """

    db: headrace.Database
    directory: Path
    replaced: dict[str, str] = field(default_factory=dict)
    patience: float = 0
    printed: str = ""
    _functions: list[str] = field(default_factory=list)

    def follow(self, page: Path, compare: Callable[[str, str], None]) -> int:
        """Run all blocks; ``compare`` what a page shows with what was printed. Return how many."""
        compared, asked = 0, ""
        for block in blocks_of(page):
            text = block.text
            for old, new in self.replaced.items():
                text = text.replace(old, new)
            match block.kind, block.word:
                case "sql", "" | "refused":
                    asked = text
                    self._sql(text, fails=block.word == "refused")
                case "python", "":
                    self._python(text)
                case "sh", "" if self.replaced and (url := re.match(r"curl -s '([^']*)'", text)):
                    with urlopen(url[1], timeout=60) as answer:  # noqa: S310 - on this machine
                        self.printed = answer.read().decode()
                case "text", "":
                    compared += 1
                    until = monotonic() + self.patience
                    while not same(self.printed, text) and monotonic() < until:
                        self._sql(asked, fails=False)
                    compare(self.printed, text)
        return compared

    def _sql(self, text: str, *, fails: bool) -> None:
        files = [word for name in self._functions for word in ("--functions", name)]
        self._functions.clear()
        output, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(output), redirect_stderr(errors):
            code = main(["--data", str(self.directory), "sql", *files, "-c", text], self._opened)
        assert code == int(fails), f"{text}\n{errors.getvalue()}"
        self.printed = errors.getvalue() if fails else _table_in(output.getvalue())

    def _python(self, text: str) -> None:
        named = re.match(r"# (\w+\.py)\n", text)
        if named:
            path = self.directory / named[1]
            path.write_text(text, encoding="utf-8")
            self._functions.append(str(path))
            return
        output = io.StringIO()
        with redirect_stdout(output):
            exec(compile(text, "page", "exec"), {"db": self.db})  # noqa: S102
        self.printed = output.getvalue()

    def _opened(self, _target: object, functions: Any) -> Any:
        for each in functions:
            self.db.register(each)
        return LeftOpen(self.db)


def same(printed: str, shown: str) -> bool:
    """Whether a page shows what was printed."""
    pattern = "[^\n]*".join(map(re.escape, shown.strip("\n").split("…")))
    return re.fullmatch(pattern, printed.strip("\n")) is not None


def _table_in(output: str) -> str:
    """Return the last table of an output, without the messages of the statements before it."""
    lines = output.rstrip("\n").split("\n")
    rules = [i for i, line in enumerate(lines) if re.fullmatch(r"[-+]+", line)]
    return "\n".join(lines[rules[-1] - 1 :]) if rules else output


@dataclass(frozen=True)
class LeftOpen:
    """A database that a command cannot close."""

    db: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.db, name)

    def close(self) -> None:
        """Leave it open for the blocks that follow."""
