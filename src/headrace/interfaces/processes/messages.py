"""A child process for queries: how it is asked, its messages, and what is refused before.

Messages to a query process, and its answers, are pickled values.

Both ends are the same program of the same user, connected by a socket pair.

Finds unknown names in a query's text without Spark.

A query waits if no query process is ready yet; a misspelt name is refused before that. Only certain
errors are raised here; everything else is left to Spark, which resolves all names.

A child process: asked one thing at a time, and ended with all that it has started.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.errors import Code, HeadraceError, Span, unknown
from headrace.execution.runtime.cancelling import cancelled, check_cancelled
from headrace.planning.sql.lexer import Token, TokenKind, identifier_value, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from subprocess import Popen

    import pyarrow as pa

    from headrace.execution.engine.jobs.lease import SparkSettings
    from headrace.execution.runtime.step import Share
    from headrace.files.mounts import Mounted
    from headrace.planning.catalog import Catalog, Relation, Stream
    from headrace.planning.functions import FunctionRecord
    from headrace.storage.log import Extent, Pruning
    from headrace.types import RelationId


_SYSTEM: Final = "information_schema."
_AFTER_FROM: Final = frozenset(
    {"", "CLUSTER", "DISTRIBUTE", "GROUP", "HAVING", "LIMIT", "ORDER", "SORT", "WHERE", "WINDOW"}
)
"""Words that may follow the only relation of a query and its alias; "" is the end."""
_SPECIAL: Final = frozenset(
    {
        "ALL", "CASE", "CURRENT_CATALOG", "CURRENT_DATABASE", "CURRENT_DATE", "CURRENT_SCHEMA",
        "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "DISTINCT", "FALSE", "LOCALTIMESTAMP",
        "NULL", "ROWOFFSET", "ROWPARTITION", "ROWTIME", "SESSION_USER", "TRUE", "USER",
    }
)  # fmt: skip
"""Words that can be a whole item of SELECT though no column has their name."""


def require_known_names(query: Span, catalog: Catalog) -> None:
    """Refuse a query that names a relation, or a column in SELECT, that does not exist.

    Raises:
        HeadraceError: ``invalid``, at the place, with the most similar name as the hint.
    """
    found = list(tokens(query.text[query.start : query.end]))
    words = [each.word for each in found]
    if "WITH" in words or "LATERAL" in words or "TABLE" in words:
        return
    named = list(_relations(found))
    for name, start, end in named:
        known = catalog.find(name) is not None or name.lower().startswith(_SYSTEM)
        if not known:
            place = _span(query, start, end)
            otherwise = "SHOW TABLES lists what exists."
            raise unknown("stream, table or view", name, catalog.by_name, otherwise, place)
    if len(named) == 1 and words.count("SELECT") == 1 and words.count("FROM") == 1:
        relation = catalog.find(named[0][0])
        rest = [each for each in found if each.start >= named[0][2]]
        if relation is not None and _word_after_alias(rest) in _AFTER_FROM:
            _require_columns(query, found, relation)


def _word_after_alias(rest: Sequence[Token]) -> str:
    """Return the word after the alias of a relation, if it has one; empty at the end."""
    words = [each.text.upper() for each in rest if each.kind is not TokenKind.END]
    if words[:1] == ["AS"]:
        words = words[2:]
    elif words and words[0] not in _AFTER_FROM:
        words = words[1:]
    return words[0] if words else ""


def _relations(found: Sequence[Token]) -> Iterator[tuple[str, int, int]]:
    """Yield the dotted names after FROM and JOIN, with their places.

    Functions and subqueries are left out, and so is FROM inside a call, as in ``extract``.
    """
    opened: list[bool] = []
    for at, token in enumerate(found):
        if token.text == "(":
            after = found[at + 1].word if at + 1 < len(found) else ""
            opened.append(after in ("SELECT", "FROM"))
        elif token.text == ")" and opened:
            opened.pop()
        if token.word not in ("FROM", "JOIN") or not all(opened):
            continue
        if token.word == "FROM" and at and found[at - 1].word == "DISTINCT":
            continue  # IS DISTINCT FROM
        parts, here = [], at + 1
        while here < len(found) and found[here].kind in (TokenKind.WORD, TokenKind.BACKQUOTED):
            parts.append(found[here])
            here += 1
            if here >= len(found) or found[here].text != ".":
                break
            here += 1
        after = found[here].text if here < len(found) else ""
        if parts and after not in ("(", "."):
            yield ".".join(map(identifier_value, parts)), parts[0].start, parts[-1].end


def _require_columns(query: Span, found: Sequence[Token], relation: Relation) -> None:
    """Refuse an unknown column that is a whole item of SELECT over a single relation."""
    begins = next(at for at, each in enumerate(found) if each.word == "SELECT") + 1
    ends = next(at for at, each in enumerate(found) if each.word == "FROM")
    names = relation.schema.names
    items = list(_items(found[begins:ends]))
    aliases = {identifier_value(item[-1]).lower() for item in items if len(item) > 1}
    known = aliases | {name.lower() for name in names}
    for item in items:
        if not item or item[0].kind not in (TokenKind.WORD, TokenKind.BACKQUOTED):
            continue
        named = len(item) == 1 or item[1].word == "AS"
        name = identifier_value(item[0])
        if not named or item[0].word in _SPECIAL or name.startswith("__"):
            continue
        if name.lower() not in known:
            place = _span(query, item[0].start, item[0].end)
            raise unknown("column", name, names, f"There are: {', '.join(names)}.", place)


def _items(found: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the items of a list, split at commas outside of brackets."""
    item: list[Token] = []
    depth = 0
    for token in found:
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if token.text == "," and depth == 0:
            yield item
            item = []
        else:
            item.append(token)
    yield item


