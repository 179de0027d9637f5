"""The invariants of a commit, each a predicate with a name.

They run inside the commit's transaction, before it writes, so they see the ledger that the commit
builds on. A predicate returns None, or a description of the violation. Only a defect in Headrace
can violate one; errors that users or other processes can cause are raised elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import builds, schema
from headrace.storage.ledger.driver_statement import DriverStatement
from headrace.storage.ledger.records import LIVE, EpochCommit, NewRun

if TYPE_CHECKING:
    from headrace.types import RelationId


Invariant = Callable[[sa.Connection, EpochCommit], str | None]
T = TypeVar("T", int, str, tuple[int, int], tuple[str, int])

# Statements of every epoch are built once: building them costs more than running them.
_WANTED: Final[sa.BindParameter[Any]] = sa.bindparam("wanted", expanding=True)
_NEWEST_EPOCHS: Final = DriverStatement(
    sa.select(schema.epochs.c.epoch).order_by(schema.epochs.c.epoch.desc()).limit(2)
)
_STANDS: Final = DriverStatement(
    sa.select(schema.logs.c.log_end, sa.func.coalesce(schema.positions.c.consumed, 0))
    .outerjoin(
        schema.positions,
        (schema.positions.c.relation == schema.logs.c.relation)
        & (schema.positions.c.frontier == sa.bindparam("its_frontier")),
    )
    .where(schema.logs.c.relation == sa.bindparam("its_relation"))
)
_OF_PACK: Final = DriverStatement(
    sa.select(schema.runs.c.pack).where(schema.runs.c.pack == sa.bindparam("its_pack")).limit(1)
)
_LIVE_ARRANGEMENTS: Final = sa.select(
    schema.arrangements.c.id, schema.arrangements.c.owner, schema.arrangements.c.build
).where(schema.arrangements.c.id.in_(_WANTED), schema.arrangements.c.dropped_epoch.is_(None))


def epochs_are_consecutive(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """The commit follows the last epoch, which follows the one before it."""
    newest = [epoch for (epoch,) in _NEWEST_EPOCHS.rows(connection)]
    expected = [commit.previous, commit.previous - 1][: 1 if commit.previous == 0 else 2]
    return None if newest == expected else f"the newest epochs are {newest}, not {expected}"


def reads_continue_the_last(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """A frontier reads a relation at most once, from where it stands, within the log."""
    twice = _repeated((read.frontier, read.relation) for read in commit.reads)
    if twice:
        return f"frontiers and relations {twice} are read twice"
    for read in commit.reads:
        its = {"its_relation": read.relation, "its_frontier": read.frontier}
        end, consumed = next(iter(_STANDS.rows(connection, **its)), (0, 0))
        if read.from_offset != consumed:
            return f"relation {read.relation} is read from {read.from_offset}, not {consumed}"
        if not read.from_offset <= read.to_offset <= end:
            return f"relation {read.relation} is read to {read.to_offset}; its log ends at {end}"
    return None


def frontiers_exist(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """What moves is the live frontier, one that exists, or one that the epoch begins."""
    named = {read.frontier for read in commit.reads} | {new.frontier for new in commit.builds}
    if LIVE in commit.caught_up:
        return "the live frontier has no epoch of its own"
    wanted = (named | {*commit.regrouped.values()}) - {LIVE, *commit.caught_up}
    if not wanted:
        return None
    known = sa.select(schema.frontiers.c.id).where(schema.frontiers.c.id.in_(wanted))
    unknown = sorted(wanted.difference(connection.execute(known).scalars()))
    return f"frontiers {unknown} do not exist" if unknown else None


def runs_are_new(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """A pack is written by one commit, and its runs do not overlap."""
    files = sorted((run.file for run in _new_runs(commit)), key=lambda file: file.place)
    for file, after in pairwise(files):
        if file.pack == after.pack and file.end > after.position:
            return f"runs {file.name} and {after.name} overlap"
    packs = sorted({file.pack for file in files})
    old = [pack for pack in packs if _OF_PACK.rows(connection, its_pack=pack)]
    return f"packs {old} exist already" if old else None


def runs_belong_to_live_arrangements(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """A run is added to an arrangement that still exists after the commit."""
    wanted = {run.arrangement for run in _new_runs(commit)}
    wanted -= {new.id for created in commit.created for new in created.arrangements}
    wanted -= {new.id for build in commit.builds for new in build.arrangements}
    if not wanted:
        return None
    gone = {*commit.dropped}, {*commit.retired}
    rows = connection.execute(_LIVE_ARRANGEMENTS, {"wanted": list(wanted)})
    live = {id_ for id_, owner, build in rows if owner not in gone[0] and build not in gone[1]}
    dead = sorted(wanted - live)
    return f"arrangements {dead} are not live" if dead else None


def removed_runs_were_visible(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """The inputs of a merge are distinct live runs of its arrangement."""
    pairs = [(place, merge.arrangement) for merge in commit.merges for place in merge.inputs]
    twice = _repeated(place for place, _ in pairs)
    if twice:
        return f"runs {twice} are merged twice"
    if not pairs:
        return None
    runs = schema.runs.c
    query = sa.select(runs.pack, runs.position, runs.arrangement).where(
        schema.RUN_PLACE.in_([place for place, _ in pairs]), runs.removed == schema.NEVER
    )
    live = {((pack, position), owner) for pack, position, owner in connection.execute(query)}
    removed = sorted(place for place, owner in pairs if (place, owner) not in live)
    return f"runs {removed} are not live" if removed else None


def merges_stay_in_their_arrangement(_connection: sa.Connection, commit: EpochCommit) -> str | None:
    """A merge's output belongs to the arrangement of its inputs."""
    for merge in commit.merges:
        if merge.output is not None and merge.output.arrangement != merge.arrangement:
            return f"run {merge.output.file.name} is not of arrangement {merge.arrangement}"
    return None


