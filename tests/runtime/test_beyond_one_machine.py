"""Every crash point again, with files in a store that fails, machines that are lost, and zombies.

The simulation has no thread, network or JVM: a store in memory that fails when it is told to, caches
that disappear, and processes that were taken for dead and go on. All that ``test_crashes.py``
demands holds after each step. ``make simulate`` runs more of it, and a failure names its steps.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from headrace.errors import Code, HeadraceError
from headrace.ledger.small_files import SmallFiles
from headrace.ledger.transactions import Transactions
from headrace.log.segments import forget_segments
from headrace.objects import ObjectStore, StoreAddress
from headrace.objects.bundles import bundle_of, bundle_of_object, members, object_of
from headrace.runtime.compaction import Compaction
from headrace.runtime.uploads import Uploads
from headrace.spine import forget_runs, mounts
from length import choose
from runtime.pure import PureDatabase
from runtime.test_crashes import EPOCH_STAGES, Crash, Crashing, changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.ledger import FileKey, SmallFile
    from runtime.pure import Change

FOLDERS = ("runs", "log")
OUTCOMES = ("fails", "is lost", "succeeds and fails", "crashes", "succeeds and crashes")
UPLOAD_STAGES = ("before commit", "after commit")
OUTCOMES_OF_SOME = st.lists(st.sampled_from(OUTCOMES))
"""What can happen to a PUT: with "is lost", the acknowledgement does not arrive in time either."""


class Simulated:
    """A store in memory whose next PUTs may have other outcomes."""

    def __init__(self) -> None:
        self.real = ObjectStore.at(StoreAddress.of("memory:///"))
        self.coming: list[str] = []
        self.away = False

    @property
    def address(self) -> StoreAddress:
        return self.real.address

    @property
    def requests(self) -> Any:
        return self.real.requests

    def put(self, name: str, file: Path | bytes) -> None:
        outcome = self.coming.pop(0) if self.coming else "succeeds"
        self._require_here()
        if outcome.startswith("succeeds"):
            self.real.put(name, file)
        if outcome.endswith("crashes"):
            raise Crash(outcome)
        if outcome != "succeeds":
            raise HeadraceError(Code.UNAVAILABLE, f"the PUT {outcome}")

    def fetch(self, name: str, file: Path) -> None:
        self._require_here()
        self.real.fetch(name, file)

    def pieces(self, name: str) -> Iterator[bytes]:
        self._require_here()
        return self.real.pieces(name)

    def delete(self, names: Iterable[str]) -> None:
        self._require_here()
        self.real.delete(names)

    def names(self, prefix: str = "", after: str = "") -> Iterator[tuple[str, int]]:
        self._require_here()
        return self.real.names(prefix, after)

    def _require_here(self) -> None:
        if self.away:
            raise HeadraceError(Code.UNAVAILABLE, "the store is away")


class Beyond(Crashing):
    """The model of ``test_crashes.py`` on one machine after another."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="beyond-"))
        self.store = Simulated()
        self.machines = 0
        self.zombies: list[PureDatabase] = []
        super().__init__()

    def teardown(self) -> None:
        for each in self.zombies:
            each.close()
        super().teardown()
        for number in range(self.machines + 1):
            for folder in FOLDERS:
                mounts.unmount(self.machine(number) / folder)
        shutil.rmtree(self.place)

    def machine(self, number: int) -> Path:
        return self.place / f"machine-{number}"

    def open(self) -> None:
        self.store.coming.clear()
        self.store.away = False
        directory = self.machine(self.machines)
        for folder in FOLDERS:
            mounts.mount(directory / folder, self.store, folder, 1 << 30)  # type: ignore[arg-type]
        self.db = PureDatabase(directory, self.faults, ledger=self.place / "ledger.db")
        self.what_is_named_is_somewhere_and_nothing_else()

    def what_is_named_is_somewhere_and_nothing_else(self) -> None:
        named, small = self.db.ledger.files.known(), self.db.ledger.small_files.names()
        assert set(small) <= {*product(["runs"], named.packs), *product(["log"], named.segments)}
        for folder, names in zip(FOLDERS, (named.packs, named.segments), strict=True):
            there = {name.partition("/")[2] for name, _ in self.store.real.names(f"{folder}/")}
            bundled = set[str]()
            for name in filter(bundle_of_object, there):
                found = self.store.real.pieces(f"{folder}/{name}")
                bundled |= members(b"".join(found), name).keys()
            waiting = {name for of, name in small if of == folder}
            assert names <= there | bundled | waiting, "what is named is somewhere"
            kept = names | {object_of(bundle) for name in names if (bundle := bundle_of(name))}
            assert there <= kept, "the store has nothing else"

    def until(self, stage: str | None, work: Callable[[], Any]) -> None:
        """Do some work, which may also fail because the store does."""
        try:
            super().until(stage, work)
        except HeadraceError as error:
            if error.code is not Code.UNAVAILABLE:
                raise
            # As a server does: what was begun is given up, and the epoch is made again.
            self.faults.stage = None
            self.restart()

    @rule(stage=st.sampled_from([None, *EPOCH_STAGES]), outcomes=OUTCOMES_OF_SOME)
    def epoch_while_the_store_fails(self, stage: str | None, outcomes: list[str]) -> None:
        self.store.coming = outcomes
        self.until(stage, self.db.loop.advance)
        self.store.coming = []

    @rule(given=changes)
    def write_while_the_store_is_away(self, given: list[Change]) -> None:
        self.db.uploads._since = None
        self.store.away = True
        self.write(given)
        self.store.away = False

    @rule(stage=st.sampled_from([None, *UPLOAD_STAGES]), outcomes=OUTCOMES_OF_SOME)
    def upload(self, stage: str | None, outcomes: list[str]) -> None:
        self.store.coming = outcomes
        self.until(stage, self.db.uploads.upload_named)
        self.store.coming = []

    @rule(outcomes=OUTCOMES_OF_SOME)
    def upload_for_a_job_and_compact(self, outcomes: list[str]) -> None:
        self.store.coming = outcomes
        self.until(None, self.db.uploads.upload)
        self.store.coming = []
        self.until(None, self.db.compaction.run)

    @rule()
    def let_no_file_wait(self) -> None:
        """As if small files had waited for too long."""
        self.db.uploads._since = -math.inf

    @rule(given=changes, outcome=st.sampled_from(OUTCOMES))
    def write_while_the_store_fails(self, given: list[Change], outcome: str) -> None:
        """Nothing of it is written, whatever has become of the object."""
        self.db.uploads._since = -math.inf
        self.store.coming = [outcome]
        try:
            code = code_of(lambda: self.db.append(self.table, given))
        except Crash:
            self.restart()
        else:
            assert code is Code.UNAVAILABLE
        self.store.coming = []

    @rule()
    def compact_while_the_store_is_away(self) -> None:
        self.store.away = True
        self.until(None, self.db.compaction.run)
        self.store.away = False

    @rule()
    def lose_the_machine(self) -> None:
        """The process ends, and another one opens the database on an empty disk."""
        lost = self.machine(self.machines)
        self.machines += 1
        self.restart()
        for folder in FOLDERS:
            mounts.unmount(lost / folder)
        shutil.rmtree(lost)
        forget_runs()
        forget_segments()

    @precondition(lambda self: len(self.zombies) < 2)
    @rule(given=changes)
    def take_over_from_a_zombie(self, given: list[Change]) -> None:
        """Another machine takes over while this one goes on, and notices nothing yet."""
        self.write(given)
        self.zombies.append(self.db)
        self.filling.clear()
        self.machines += 1
        self.open()
        self.delivery = self.db.delivery(self.sink, self.outside)

    @precondition(lambda self: self.zombies)
    @rule(
        given=changes,
        index=st.integers(0, 1),
        what=st.sampled_from(["epoch", "write", "merge", "upload"]),
    )
    def a_zombie_goes_on(self, given: list[Change], index: int, what: str) -> None:
        """Whatever it does is refused; what it has uploaded is swept at the next opening."""
        zombie = self.zombies[index % len(self.zombies)]
        work: dict[str, Callable[[], Any]] = {
            "epoch": zombie.loop.advance,
            "write": lambda: zombie.append(self.table, given),
            "merge": zombie.compaction.run,
            "upload": zombie.uploads.upload_named,
        }
        armed, self.faults.stage = self.faults.stage, None
        last = self.db.ledger.epochs.last()
        code = code_of(work[what])
        if what == "write":
            assert code is Code.CONFLICT
        else:  # files that it reads may have been merged, and deleted, by now
            assert code in {None, Code.CONFLICT, Code.CORRUPT}
        assert self.db.ledger.epochs.last() == last, "without an error, it had nothing to do"
        self.faults.stage = armed


