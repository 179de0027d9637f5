"""The world of a history: processes on machines, the store, the ledger's server, and the model.

The model is the list of changes that were acknowledged. After each step the database is what the
model says of the changes that its published state has read: its table, its views, and what its sink
has written.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import shutil
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime import log_merging
from headrace.execution.runtime.beside import SetSteps
from headrace.execution.runtime.step import events_in
from headrace.files import mounts
from headrace.files.bundles import bundle_of, object_of
from headrace.planning.catalog import RefreshKind, RefreshPolicy, Sink, Stream, Table, View
from headrace.storage.log import EmbeddedLog, Extent, InLedger, LogShare
from headrace.storage.log.segments import forget_segments
from headrace.types import Epoch, Offset, rows_of
from runtime.crashing import Crash, counted, table_after
from runtime.pure import QUERIES, ROW, Outside, PureDatabase, PureRunner
from simulation.disk import Disk, simulated_disk
from simulation.points import CRASHES, LOSES_MACHINE, Life, Points
from simulation.quick import opened
from simulation.runner import PlainRunner, forget_rows, rows_in
from simulation.server import Server
from simulation.store import Client, Objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.execution.runtime.deliveries import Delivery
    from headrace.execution.runtime.fill import Fill
    from headrace.storage.ledger import RunRecord
    from headrace.types import ArrangementId, RelationId
    from runtime.pure import Change, EventChange

merge: Final = importlib.import_module("headrace.algebra.spine.merge")
"""The module: the package has a function of this name."""
FOLDERS: Final = ("runs", "log")
DISK: Final = "disk"
STORE: Final = "store"
BUNDLES: Final = "store with bundles"
"""Where files are; at last, a store for which small files wait in the ledger."""
MANUAL: Final = RefreshPolicy(RefreshKind.MANUAL)
LAGGING: Final = ("late", "later", "top")
"""The views that are refreshed by hand."""
FANOUT: Final = 3
"""How many runs of similar size are merged: few, so that short histories have merges."""
TAIL: Final = 2
"""How many landings are merged."""
_READS: Final = 6
"""After so many steps, changes that somebody asked for have been read."""
HISTORY_EPOCHS: Final = 2
"""How many epochs before the last can be read, if nothing needs more."""
_ENDS_COMPACTED: Final = 4
"""One in so many histories ends with a compaction, and a check of all that holds of a ledger."""
_STARTS: Final = 8
"""How often a process is started at most until it is open."""
_SLOTS: Final = Path("/dev/shm")  # noqa: S108  (in memory, where there is one)


def in_memory() -> Path | None:
    """Return a directory in memory; None, for that of temporary files, if there is none."""
    return _SLOTS if _SLOTS.is_dir() else None


@dataclass(eq=False, slots=True)
class Process:
    """One process that has the database open, and what it is about to do."""

    db: PureDatabase
    life: Life
    machine: Path
    delivery: Delivery
    filling: list[Fill] = field(default_factory=list)
    reading: LogShare | None = None
    left: int = 0
    """After how many steps nobody reads that any longer."""
    steps: list[Callable[[], None]] = field(default_factory=list)
    """The wide steps that have begun beside epochs, each with all that is left of it."""

    def settle(self) -> None:
        """Have everything read, in this thread."""
        while self.db.loop.pending():
            if self.db.loop.advance() is None:
                self.end_step()

    def step_beside(self) -> None:
        """Let wide steps run beside epochs from now on."""
        self.db.loop.beside = PlayedSteps(2, self.steps.append, process=self)

    def end_step(self, index: int = 0) -> None:
        """Make a step that has begun, to its end; raise why it fails."""
        (number,) = sorted({index % len(self.steps)}) if self.steps else (0,)
        if self.steps:
            before = self.db.loop.beside.steps
            self.steps.pop(number)()
            self.life.require()
            for step in before:
                if step.ended and step.error is not None:
                    raise step.error


@dataclass(slots=True)
class PlayedSteps(SetSteps):
    """Steps that are made when the history says so, or when something waits for them."""

    process: Process | None = None

    def wait(self, met: Callable[[], bool]) -> None:
        """Make the steps that run, until a condition is met."""
        assert self.process is not None
        while not met():
            assert self.process.steps, "nothing is waited for that does not run"
            with suppress(HeadraceError):  # what waits does not need that it was made
                self.process.end_step()


@dataclass(frozen=True, slots=True)
class Template:
    """The ledger of a database in which all relations have been created, and nothing was written."""

    file: Path
    ids: dict[str, RelationId]


class Site:
    """Where this process plays histories, one after another: a directory, and a ledger's server.

    As a context, it is the disk of this process, and the source of its unique names.
    """

    def __init__(self, within: Path | None = None) -> None:
        self._folder = TemporaryDirectory(prefix="simulation-", dir=within or in_memory())
        self.place = Path(self._folder.name)
        self.disk = Disk()
        self.server = Server(self.place / "none", Points(lambda _point, _name: None))
        self.random = Random(0)
        self.seconds = 0
        self.runner: Callable[[], PureRunner] = PlainRunner
        self._templates: dict[str, Template] = {}

    @contextmanager
    def used(self) -> Iterator[Site]:
        """Use the site, and remove it."""
        real, os.urandom = os.urandom, self.random.randbytes
        defaults, fanout = merge.due.__defaults__, merge.FANOUT
        merge.due.__defaults__, merge.FANOUT = (FANOUT, ()), FANOUT  # type: ignore[misc]
        dead, log_merging._DEAD_AT_REST = log_merging._DEAD_AT_REST, 1  # type: ignore[misc]
        try:
            with self._folder, simulated_disk(self.disk):
                yield self
        finally:
            self.server.close()
            os.urandom = real
            merge.due.__defaults__, merge.FANOUT = defaults, fanout  # type: ignore[misc]
            log_merging._DEAD_AT_REST = dead  # type: ignore[misc]

    def clock(self) -> float:
        """Return the time in Unix seconds: a millisecond after it was asked before."""
        self.seconds += 1
        return 1_700_000_000 + self.seconds / 1000

    def template(self, shape: str) -> Template:
        """Return a database of a shape, which is created once."""
        known = self._templates.get(shape)
        if known is None:
            known = self._templates[shape] = self._created(shape)
        return known

    def _created(self, shape: str) -> Template:
        directory = self.place / f"template-{shape}"
        db = PureDatabase(directory, clock=self.clock)
        table, other = db.create_table(), db.create_table("u")
        view = db.create_view("counts", table)
        made = {"t": table, "counts": view, "above": db.create_view("above", view)}
        made |= {"s": db.create_stream(), "u": other, "over_u": db.create_view("over_u", other)}
        if shape == "full":
            late = made["late"] = db.create_view("late", table, MANUAL)
            made["later"] = db.create_view("later", late, MANUAL)
            over_late = made["over_late"] = db.create_view("over_late", late)
            made["top"] = db.create_view("top", over_late, MANUAL)
        made["sink"] = db.create_sink(view)
        db.close()
        assert not list((directory / "runs").iterdir()), "nothing was written"
        return Template(directory / "ledger.db", {name: each.id for name, each in made.items()})


class World:
    """One database under a history; ``shape`` is small or full.

    ``storage`` is ``DISK``, ``STORE``, or ``BUNDLES``: a store for which small files wait in the
    ledger.
    """

    def __init__(self, site: Site, seed: int, shape: str, storage: str) -> None:
        self.site, self.seed, self.storage = site, seed, storage
        site.random.seed(seed)
        site.seconds = 0
        self.place = site.place / "history"
        self.place.mkdir()
        template = site.template(shape)
        self.ids = template.ids
        self.file = self.place / "ledger.db"
        shutil.copyfile(template.file, self.file)
        self.points = Points(self.meanwhile)
        self.server = site.server
        self.server.moved(self.file, self.points)
        self.truth = opened(self.file)
        self.objects = Objects()
        self.machines = self.lives = 0
        self.mounted: list[Path] = []
        self.logs: dict[str, list[Change]] = {"t": [], "u": []}
        self.events: list[EventChange] = []
        """What has been written to the stream."""
        self.writing: list[tuple[str, Sequence[Change]]] = []
        self.outside = Outside()
        self.zombies: list[Process] = []
        self.views = 0
        self.failure: BaseException | None = None
        self.happenings: dict[str, Callable[[World], None]] = {}
        """What may happen while something is slow, by name; see ``rules.py``."""
        self.checked: tuple[object, ...] = ()
        self.read: dict[RelationId, tuple[object, Counter[tuple[int, ...]]]] = {}
        self.sunk = (0, 0)
        self.named_at = 0
        self.ever_named: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
        self.past: dict[tuple[RelationId, Epoch], Counter[tuple[int, ...]]] = {}
        self._process: Process | None = None
        self.start()

    def close(self) -> None:
        """Remove everything."""
        for each in [*self.zombies, *([] if self._process is None else [self._process])]:
            each.db.close()
        for directory in self.mounted:
            mounts.unmount(directory)
        self.truth.close()
        self.site.disk.owners.clear()
        self.site.disk.names.clear()
        self.site.disk.sizes.clear()
        forget_runs()
        forget_segments()
        shutil.rmtree(self.place)

    # -- processes -------------------------------------------------------------------------

    @property
    def process(self) -> Process:
        """The process that took over last."""
        assert self._process is not None
        return self._process

    @property
    def db(self) -> PureDatabase:
        """The database, as the process that took over last has it open."""
        return self.process.db

    @property
    def log(self) -> list[Change]:
        """What has been written to the table."""
        return self.logs["t"]

    @property
    def table(self) -> Table:
        """The table."""
        return self.table_of("t")

    def table_of(self, name: str) -> Table:
        """Return the table, or the other one: of another connected set."""
        found = self.db.loop.catalog.by_id[self.ids[name]]
        assert isinstance(found, Table)
        return found

    def view(self, name: str) -> View:
        """Return a view, as it is defined now."""
        found = self.db.loop.catalog.by_id[self.ids[name]]
        assert isinstance(found, View)
        return found

    def machine(self, number: int) -> Path:
        """Return the data directory of a machine."""
        return self.place / f"machine-{number}"

    def start(self) -> None:
        """Start a process on the current machine, again if it ends or fails before it is open."""
        self._process, number = None, self.machines
        for left in reversed(range(_STARTS)):
            self.lives += 1
            life = Life(f"process {self.lives}")
            try:
                started = self._started(life, self.machine(number))
            except Crash:
                number = self._machine_after(life, number)
            except HeadraceError as error:
                away = error.code is Code.UNAVAILABLE and self.points.met and left
                if not away and (error.code is not Code.CONFLICT or self._process is None):
                    raise
            else:
                if self.server.newest is life:
                    self._process = started
                else:
                    self.zombies.append(started)
            if self._process is not None:
                return
            self.points.away.clear()
        raise AssertionError("no process could be started")

    def _started(self, life: Life, directory: Path) -> Process:
        forget_runs()
        forget_rows()
        forget_segments()
        for folder in FOLDERS:
            (directory / folder).mkdir(parents=True, exist_ok=True)
            self.site.disk.owners[str(directory / folder)] = life
            if self.in_store:
                client: Any = Client(self.objects, self.points, life)
                mounts.mount(directory / folder, client, folder, 1 << 30)
                self.mounted.append(directory / folder)
        fault = partial(self._reached, life)
        ledger = self.server.open(life, self.site.clock, fault)
        db = PureDatabase(directory, fault, self.site.clock, ledger, self.site.runner())
        if db.uploads is not None and self.storage == STORE:
            db.uploads._since = -math.inf  # as if the store had been away for too long
        db.loop.settings = dataclasses.replace(db.loop.settings, history_epochs=HISTORY_EPOCHS)
        if self.server.newest is life:
            self._check_swept(db)
        sink = db.loop.catalog.by_id[self.ids["sink"]]
        assert isinstance(sink, Sink)
        return Process(db, life, directory, db.delivery(sink, self.outside))

    def _check_swept(self, db: PureDatabase) -> None:
        """Demand that no file is left that the ledger does not name."""
        for folder in FOLDERS:
            named = self._named(folder)
            if not self.in_store:
                strays = self._there(folder, db.directory) - named
            else:
                bundles = {object_of(bundle) for name in named if (bundle := bundle_of(name))}
                strays = (self.objects.in_folder(folder) | self._small(folder)) - named - bundles
            assert not strays, f"what is not named in {folder} is swept: {strays}"

    def _reached(self, life: Life, stage: str) -> None:
        life.require()
        effect = self.points.effect(stage)
        life.require()
        if effect in (CRASHES, LOSES_MACHINE):
            life.end(stage, machine=effect == LOSES_MACHINE)

    def restart(self) -> None:
        """End the process, if it has not ended, and start another one."""
        ended = self.process
        ended.db.close()
        self.machines = self._machine_after(ended.life, self.machines)
        self.start()

    def _machine_after(self, life: Life, number: int) -> int:
        """Return the number of the machine that is used after the end of a process."""
        if not life.machine_lost:
            return number
        life.machine_lost, machine = False, self.machine(number)
        if self.in_store:
            shutil.rmtree(machine)
            self.machines += 1
            return self.machines
        for folder in FOLDERS:
            self.site.disk.lose_power(machine / folder)
        return number

    def take_over(self) -> None:
        """Start a process on another machine; the one so far has not ended, and will notice."""
        if self._process is not None:
            self.zombies.append(self._process)
        self.machines += 1
        self.start()

    def bury(self) -> None:
        """Close those processes that have ended, of which others have taken over."""
        for each in [each for each in self.zombies if each.life.ended]:
            self.zombies.remove(each)
            each.db.close()

    def overtaken(self, process: Process) -> bool:
        """Whether another process has taken over from this one."""
        return process is not self._process

    # -- what happens ----------------------------------------------------------------------

    def meanwhile(self, point: str, name: str) -> None:
        """Have something else happen at a point at which a process is slow."""
        del point
        troubles, self.points.troubles = self.points.troubles, []
        try:
            self.happenings[name](self)
        except HeadraceError as error:
            if error.code is not Code.UNAVAILABLE or not self.points.away:
                self.failure = self.failure or error
        except BaseException as error:  # noqa: BLE001 - raised again at the end of the step
            self.failure = self.failure or error
        self.points.troubles = troubles

    def append(self, process: Process, given: Sequence[Change], name: str = "t") -> None:
        """Append changes to a table, and have the model say what was written."""
        self._model_writes()
        own = name, given
        self.writing = [*self.writing, own]
        try:
            end = process.db.append(self.table_of(name), given)
        except (HeadraceError, Crash) as error:
            certain = isinstance(error, HeadraceError) and "is not known" not in (
                error.detail or ""
            )
            written = self._model_writes()
            assert not (written and certain), "an error means that nothing was written"
            raise
        else:
            self._model_writes()
            log = self.logs[name]
            assert end <= len(log), "what is acknowledged is written"
            assert log[end - len(given) : end] == given
        finally:
            self.writing = [each for each in self.writing if each is not own]

    def append_events(self, given: Sequence[EventChange]) -> None:
        """Append events to the stream, or a correction of some; the model says what was written."""
        before, stream = len(self.events), self.db.loop.catalog.by_id[self.ids["s"]]
        assert isinstance(stream, Stream)
        try:
            self.db.append_events(stream, given)
        finally:
            written = self.log_end("s") - before
            assert written in {0, len(given)}, "all of a write, or nothing"
            self.events += given if written else []

    def events_at(self, end: int) -> dict[int, int]:
        """Return what the events are, by offset, at a position of the stream's log."""
        found = dict[int, int]()
        for at, (event, n, weight) in enumerate(self.events[:end]):
            place = at if event is None else event
            if weight > 0:
                found[place] = n
            else:
                assert found.pop(place) == n
        return found

    def _model_writes(self) -> bool:
        """Have the model say what has been written; return whether that is anything new.

        Of several writes that are under way, the others have not been written: each one that is
        slow waits at one point, and others begin and end meanwhile.
        """
        new = {name: self.log_end(name) - len(log) for name, log in self.logs.items()}
        if not any(new.values()):
            return False
        name, given = self.writing[-1]
        assert new == {**dict.fromkeys(new, 0), name: len(given)}, "all of a write, or nothing"
        self.logs[name] += given
        return True

    def log_end(self, name: str = "t") -> int:
        """Return the end of a table's log, as the ledger's database has it."""
        query = "SELECT log_end FROM logs WHERE relation = ?"
        ((end,),) = self.truth.execute(query, (self.ids[name],)).fetchall()
        return int(end)

    def last_epoch(self) -> int:
        """Return the last epoch, as the ledger's database has it."""
        ((last,),) = self.truth.execute("SELECT max(epoch) FROM epochs").fetchall()
        return int(last)

    def is_behind(self) -> bool:
        """Whether a commit was in doubt, was made, and the process does not know yet."""
        return self.db.loop.published.current.epoch < self.last_epoch()

    def version(self) -> int:
        """Return a number that changes whenever something is committed."""
        return int(self.truth.execute("PRAGMA data_version").fetchone()[0])

    # -- what must hold --------------------------------------------------------------------

    def check(self) -> None:
        """Compare the published state of the database with the model, if anything has changed."""
        if self.failure is not None:
            raise self.failure
        assert not self.server.violations, self.server.violations
        written = {name: len(log) for name, log in self.logs.items()}
        ends = {name: self.log_end(name) for name in written}
        assert ends == written, "what was acknowledged is written, and no more"
        self._check_forgotten()
        self._read_on()
        state, process = self.db.loop.published.current, self.process
        now = (self.version(), id(process), id(state))
        if now == self.checked:
            return
        known = self.checked[1:2] == now[1:2]
        self.checked = now
        if not known:
            self.read.clear()
            self.past.clear()
        self._check_tables()
        self._check_log()
        if "late" in self.ids:
            self._check_what_lags()
        self._check_the_sink()

    def _check_forgotten(self) -> None:
        """Demand that a file is deleted before its name is forgotten: nobody else would find it."""
        version = self.version()
        if version == self.named_at:
            return
        self.named_at = version
        for folder in FOLDERS:
            names, ever = self._named(folder), self.ever_named[folder]
            forgotten = ever - names
            ever |= names
            there = partial(self._there, folder, self.process.machine, late=False)
            if forgotten and (left := forgotten & there()):
                raise AssertionError(f"files are left that were named in {folder}: {left}")

    def _named(self, folder: str) -> set[str]:
        """Return the files of a folder that the ledger names."""
        of_log = "SELECT file FROM segments UNION SELECT file FROM replaced_files"
        query = {"runs": "SELECT pack FROM runs", "log": of_log}[folder]
        return {name for (name,) in self.truth.execute(query)}

    def _small(self, folder: str) -> set[str]:
        """Return the files of a folder that the ledger keeps."""
        query = "SELECT name FROM small_files WHERE folder = ?"
        return {name for (name,) in self.truth.execute(query, (folder,))}

    def _there(self, folder: str, machine: Path, *, late: bool = True) -> set[str]:
        """Return the files of a folder that there are; see :meth:`Objects.in_folder`."""
        if self.in_store:
            return self.objects.files_in(folder, late=late) | self._small(folder)
        return {path.name for path in (machine / folder).iterdir()}

    @property
    def in_store(self) -> bool:
        """Whether the files are in a store."""
        return self.storage != DISK

    def rows(self, id_: RelationId) -> Counter[tuple[int, ...]]:
        """Return the rows of a relation, which are read if its runs have changed."""
        runs = self.db.loop.published.current.spines.get(rows_of(id_), ())
        known = self.read.get(id_)
        if known is None or known[0] != runs:
            known = self.read[id_] = (runs, self._rows_of(rows_of(id_), runs))
        return known[1]

    def _rows_of(self, id_: ArrangementId, runs: Iterable[RunRecord]) -> Counter[tuple[int, ...]]:
        layout = self.db.loop.published.current.layouts[id_]
        return rows_in(self.db.loop.runs, layout, [run.file for run in runs])

    def rows_at(self, id_: RelationId, epoch: Epoch) -> Counter[tuple[int, ...]]:
        """Return the rows of a relation at an epoch."""
        state = self.db.loop.published.current
        if epoch == state.epoch:
            return self.rows(id_)
        known = self.past.get((id_, epoch))
        if known is None:
            runs = self.db.ledger.spines.runs(rows_of(id_), epoch)
            known = self.past[id_, epoch] = self._rows_of(rows_of(id_), runs)
        return known

    def _check_tables(self) -> None:
        state, ids = self.db.loop.published.current, self.ids
        rows = table_after(self.log[: state.positions.get(ids["t"], 0)])
        assert self.rows(ids["t"]) == Counter(rows.items()), "the table"
        other = table_after(self.logs["u"][: state.positions.get(ids["u"], 0)])
        assert self.rows(ids["u"]) == Counter(other.items()), "the other table"
        over_u = counted(other.values(), QUERIES[self.view("over_u").query])
        assert self.rows(ids["over_u"]) == over_u, "the view over the other table"
        apart = {ids[name] for name in ("above", "over_u", "over_late", *LAGGING) if name in ids}
        for view in state.catalog.views_in_order():
            if view.id not in apart:
                counts = counted(rows.values(), QUERIES[view.query])
                assert self.rows(view.id) == counts, view.name
        assert self.rows(ids["above"]) == counted(n for _, n in self.rows(ids["counts"])), "above"
        head, view = self.db.ledger.head, self.view("counts")
        if head.epoch == state.epoch:
            served = head.serving(view.id)
            assert (served.id, served.definition) == (view.build, view.to_json()), "the build"
        for key in (0, 3):
            wanted = Counter([(key, rows[key])] if key in rows else [])
            assert self.db.by_key(ids["t"], key) == wanted, "a lookup by key"

    def begin_to_read(self) -> None:
        """Ask for all changes of the log, as a reader that takes a while."""
        log = self.db.ledger.log
        end = self.db.ledger.head.log_end(self.table.id)
        segments = log.segments(self.table.id, Offset(0), end)
        self.process.reading, self.process.left = LogShare(segments, Offset(0), end), _READS

    def _read_on(self) -> None:
        """Demand that changes that the process has asked for before can be read."""
        process = self.process
        if process.reading is None:
            return
        forget_segments()  # they are not in memory
        share = process.reading
        assert self._changes(share) == self.log[: share.end], "a reader in the middle"
        process.left -= 1
        if not process.left:
            process.reading = None

    def _check_log(self) -> None:
        ledger = self.db.ledger
        end = ledger.head.log_end(self.ids["t"])
        segments = ledger.log.segments(self.ids["t"], Offset(0), end)
        assert self._changes(LogShare(segments, Offset(0), end)) == self.log[:end], "the log"

        self._check_events()

    def _check_events(self) -> None:
        """Demand that events are as their corrections leave them, also at an earlier position."""
        ledger, stream = self.db.ledger, self.db.loop.catalog.by_id[self.ids["s"]]
        assert isinstance(stream, Stream)
        half = len(self.events) // 2
        for end in {len(self.events), half - self._is_inserted(half)}:
            extent = Extent.of(ledger, stream.id, Offset(0), Offset(end))
            events = events_in(self.process.machine, stream, extent, InLedger(ledger))
            wanted = self.events_at(end)
            assert events.count() == len(wanted), "the number of events"
            rows = [row for part in events.parts(["n", "__offset"]) for row in part.to_pylist()]
            found = sorted((row["__offset"], row["n"]) for row in rows)
            assert found == sorted(wanted.items()), "the events"

    def _is_inserted(self, at: int) -> bool:
        """Whether the change at an offset is in the place of what was retracted before."""
        return at < len(self.events) and self.events[at][0] is not None and self.events[at][2] > 0

    def _changes(self, share: LogShare) -> list[Change]:
        read = EmbeddedLog().read(self.process.machine / "log", share, ROW, offsets=True)
        found = [row for batch in read for row in zip(*map(pa.Array.to_pylist, batch), strict=True)]
        assert [at for *_, at in found] == list(range(share.end))
        return [(k, g, weight) for k, g, weight, _ in found]

    def _check_what_lags(self) -> None:
        state, ids = self.db.loop.published.current, self.ids
        late, later = state.lagging[ids["late"]], state.lagging[ids["later"]]
        rows = table_after(self.log[: late.offsets.get(ids["t"], 0)])
        counts = counted(rows.values())
        assert self.rows(ids["late"]) == counts, "late"
        assert self.rows(ids["over_late"]) == counted(n for _, n in counts), "over_late"
        below = self.rows_at(ids["late"], later.epoch)
        assert self.rows(ids["later"]) == counted(n for _, n in below), "later"
        between = self.rows_at(ids["over_late"], state.lagging[ids["top"]].epoch)
        assert self.rows(ids["top"]) == counted(n for _, n in between), "top"

    def _check_the_sink(self) -> None:
        if not self.outside.epochs:
            return
        last, state = max(self.outside.epochs), self.db.loop.published.current
        if self.sunk == (len(self.outside.epochs), last):
            return
        self.sunk = len(self.outside.epochs), last
        if last == state.epoch:
            assert self.outside.rows() == self.rows(self.ids["counts"]), "the sink"
            return
        since = {a.id: a.since for a in self.db.ledger.spines.arrangements()}
        if since[rows_of(self.ids["counts"])] <= last:
            assert self.outside.rows() == self.rows_at(self.ids["counts"], last), "the sink"

    def finish(self) -> None:
        """Check everything, after a restart that nothing disturbs."""
        self.points.end()
        self.objects.arrive()
        self.restart()
        self.past.clear()
        self.sunk = (0, 0)
        self.check()
        self.check_history()
        self.db.loop.settings = dataclasses.replace(self.db.loop.settings, epoch_rows=10_000)
        self.settle()
        self.check()
        if self.seed % _ENDS_COMPACTED == 0:
            self.db.compaction.run(TAIL)
            self.past.clear()
            self.check()
            assert self.db.ledger.violations() == {}
        there = {folder: self._there(folder, self.process.machine) for folder in FOLDERS}
        for needed in self.db.ledger.files.needed():
            assert needed.name in there[needed.folder], f"{needed.folder}/{needed.name} is needed"

    def settle(self) -> None:
        """Have everything read and delivered."""
        self.process.settle()
        self.process.delivery.advance()
        assert self.outside.rows() == self.rows(self.ids["counts"])

    def check_history(self) -> None:
        """Compare the epochs that can still be read with the model."""
        ids, since = self.ids, {a.id: a.since for a in self.db.ledger.spines.arrangements()}
        query = "SELECT epoch, to_offset FROM reads WHERE relation = ? ORDER BY epoch"
        tables = {name: self.truth.execute(query, (ids[name],)).fetchall() for name in self.logs}
        stored = {name: rows_of(ids[name]) for name in ("t", "u", "over_u", "counts", "above")}
        for number in range(min(map(since.__getitem__, stored.values())), self.last_epoch() + 1):
            epoch = Epoch(number)
            here = {name: id_ for name, id_ in stored.items() if since[id_] <= epoch}
            runs = self.db.ledger.spines.of(here.values(), epoch)
            found = {name: self._rows_of(id_, runs[id_]) for name, id_ in here.items()}
            for name, read in tables.items():
                at = max((to for made, to in read if made <= epoch), default=0)
                rows = table_after(self.logs[name][:at])
                if name in found:
                    assert found[name] == Counter(rows.items()), f"the table {name} at {epoch}"
                if name == "u" and "over_u" in found:
                    over_u = counted(rows.values(), QUERIES[self.view("over_u").query])
                    assert found["over_u"] == over_u, f"over_u at {epoch}"
            if "counts" in found and "above" in found:
                above = counted(n for _, n in found["counts"])
                assert found["above"] == above, f"above at {epoch}"
