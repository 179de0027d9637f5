"""Builds that have been filled take their place: as a new view, or instead of what is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.ledger import LIVE, NewArrangement, NewBuild, NewObject, NewRun, RunKind
from headrace.runtime.dirty import removed_with, repairable
from headrace.runtime.swap import Swap, followed
from headrace.spine import differences, sync_directory
from headrace.types import rows_of

if TYPE_CHECKING:
    from headrace.ledger import Dirty, RepairedView
    from headrace.runtime.fill import Fill
    from headrace.runtime.filled import Filled
    from headrace.types import BuildId, DirtyId, Epoch, FrontierId, RelationId


def create_filled(fill: Fill, dropped: tuple[RelationId, ...] = ()) -> Swap:
    """Return the commit of a new view in place of ``dropped``.

    Its sets have been held since it last caught up. The clock of that is the epoch's.
    """
    view, frontier = fill.view, _new_frontier(fill)
    filled = fill.written(frontier)
    contents, state = _arrangements(fill, filled)
    definition = view.to_json()
    created = NewObject(view.id, view.name, view.kind, definition, view.inputs, (contents,))
    change = replace(
        filled.change(filled.runs, filled.clock, "filled", view.name),
        created=(created,),
        dropped=dropped,
        builds=(_new_build(fill, state, frontier),),
    )
    return Swap(fill.loop, fill.attempt, change)


def take_over(
    fill: Fill,
    former: BuildId,
    cleaned: tuple[DirtyId, ...] = (),
    ended: tuple[RepairedView, ...] = (),
    marked: tuple[Dirty, ...] = (),
    *,
    stays: bool = False,
) -> Swap:
    """Return the commit of a build in place of a former one of a view; see :func:`create_filled`.

    The view's contents change by the difference, in the epoch of the commit, and so does
    everything that reads them. The dirty entries ``cleaned`` are repaired by that, views that had
    ``ended`` run again, and those ``marked`` have stopped. If the view ``stays`` and lags behind,
    the fill was begun where it stands, and that does not change.
    """
    loop, view = fill.loop, fill.view
    if stays and view.refresh.lags:
        frontier, filled = loop.ledger.head.serving(view.id).frontier, fill.written(None)
        clock = loop.ledger.epochs.clock()
    else:
        frontier = _new_frontier(fill)
        filled = fill.written(frontier)
        clock = filled.clock
    _, state = _arrangements(fill, filled)
    loop.fault("take over")
    runs, delta = _by_difference(fill, filled)
    above = followed(loop, fill.attempt, {view.id: tuple(run.file for run in delta)}, clock)
    change = replace(
        filled.change((*runs, *delta), clock, "filled", view.name),
        builds=(_new_build(fill, state, frontier),),
        retired=(former,),
        cleaned=cleaned,
        repaired=ended,
        dirtied=marked,
    )
    return Swap(loop, fill.attempt, change, above)


def fill_again(fill: Fill, repaired: RepairedView, *, stays: bool = False) -> Epoch:
    """Fill a view again and replace its stored rows; its set and the lock of refreshes are held.

    The view is one that no epoch maintains. Its rows change by the difference, as in any epoch, and
    followers receive that difference. The state of its operators is discarded. Its slices are no
    longer dirty. If the view ``stays`` and lags behind, it is filled where it stands.
    """
    loop, view = fill.loop, fill.view
    with fill.attempt:
        if stays and view.refresh.lags:
            filled, clock = fill.whole(None, None), loop.ledger.epochs.clock()
        else:
            frontier = loop.ledger.head.serving(view.id).frontier
            filled = fill.whole(loop.quiet_clock(), frontier)
            clock = filled.clock
        runs, delta = _by_difference(fill, filled)
        change = replace(
            filled.change((*runs, *delta), clock, "filled", view.name),
            repaired=(repaired,),
            cleaned=_cleaned(fill),
        )
        state = filled.layouts.keys() - {rows_of(view.id)}
        return _published(Swap(loop, fill.attempt, change, emptied=state))


def rebuild_filled(fill: Fill, *repaired: RepairedView) -> Epoch:
    """Fill a view again, replacing its stored rows, damaged or not; held is as for the former.

    The view is computed as of its frontier, so its rows stay the same, and the views above it do
    not change. Epochs before this one can no longer be read.
    """
    with fill.attempt:
        filled = fill.whole(None, None)
        change = replace(
            filled.change(filled.runs, None, "repaired", fill.view.name),
            repaired=repaired,
            cleaned=_cleaned(fill),
            counters={"repaired": fill.view.name, "changes": 0},
        )
        return _published(Swap(fill.loop, fill.attempt, change, emptied=filled.layouts.keys()))


def _published(swap: Swap) -> Epoch:
    with swap.loop.between():
        return swap.commit()


def _by_difference(fill: Fill, filled: Filled) -> tuple[tuple[NewRun, ...], tuple[NewRun, ...]]:
    """Return the runs of the operators' state, and those by which the view's rows change.

    These are a run for each partition, in place of the rows that were filled.
    """
    loop, attempt, rows = fill.loop, fill.attempt, rows_of(fill.view.id)
    there = loop.published.current  # kept, so that a merge beside this deletes no file of it
    before = [run.file for run in there.spines[rows]]
    after = [run.file for run in filled.runs_of(rows)]
    layout = filled.layouts[rows]
    found = differences(attempt.directory, layout, before, after, loop.partitions)
    attempt.put(rows, found)
    sync_directory(attempt.directory)
    state = tuple(run for run in filled.runs if run.arrangement != rows)
    return state, tuple(NewRun(file, rows, RunKind.DELTA) for file in found)


def _new_frontier(fill: Fill) -> FrontierId:
    """Return the frontier of a new build: one of its own if the view is refreshed apart."""
    return fill.loop.ledger.ids.frontier() if fill.view.refresh.lags else LIVE


def _new_build(fill: Fill, state: tuple[NewArrangement, ...], frontier: FrontierId) -> NewBuild:
    view = fill.view
    definition = view.to_json()
    return NewBuild(
        view.build, view.id, definition, view.inputs, state, frontier, begins=fill.begins
    )


def _arrangements(fill: Fill, filled: Filled) -> tuple[NewArrangement, tuple[NewArrangement, ...]]:
    """Return the view's contents, and the state of the build's operators."""
    kept = {id_: NewArrangement(id_, a.to_json()) for id_, a in filled.layouts.items()}
    contents = kept.pop(rows_of(fill.view.id))
    return contents, tuple(kept.values())


def _cleaned(fill: Fill) -> tuple[DirtyId, ...]:
    """Return the dirty entries that are repaired once all of the view is computed again."""
    dirty, catalog = fill.loop.ledger.head.dirty, fill.loop.published.current.catalog
    return removed_with(repairable(dirty, fill.view.id), dirty, catalog)