def code_of(work: Callable[[], Any]) -> Code | None:
    """Do some work; return the code of the error that it fails with, None if it does not fail."""
    try:
        work()
    except HeadraceError as error:
        return error.code
    return None


def simulated(examples: int, *, shrink: bool = True) -> None:
    """Run the simulation; the number is in ``HEADRACE_SIMULATIONS`` for ``make simulate``."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    wanted = os.environ.get("HEADRACE_SIMULATIONS")
    run_state_machine_as_test(
        Beyond,
        settings=settings(
            max_examples=int(wanted or examples),
            stateful_step_count=25,
            deadline=None,
            derandomize=wanted is None,
            phases=phases,
            print_blob=True,
            verbosity=Verbosity.normal,
        ),
    )


def test_nothing_is_lost_doubled_or_torn_beyond_one_machine() -> None:
    simulated(choose(3, 300))


def _nothing(*_: object, **__: object) -> None:
    """Do nothing."""


def _without_fence(self: Transactions, *_: object) -> object:
    return self._fence


def _of_all(compaction: Compaction) -> int:
    """Sweep by what was named before this process took over: nothing."""
    for folder in FOLDERS:
        directory = compaction.loop.directory / folder
        mounts.delete(directory, list(mounts.files_in(directory)))
    return 0


def _of_none(_: Compaction) -> int:
    return 0


def _forgotten_first(self: SmallFiles, keys: list[FileKey]) -> list[SmallFile]:
    """Forget small files in the ledger before the store has them."""
    found = _read(self, keys)
    self.forget(keys)
    return found


_read = SmallFiles.read


def _again(_self: Uploads, bundle: str, _keys: list[FileKey]) -> bool:
    """Upload a bundle again with the files that were committed since."""
    return bool(bundle)


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        pytest.param(mounts, "keep", _nothing, id="a file is named that the store does not have"),
        pytest.param(Transactions, "_require_fence", _without_fence, id="no fence"),
        pytest.param(Compaction, "sweep_strays", _of_all, id="files that are named are swept"),
        pytest.param(Compaction, "sweep_strays", _of_none, id="what a zombie uploads stays"),
        pytest.param(SmallFiles, "read", _forgotten_first, id="forgotten before it is uploaded"),
        pytest.param(Uploads, "_takes", _again, id="a bundle is replaced by its later files"),
    ],
)
def test_a_planted_defect_is_found(
    where: object, name: str, wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(Exception):  # noqa: B017, PT011  (an assertion, or an error of what is missing)
        simulated(30, shrink=False)