def dropped_relations_have_no_dependants(
    connection: sa.Connection, commit: EpochCommit
) -> str | None:
    """No relation that exists after the commit is computed from a dropped one."""
    needed = _needed(commit)
    created_on = sorted(needed.intersection(commit.dropped))
    if created_on:
        return f"relations {created_on} are dropped while new ones are computed from them"
    if not commit.dropped:
        return None
    needs, objects = schema.dependencies.c, schema.objects.c
    query = (
        sa.select(needs.input, needs.relation)
        .join(schema.objects, objects.relation == needs.relation)
        .where(
            needs.input.in_(commit.dropped),
            objects.dropped_epoch.is_(None),
            needs.relation.not_in(commit.dropped),
        )
    )
    left = [f"{user} on {used}" for used, user in connection.execute(query)]
    return f"dependants are left: {', '.join(sorted(left))}" if left else None


def dropped_relations_are_live(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """A dropped relation exists, and is dropped once."""
    twice = _repeated(commit.dropped)
    if twice:
        return f"relations {twice} are dropped twice"
    dead = sorted(set(commit.dropped) - _live(connection, commit.dropped))
    return f"relations {dead} are not live" if dead else None


def inputs_of_created_relations_are_live(
    connection: sa.Connection, commit: EpochCommit
) -> str | None:
    """The inputs of a new relation are live, or created with it."""
    needed = _needed(commit)
    needed -= {created.relation for created in commit.created}
    dead = sorted(needed - _live(connection, needed))
    return f"relations {dead} are not live" if dead else None


def relation_ids_are_reserved_and_new(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """A new relation's id was reserved, and no relation has ever had it."""
    ids = [created.relation for created in commit.created]
    if not ids:
        return None
    bound = connection.execute(sa.select(schema.fence.c.next_id)).scalar_one()
    foreign = sorted(relation for relation in ids if not 0 < relation < bound)
    if foreign:
        return f"ids {foreign} were never reserved"
    objects = schema.objects.c
    query = sa.select(objects.relation).where(objects.relation.in_(ids))
    used = sorted({*connection.execute(query).scalars(), *_repeated(ids)})
    return f"ids {used} are used already" if used else None


def every_view_has_a_live_build(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """Builds are of live views, new ones are new, and one that is live serves each view."""
    if not (commit.builds or commit.serve or commit.retired):
        return None
    table = schema.builds.c
    live = {
        row.id: row.view
        for row in connection.execute(
            sa.select(table.id, table.view).where(table.retired_epoch.is_(None))
        )
    }
    unknown = sorted({*commit.serve, *commit.retired} - live.keys())
    if unknown:
        return f"builds {unknown} are not live"
    ids = [new.id for new in commit.builds]
    used = connection.execute(sa.select(table.id).where(table.id.in_(ids))).scalars()
    again = sorted({*used, *_repeated(ids)})
    if again:
        return f"ids {again} are used already"
    views = {new.view for new in commit.builds}
    created = {new.relation for new in commit.created}
    dead = sorted((views - created - _live(connection, views)) | (views & {*commit.dropped}))
    if dead:
        return f"relations {dead} are not live"
    serving = builds.serving(connection, None)
    known = live | {new.id: new.view for new in commit.builds}
    begun = [new.id for new in commit.builds if new.serving] + list(commit.serve)
    twice = _repeated(known[id_] for id_ in begun)
    if twice:
        return f"views {twice} are served twice"
    serving |= {known[id_]: id_ for id_ in begun}
    touched = views | {known[id_] for id_ in (*commit.serve, *commit.retired)}
    left = {id_ for id_ in known if id_ not in commit.retired}
    idle = sorted(v for v in touched - {*commit.dropped} if serving.get(v) not in left)
    return f"views {idle} are left without a build" if idle else None


def exchanged_builds_serve_each_others_views(
    connection: sa.Connection, commit: EpochCommit
) -> str | None:
    """Builds that are exchanged serve, and their views remain: each gets one of them."""
    if not commit.exchanged:
        return None
    served = builds.serving(connection, None)
    before = sorted(view for view, build in served.items() if build in commit.exchanged)
    if before != sorted(commit.exchanged.values()):
        return f"builds {sorted(commit.exchanged)} serve {before}"
    changed = {*commit.retired} & commit.exchanged.keys(), {*commit.dropped} & {*before}
    begun = [new.view for new in commit.builds if new.serving and new.view in before]
    if any(changed) or begun or {*commit.serve} & commit.exchanged.keys():
        return f"views {before} are changed otherwise too"
    return None


def live_names_are_unique(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """No two live relations have the same name."""
    names = [*(created.name for created in commit.created), *commit.renamed.values()]
    if not names:
        return None
    objects = schema.objects.c
    query = sa.select(objects.name).where(
        objects.name.in_(names),
        objects.dropped_epoch.is_(None),
        objects.relation.not_in([*commit.dropped, *commit.renamed]),
    )
    shared = sorted({*connection.execute(query).scalars(), *_repeated(names)})
    return f"names {shared} are taken" if shared else None


def dirty_entries_are_of_live_views(connection: sa.Connection, commit: EpochCommit) -> str | None:
    """A view that an epoch marks dirty exists after it."""
    if not commit.dirtied:
        return None
    views = {entry.view for entry in commit.dirtied} - {new.relation for new in commit.created}
    dead = sorted((views - _live(connection, views)) | (views & {*commit.dropped}))
    return f"relations {dead} are not live" if dead else None


EVERY_CHANGE_OF_RUNS: Final[tuple[Invariant, ...]] = (
    runs_are_new,
    runs_belong_to_live_arrangements,
    removed_runs_were_visible,
    merges_stay_in_their_arrangement,
)
"""The invariants of compactions, which happen between epochs."""

EVERY_EPOCH: Final[tuple[Invariant, ...]] = (
    epochs_are_consecutive,
    reads_continue_the_last,
    frontiers_exist,
    *EVERY_CHANGE_OF_RUNS,
    dropped_relations_are_live,
    dropped_relations_have_no_dependants,
    relation_ids_are_reserved_and_new,
    inputs_of_created_relations_are_live,
    every_view_has_a_live_build,
    exchanged_builds_serve_each_others_views,
    live_names_are_unique,
    dirty_entries_are_of_live_views,
)


def check(connection: sa.Connection, commit: EpochCommit, invariants: Sequence[Invariant]) -> None:
    """Raise INTERNAL, naming the first invariant that is violated."""
    for invariant in invariants:
        violation = invariant(connection, commit)
        if violation is not None:
            name = invariant.__name__.replace("_", " ")
            raise HeadraceError(
                Code.INTERNAL,
                f"epoch {commit.epoch} breaks an invariant: {name}",
                f"In attempt {commit.attempt!r}, {violation}.",
                "Nothing was committed. Please report this with the detail above.",
            )


def _new_runs(commit: EpochCommit) -> list[NewRun]:
    outputs = [merge.output for merge in commit.merges if merge.output is not None]
    return [*commit.runs, *outputs]


def _needed(commit: EpochCommit) -> set[RelationId]:
    """Return what new relations and builds are computed from."""
    of_relations = {used for new in commit.created for used in new.inputs}
    return of_relations | {used for new in commit.builds for used in new.inputs}


def _repeated(values: Iterable[T]) -> list[T]:
    return sorted(value for value, count in Counter(values).items() if count > 1)


def _live(connection: sa.Connection, relations: Iterable[int]) -> set[int]:
    wanted = list(relations)
    if not wanted:
        return set()
    objects = schema.objects.c
    query = sa.select(objects.relation).where(
        objects.relation.in_(wanted), objects.dropped_epoch.is_(None)
    )
    return set(connection.execute(query).scalars())
