"""What holds of a ledger between commits: predicates with names, as for commits in ``invariants``.

Each returns None, or a description of the violation. Commits keep them; only a defect, or who
changes the database by hand, can violate one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.storage.ledger import schema

if TYPE_CHECKING:
    from collections.abc import Callable


_SHOWN: Final = 3
_LIVE: Final = schema.objects.c.dropped_epoch.is_(None)


def epochs_have_no_gap(connection: sa.Connection) -> str | None:
    """The epochs are all integers from the first to the last."""
    epoch = schema.epochs.c.epoch
    query = sa.select(sa.func.min(epoch), sa.func.max(epoch), sa.func.count())
    first, last, count = connection.execute(query).one()
    if not count:
        return "there is no epoch"
    return None if last - first + 1 == count else f"{first} to {last} are {count} epochs"


def logs_are_whole(connection: sa.Connection) -> str | None:
    """The segments of a live log follow each other without a gap, up to its end."""
    segments, logs = schema.segments.c, schema.logs.c
    rows = connection.execute(
        sa.select(logs.relation, logs.since, logs.log_end, segments.first_offset, segments.rows)
        .select_from(schema.logs)
        .join(schema.objects, schema.objects.c.relation == logs.relation)
        .join(
            schema.segments,
            (segments.relation == logs.relation)
            & (segments.first_offset + segments.rows > logs.since),
            isouter=True,
        )
        .where(_LIVE)
        .order_by(logs.relation, segments.first_offset)
    )
    at: dict[int, int] = {}
    ends: dict[int, int] = {}
    gaps = []
    for relation, since, end, first, count in rows:
        ends[relation] = end
        stands = at.setdefault(relation, since)
        if first is not None:
            if first > stands or (first < stands and stands != since):
                gaps.append(f"log {relation} has a gap or an overlap at {stands}")
            at[relation] = first + count
    short = {id_: end for id_, end in ends.items() if at[id_] != end}
    gaps += [f"log {id_} ends at {at[id_]}, not {end}" for id_, end in short.items()]
    return _listed(gaps)


def positions_are_within_logs(connection: sa.Connection) -> str | None:
    """No frontier has read a log further than it goes."""
    positions, logs = schema.positions.c, schema.logs.c
    query = (
        sa.select(positions.relation, positions.consumed, logs.log_end)
        .join(schema.logs, logs.relation == positions.relation)
        .where(positions.consumed > logs.log_end)
    )
    return _listed(
        f"log {id_} is read to {read}, and ends at {end}"
        for id_, read, end in connection.execute(query)
    )


def runs_do_not_overlap(connection: sa.Connection) -> str | None:
    """The runs of a pack have ranges of their own."""
    runs = schema.runs.c
    query = sa.select(runs.pack, runs.position, runs.bytes).order_by(runs.pack, runs.position)
    found, before, end = [], "", 0
    for pack, position, size in connection.execute(query):
        if pack == before and position < end:
            found.append(f"run {pack}@{position}")
        before, end = pack, position + size
    return _listed(found)


def runs_have_an_arrangement(connection: sa.Connection) -> str | None:
    """A run belongs to an arrangement, and an arrangement to a relation."""
    known = sa.select(schema.arrangements.c.id)
    query = sa.select(schema.runs.c.pack).where(schema.runs.c.arrangement.not_in(known))
    owned = sa.select(schema.objects.c.relation)
    orphans = sa.select(schema.arrangements.c.id).where(schema.arrangements.c.owner.not_in(owned))
    return _listed([*connection.execute(query).scalars(), *connection.execute(orphans).scalars()])


def live_views_are_served(connection: sa.Connection) -> str | None:
    """The newest build that serves a live view is live."""
    serving, builds = schema.serving, schema.builds
    newest = (
        sa.select(serving.c.view, sa.func.max(serving.c.epoch).label("epoch"))
        .group_by(serving.c.view)
        .subquery()
    )
    query = (
        sa.select(serving.c.view)
        .join(newest, (newest.c.view == serving.c.view) & (newest.c.epoch == serving.c.epoch))
        .join(builds, builds.c.id == serving.c.build)
        .join(schema.objects, schema.objects.c.relation == serving.c.view)
        .where(_LIVE, builds.c.retired_epoch.is_not(None))
    )
    return _listed(f"view {id_}" for id_ in connection.execute(query).scalars())


def live_names_are_unique(connection: sa.Connection) -> str | None:
    """No two live relations have the same name."""
    name = schema.objects.c.name
    query = sa.select(name).where(_LIVE).group_by(name).having(sa.func.count() > 1)
    return _listed(connection.execute(query).scalars())


def inputs_of_live_relations_are_live(connection: sa.Connection) -> str | None:
    """What a live relation is computed from is live."""
    user, used = schema.objects.alias("user_"), schema.objects.alias("used")
    needs = schema.dependencies.c
    query = (
        sa.select(user.c.name, used.c.name)
        .join_from(schema.dependencies, user, user.c.relation == needs.relation)
        .join(used, used.c.relation == needs.input)
        .where(user.c.dropped_epoch.is_(None), used.c.dropped_epoch.is_not(None))
    )
    return _listed(f"{name} reads {gone}" for name, gone in connection.execute(query))


def dirty_entries_are_of_live_views(connection: sa.Connection) -> str | None:
    """A view that is dirty exists."""
    live = sa.select(schema.objects.c.relation).where(_LIVE)
    query = sa.select(schema.dirty.c.view).where(schema.dirty.c.view.not_in(live))
    return _listed(f"view {id_}" for id_ in connection.execute(query).scalars())


def ids_were_reserved(connection: sa.Connection) -> str | None:
    """Ids of relations and builds are below the next one."""
    bound = connection.execute(sa.select(schema.fence.c.next_id)).scalar_one()
    found: list[Any] = []
    for column in (schema.objects.c.relation, schema.builds.c.id):
        found += connection.execute(sa.select(column).where(column >= bound)).scalars()
    return _listed(found)


ALWAYS: Final[tuple[Callable[[sa.Connection], str | None], ...]] = (
    epochs_have_no_gap,
    logs_are_whole,
    positions_are_within_logs,
    runs_do_not_overlap,
    runs_have_an_arrangement,
    live_views_are_served,
    live_names_are_unique,
    inputs_of_live_relations_are_live,
    dirty_entries_are_of_live_views,
    ids_were_reserved,
)
"""The predicates of a ledger between commits."""


def violations(connection: sa.Connection) -> dict[str, str]:
    """Return the predicates that do not hold, by name, each with a description."""
    found = ((each.__name__.replace("_", " "), each(connection)) for each in ALWAYS)
    return {name: text for name, text in found if text is not None}


def _listed(found: Any) -> str | None:
    """Return the first of some texts; None if there are none."""
    texts = [str(each) for each in found]
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{', '.join(texts[:_SHOWN])}{more}" if texts else None