def _span(query: Span, start: int, end: int) -> Span:
    return Span(query.text, query.start + start, query.start + end, query.file, query.line)


@dataclass(frozen=True, slots=True)
class WarmSpark:
    """The first message to a process that is started before it is known what it reads."""

    scratch: Path
    spark: SparkSettings
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartSpark:
    """The first message, or the next one: the data directory, read only, and Spark's settings.

    ``scratch`` is a directory of the process, removed with it; ``path`` is the module search path;
    ``bytes`` limits the memory of the process and its JVM together. ``mounted`` says whether the
    data directory is the cache of a store.
    """

    directory: Path
    scratch: Path
    partitions: int
    spark: SparkSettings
    path: tuple[str, ...]
    bytes: int
    mounted: Mounted | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """The names that queries can use, in place of those declared before.

    The queries of the plain views in ``waiting`` cannot be planned. ``functions`` are pickled, by
    name; ``remembered`` are those recorded in the catalog.
    """

    relations: tuple[Relation, ...] = ()
    waiting: frozenset[RelationId] = frozenset()
    functions: Mapping[str, bytes] = field(default_factory=dict)
    remembered: Mapping[str, FunctionRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskShape:
    """Asks for a query's :class:`Shape`, and for the name of its plan, if the process keeps it."""

    query: Span


@dataclass(frozen=True, slots=True)
class AskRows:
    """Asks for a query's rows, over the contents of relations.

    Of a stream, the segments are not listed: the process asks for those that it needs. ``given``
    are rows of relations without stored contents. A result of more than ``most`` bytes is refused.
    """

    text: str
    shares: Mapping[RelationId, Share | Extent]
    given: tuple[tuple[Stream, pa.Table], ...]
    most: int
    indexes: tuple[Share, ...] = ()
    """The contents of the indexes of the only relation that the query reads."""
    plan: str | None = None
    """The name of the plan, if a process has one; another process, or a later one, has not."""


@dataclass(frozen=True, slots=True)
class AskComputed:
    """Asks for the values of expressions over rows; see :meth:`Queries.computed`."""

    rows: pa.Table
    expressions: list[str]
    source: str


@dataclass(frozen=True, slots=True)
class Needed:
    """What a process needs before it can answer: it is sent the answer to a question of its own."""

    question: AskSegments | AskLogs


@dataclass(frozen=True, slots=True)
class AskSegments:
    """Asks for a page of the segments of a log; see ``SegmentListing``."""

    extent: Extent
    pruning: Pruning
    most: int
    newest: bool


@dataclass(frozen=True, slots=True)
class AskLogs:
    """Asks for the shares of streams, with all segments, that a Spark job reads."""

    relations: tuple[RelationId, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancels the current question; the answer is an error, or the result if it was finished."""


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to a question: a shape, rows, or None if nothing was asked."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The error of a question."""

    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Full:
    """The question needs more memory than allowed: the process ends."""


def within(rows: pa.Table, most: int) -> pa.Table:
    """Return the rows of a result, if they have at most so many bytes.

    Raises:
        HeadraceError: ``unsupported`` if they have more.
    """
    if rows.nbytes <= most:
        return rows
    raise HeadraceError(
        Code.UNSUPPORTED,
        f"a result of {rows.nbytes:,} bytes is too large",
        f"The limit is {most:,}.",
        "Use LIMIT.",
    )


_LISTEN_SECONDS: Final = 0.1
"""The interval at which a waiting thread checks whether its statement was cancelled."""

_SHOWN: Final = 2000
"""The most characters of a process's standard error that are shown."""
_FROM_OUTSIDE: Final = (signal.SIGKILL, signal.SIGTERM)


class EndedError(Exception):
    """The process has ended without an answer."""


class Child:
    """A Python process in its own session, and this process's end of the connection to it.

    It exits when this end is closed, so also when this process is killed. Processes that it starts,
    such as a JVM, are in its process group and are killed with it.
    """

    def __init__(self, process: Popen[bytes], connection: Connection, errors: Path) -> None:
        self._process = process
        self._connection = connection
        self._errors = errors
        self._killing = threading.Lock()
        self._unread = 0

    @classmethod
    def started(cls, module: str, errors: Path, *descriptors: int) -> Self:
        """Start a module as a process; its arguments are the descriptor of its end, and others.

        Standard error is written to the file ``errors``.
        """
        ours, theirs = socket.socketpair()
        with theirs, errors.open("wb") as written:
            inherited = (theirs.fileno(), *descriptors)
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", module, *map(str, inherited)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=written,
                pass_fds=inherited,
                start_new_session=True,
            )
        return cls(process, Connection(ours.detach()), errors)

    @property
    def pid(self) -> int:
        """The id of the process and of its group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs. Its id is not reused until :meth:`kill` has been called."""
        with self._killing:
            if self._process.returncode is not None:
                return False
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, how) is None

    @property
    def ending(self) -> str:
        """Describe how the process ended: by which signal, or with which status.

        Its standard error is added unless it was killed by a signal.
        """
        status = self._process.returncode
        how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
        if -status in _FROM_OUTSIDE:
            return how
        try:
            written = self._errors.read_text(errors="replace")[-_SHOWN:].strip()
        except OSError:
            return how
        return f"{how}: {written}" if written else how

    def begin(self, message: object) -> None:
        """Send a message whose answer nobody waits for: the next :meth:`ask` skips it.

        Raises:
            OSError: the process has ended.
        """
        self._connection.send(message)
        self._unread += 1

    def ask(
        self,
        message: object,
        grace: float,
        seconds: float = math.inf,
        give: Callable[[Any], object] | None = None,
    ) -> Any:
        """Send a message and return its answer; kill the process if it does not answer in time.

        What the process needs for it, ``give`` returns by its question.

        If this thread's statement is cancelled meanwhile, the question is cancelled; if no answer
        follows within ``grace`` seconds, the process is killed.

        Raises:
            HeadraceError: ``cancelled`` in that case.
            EndedError: the process has ended, or has not answered within ``seconds``.
        """
        until = time.monotonic() + seconds
        try:
            self._connection.send(message)
            while self._unread:
                self._await_answer(until, grace)
                self._connection.recv()
                self._unread -= 1
            while True:
                self._await_answer(until, grace)
                answer = self._connection.recv()
                if give is None or not isinstance(answer, Needed):
                    return answer
                self._connection.send(_given(give, answer.question))
        except (EOFError, OSError) as error:
            self.kill()
            raise EndedError from error

    def _await_answer(self, until: float, grace: float) -> None:
        """Return when there is an answer; as :meth:`ask`."""
        while not self._connection.poll(_LISTEN_SECONDS):
            if time.monotonic() > until:
                self.kill()  # so no answer was received
            try:
                check_cancelled()
            except HeadraceError:
                self._cancel(grace)
                raise

    def _cancel(self, grace: float) -> None:
        try:
            self._connection.send(Cancel())
            while self._connection.poll(grace):
                if not isinstance(self._connection.recv(), Needed):
                    return
                self._connection.send(Failed(cancelled()))
        except (EOFError, OSError):
            pass
        self.kill()

    def kill(self) -> None:
        """Kill the process and its whole group. Thread-safe.

        This end of the connection is closed when it is no longer referenced: another thread may be
        reading it.
        """
        with self._killing:
            if self._process.returncode is None:  # so the process id has not been reused
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


def _given(give: Callable[[Any], object], question: object) -> Done | Failed:
    try:
        return Done(give(question))
    except HeadraceError as error:
        return Failed(error)
