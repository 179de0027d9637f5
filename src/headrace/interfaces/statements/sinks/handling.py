"""PAUSE, RESUME, RESET, ALTER and RECONCILE of an existing sink."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError, masked, meant, unknown
from headrace.interfaces.statements.results import Listed
from headrace.interfaces.statements.sinks.destination import delivery_options
from headrace.io.connectors import CONNECTOR, SinkOptions, sink_connector
from headrace.io.connectors.options import (
    Alters,
    Given,
    alters,
    given_again,
    keys_of,
    read_options,
    restored_options,
    stored_options,
)
from headrace.planning.catalog import Sink
from headrace.planning.sql import SinkAction
from headrace.storage.ledger import DeliveryState

if TYPE_CHECKING:
    from headrace.execution.runtime.deliveries import Delivery
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.inputs.sinks import Destinations, Sinks
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import AlterSink, HandleSink, Name, ReconcileSink


_RECONCILED = ("sink", "epoch", "rows", "missing", "different", "extra", "refused", "outcome")


@dataclass(frozen=True, slots=True)
class SinkChanges:
    """Changes the delivery of one sink."""

    reader: Reader
    definer: Definer
    destinations: Destinations
    sinks: Sinks

    def handle(self, statement: HandleSink) -> str:
        """Pause a sink, resume it, or restart it with the rows of its view."""
        sink, delivery = self._found(statement.name)
        match statement.action:
            case SinkAction.PAUSE:
                delivery.pause()
                return f"paused sink {sink.name}"
            case SinkAction.RESUME:
                resumed = self.sinks.resume(sink)
                return f"resumed sink {sink.name}" if resumed else f"sink {sink.name} is running"
            case SinkAction.RESET:
                self._require_own_target(sink, statement.name)
                delivery.reset()
                return f"sink {sink.name} starts again with the rows of its view"

    def alter(self, statement: AlterSink) -> str:
        """Change the options of a sink for later deliveries; its target stays.

        Raises:
            HeadraceError: ``invalid``, at its place, for an unknown option, or one that cannot
                change.
        """
        sink, delivery = self._found(statement.name)
        for option in statement.options:
            changes = _alters(sink, option.key.lower())
            if changes is None:
                known = [key for key in _keys(sink) if _alters(sink, key) is not Alters.NEVER]
                raise HeadraceError(
                    Code.INVALID,
                    f'option "{option.key}" of a sink does not exist',
                    hint=meant(option.key, known, f"There are: {', '.join(known)}."),
                    span=option.span,
                )
            if changes is Alters.NEVER:
                raise HeadraceError(
                    Code.INVALID,
                    f'option "{option.key}" of a sink cannot change',
                    hint="CREATE OR REPLACE the sink, into another place.",
                    span=option.span,
                )
        _, own = delivery_options(statement.options)
        every = keys_of(SinkOptions)
        mine = [g for g in Given.of(statement.options) if g.key.lower() in every]
        given = {each.key.lower() for each in mine}
        kept = [Given(key, value) for key, value in sink.delivery if key not in given]
        options = read_options(SinkOptions, [*kept, *mine], "a sink")
        written = f"{sink.created_sql};\n{masked(statement.span.source)}"
        altered = replace(sink, delivery=stored_options(options), created_sql=written)
        if own:
            altered = replace(altered, options=self._connected(sink, delivery, own))
        writer, settings = self.destinations.opened(altered)
        self.definer.alter_sink(altered)
        delivery.change(writer, settings)
        going = delivery.record.state
        stands = "" if going is DeliveryState.RUNNING else f", which is {going}: RESUME SINK it"
        return f"altered sink {sink.name}{stands}"

    def reconcile(self, statement: ReconcileSink) -> Listed:
        """Compare a sink's target with its view, and repair it unless the statement only checks."""
        sink, delivery = self._found(statement.name)
        write = not statement.checks
        try:
            epoch, found = delivery.reconcile(sink.schema.arrow, sink.key, write=write)
        except HeadraceError as error:
            raise error.at(statement.name.span) from error
        repaired = write and not found.refused
        outcome = "equal" if not found.differences else "repaired" if repaired else "different"
        counts = (found.rows, found.missing, found.different, found.extra, found.refused)
        return Listed(_RECONCILED, [(sink.name, epoch, *counts, outcome)])

    def _connected(
        self, sink: Sink, delivery: Delivery, own: list[Given]
    ) -> tuple[tuple[str, str], ...]:
        """Return the options of a sink's connector, updated with the given ones."""
        connector = sink_connector(dict(sink.options)[CONNECTOR])
        former = connector.restored(sink.options)
        by_key = {
            key: (each.metadata.get("keys") or (each.name,))[0]
            for each in fields(former)
            for key in (each.metadata.get("keys") or (each.name,))
        }
        given = {by_key.get(each.key.lower(), each.key) for each in own}
        stored = given_again(connector.options, stored_options(former))
        kept = [each for each in stored if each.key not in given]
        options = connector.read([*kept, *own])
        place = self.destinations.context(
            sink.id, sink.schema, sink.key, restored_options(SinkOptions, sink.delivery, "a sink")
        )
        moved = any(_alters(sink, each.key.lower()) is Alters.ADDRESS for each in own)
        there = replace(place, exists=True, moved=delivery.record.written if moved else None)
        connector.check(options, there)
        return connector.stored(options)

    def _found(self, name: Name) -> tuple[Sink, Delivery]:
        relation = self.reader.catalog.find(name.dotted)
        if relation is None:
            known = [each.name for each in self.reader.catalog if isinstance(each, Sink)]
            raise unknown("sink", name, known, "SHOW SINKS lists what exists.", name.span)
        if not isinstance(relation, Sink):
            raise HeadraceError(
                Code.INVALID,
                f'{relation.kind} "{name}" is not a sink',
                hint="SHOW SINKS lists them.",
                span=name.span,
            )
        return relation, self.sinks.deliveries.by_sink[relation.id]

    def _require_own_target(self, sink: Sink, name: Name) -> None:
        """Raise for a sink into a table: which rows it has written is unknown."""
        if sink.target is not None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'sink "{sink.name}" writes into a table, which may have other rows, too',
                hint=f"DROP SINK {sink.name}, DELETE the rows that it has written, and CREATE it"
                " again.",
                span=name.span,
            )


def _alters(sink: Sink, key: str) -> Alters | None:
    """Return whether an option of a sink may change; None if the option does not exist."""
    if sink.target is not None:
        return alters(SinkOptions, key)
    if key == CONNECTOR:
        return Alters.NEVER
    connector = sink_connector(dict(sink.options)[CONNECTOR])
    return alters(SinkOptions, key) or alters(connector.options, key)


def _keys(sink: Sink) -> list[str]:
    """Return the first key of each option of a sink, in order."""
    classes: list[type[Any]] = [SinkOptions]
    if sink.target is None:
        classes.append(sink_connector(dict(sink.options)[CONNECTOR]).options)
    found = (each.metadata | {"name": each.name} for cls in classes for each in fields(cls))
    return [each["prefix"] or (each["keys"] or (each["name"],))[0] for each in found]
