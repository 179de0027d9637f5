"""Metrics for Prometheus: counts of requests, and the database's state at the scrape.

What a server uses of its machine: memory of its processes, and disk of its database.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import Response

import headrace
from headrace.execution.runtime.spent import Activity
from headrace.files import mounts
from headrace.interfaces.server.limits import BOUNDS, Tallies
from headrace.lifecycle.facts.freshness import view_freshness
from headrace.lifecycle.history.comparing import rounds_of
from headrace.planning.catalog import Stream, Table
from headrace.planning.catalog.naming import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric
    from starlette.requests import Request

    from headrace.interfaces.processes.queries import QueryProcesses
    from headrace.interfaces.server.readers import Readers
    from headrace.interfaces.server.running import RequestCalls
    from headrace.interfaces.server.subscriptions import FollowedRelations
    from headrace.lifecycle.facts.freshness import ViewFreshness
    from headrace.lifecycle.facts.openlineage import OpenLineage
    from headrace.lifecycle.inputs.sources import SourceStates
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Relation


_KEPT_SECONDS: Final = 60.0
_PROC: Final = Path("/proc")


@dataclass(slots=True)
class MachineUsage:
    """The version, memory and disk of a server; sizes of files are counted once a minute.

    Figures are in bytes; None where the system does not tell them.
    """

    directory: Path
    _counted: tuple[float, int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def to_json(self) -> dict[str, Any]:
        """Return what is used now, and how much of the disk is free."""
        disk = shutil.disk_usage(self.directory)
        return {
            "version": headrace.__version__,
            "memory": memory_of(os.getpid()),
            "disk": self._stored(),
            "disk_free": disk.free,
        }

    def _stored(self) -> int:
        with self._lock:
            now = time.monotonic()
            if self._counted is None or now - self._counted[0] > _KEPT_SECONDS:
                self._counted = now, stored_bytes(self.directory)
            return self._counted[1]


def stored_bytes(directory: Path) -> int:
    """Return how many bytes the files below a directory have; each is counted once."""
    seen: dict[tuple[int, int], int] = {}
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # it has been deleted since
                found = os.stat(os.path.join(place, name), follow_symlinks=False)  # noqa: PTH116, PTH118 - a Path for each file costs more
                seen[found.st_dev, found.st_ino] = found.st_size
    return sum(seen.values())


def memory_of(process: int) -> int | None:
    """Return the resident memory of a process and of those that it has started."""
    try:
        pages = int((_PROC / str(process) / "statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    found = pages * os.sysconf("SC_PAGE_SIZE")
    for listed in _PROC.glob(f"{process}/task/*/children"):
        with suppress(OSError):
            for child in listed.read_text(encoding="ascii").split():
                found += memory_of(int(child)) or 0
    return found


_MOST_EPOCHS: Final = 10_000
"""The maximum number of epochs that one scrape reads."""


class Metrics:
    """The metrics of a server, each with a help text; names follow Prometheus' conventions."""

    def __init__(
        self,
        reader: Reader,
        sources: SourceStates,
        calls: RequestCalls,
        following: FollowedRelations,
        queries: QueryProcesses | None,
        readers: Readers | None,
        openlineage: OpenLineage,
    ) -> None:
        self._calls = calls
        self._registry = CollectorRegistry()
        self.tallies = Tallies()
        self._registry.register(self.tallies)
        epochs = Histogram(
            "headrace_epoch_seconds",
            "Seconds that an epoch took.",
            registry=self._registry,
            buckets=BOUNDS,
        )
        widths = Counter(
            "headrace_epochs_by_width",
            "Epochs by where they ran: narrow in this process, or wide as Spark jobs, and why.",
            ["width"],
            registry=self._registry,
        )
        spent = Counter(
            "headrace_epoch_spent_seconds",
            "Seconds that epochs spent, by activity.",
            ["activity"],
            registry=self._registry,
        )
        self._epochs = _Epochs(reader, epochs, widths, spent)
        state = _State(reader, sources, calls, following, queries, readers, openlineage)
        self._registry.register(state)

    def observe(self, operation: str, outcome: str, seconds: float) -> None:
        """Count a request."""
        self.tallies.observe(operation, outcome, seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        self._epochs.observe()
        return generate_latest(self._registry)

    async def metrics(self, request: Request) -> Response:
        """Return metrics in the text format of Prometheus."""
        text = await self._calls.run(request, lambda _session: self.text())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@dataclass(slots=True)
class _Epochs:
    """Observes the epochs made since the last scrape, or since the server started."""

    reader: Reader
    seconds: Histogram
    widths: Counter
    spent: Counter
    seen: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.seen = self.reader.published.epoch

    def observe(self) -> None:
        with self._lock:
            new = self.reader.published.epoch - self.seen
            if new <= 0:
                return
            for record in self.reader.ledger.epochs.newest(min(new, _MOST_EPOCHS)):
                if record.epoch > self.seen:
                    self._observe(record.counters)
            self.seen += new

    def _observe(self, counters: Mapping[str, Any]) -> None:
        if "seconds" in counters:
            self.seconds.observe(counters["seconds"])
        if "width" in counters:
            self.widths.labels(counters["width"]).inc()
        for activity in Activity:
            if activity.value in counters:
                name = activity.name.lower()
                self.spent.labels(name).inc(counters[activity.value] / 1000)


@dataclass(frozen=True, slots=True, eq=False)
class _State(Collector):
    """Collects the state of a database at each scrape."""

    reader: Reader
    sources: SourceStates
    calls: RequestCalls
    following: FollowedRelations
    queries: QueryProcesses | None
    readers: Readers | None
    openlineage: OpenLineage

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        reader = self.reader
        state, ends = reader.published, reader.ledger.head.ends
        yield CounterMetricFamily("headrace_epochs", "Epochs ever made.", state.epoch)
        yield GaugeMetricFamily(
            "headrace_last_commit_timestamp_seconds",
            "When the last epoch was committed, in Unix seconds.",
            state.committed_at,
        )
        yield GaugeMetricFamily(
            "headrace_ledger_answers",
            "Whether the ledger's database answers: 0 or 1.",
            int(reader.ledger.trouble is None),
        )
        yield GaugeMetricFamily(
            "headrace_pending_changes",
            "Changes that have arrived and that no epoch has read.",
            state.behind(ends),
        )
        yield GaugeMetricFamily(
            "headrace_wide_steps",
            "Wide steps that run beside epochs, each of one connected set of views.",
            len(reader.pump.loop.beside.steps),
        )
        yield from self._store()
        yield from _views(view_freshness(reader, self.sources.admission, state))
        yield from self._reconciliation()
        yield from self._sinks()
        yield from self._logs([r for r in state.catalog if isinstance(r, Stream | Table)])
        yield GaugeMetricFamily(
            "headrace_statements_running", "Statements that run or wait.", self.calls.runner.running
        )
        named = self.calls.sessions.count
        yield GaugeMetricFamily("headrace_sessions", "Sessions with a name.", named)
        yield GaugeMetricFamily(
            "headrace_subscribers",
            "Clients that follow changes.",
            self.following.subscribers,
        )
        if self.queries is not None:
            yield GaugeMetricFamily(
                "headrace_query_processes", "Processes that queries run in.", self.queries.count
            )
            yield CounterMetricFamily(
                "headrace_query_processes_lost",
                "Processes that ended, or had to be ended, with a query.",
                self.queries.lost,
            )
        if self.readers is not None:
            yield GaugeMetricFamily(
                "headrace_readers", "Reader processes that answer.", self.readers.count
            )
            yield CounterMetricFamily(
                "headrace_readers_lost",
                "Reader processes that ended, or did not answer.",
                self.readers.lost,
            )

        if (sending := self.openlineage.sending) is not None:
            yield CounterMetricFamily(
                "headrace_openlineage_sent", "Events of OpenLineage that were sent.", sending.sent
            )
            yield CounterMetricFamily(
                "headrace_openlineage_dropped",
                "Events of OpenLineage that could not be sent, or had to wait too long.",
                sending.dropped,
            )

    def _store(self) -> Iterator[Metric]:
        """Yield the requests that this process has sent to the object store, if there is one."""
        found = mounts.mount_of(self.reader.directory / mounts.FOLDERS[0])
        if found is None:
            return
        sent = found.store.requests
        requests = CounterMetricFamily(
            "headrace_store_requests", "Requests sent to the object store.", labels=["kind"]
        )
        for kind in ("puts", "gets", "deletes", "lists"):
            requests.add_metric([kind.removesuffix("s")], getattr(sent, kind))
        moved = CounterMetricFamily(
            "headrace_store_bytes", "Bytes of objects sent and received.", labels=["kind"]
        )
        moved.add_metric(["put"], sent.bytes_put)
        moved.add_metric(["get"], sent.bytes_got)
        yield from (requests, moved)
        if found.uploading is not None:
            yield GaugeMetricFamily(
                "headrace_store_waiting_bytes",
                "Bytes of small files that the ledger keeps until the object store has them.",
                found.uploading.waiting_bytes,
            )

    def _reconciliation(self) -> Iterator[Metric]:
        reader = self.reader
        by_id = reader.catalog.by_id
        labels = ["view"]
        compared = CounterMetricFamily(
            "headrace_reconciled_rows", "Rows of views that were compared.", labels=labels
        )
        wrong = CounterMetricFamily(
            "headrace_reconciled_wrong_rows",
            "Compared rows of views that differed from their recomputation.",
            labels=labels,
        )
        age = _by(
            "headrace_reconciled_seconds_ago", "Since a sample of a view was compared.", "view"
        )
        for id_, made in rounds_of(reader.ledger).items():
            if id_ not in by_id or by_id[id_].name.startswith(HIDDEN):
                continue
            name = [by_id[id_].name]
            compared.add_metric(name, made.total.units)
            wrong.add_metric(name, made.total.wrong)
            if made.at is not None:
                age.add_metric(name, max(0.0, time.time() - made.at))
        yield from (compared, wrong, age)

    def _sinks(self) -> Iterator[Metric]:
        reader = self.reader
        by_id = reader.catalog.by_id
        epochs = _by("headrace_sink_epochs_behind", "Epochs that a sink has not delivered.", "sink")
        rows = _by("headrace_sink_rows_behind", "Changed rows that wait for a sink.", "sink")
        seconds = _by(
            "headrace_sink_seconds_behind",
            "For how long the oldest change has waited that a sink has not delivered.",
            "sink",
        )
        done = _by(
            "headrace_sink_writing_rows_done",
            "Rows of what is being written that a sink's target has taken.",
            "sink",
        )
        total = _by(
            "headrace_sink_writing_rows_total", "Rows that are being written to a sink.", "sink"
        )
        failing = _by(
            "headrace_sink_failing", "Whether a sink is failing or has stopped: 0 or 1.", "sink"
        )
        refused = CounterMetricFamily(
            "headrace_sink_refused_rows",
            "Rows that a sink's target has refused, and that are kept.",
            labels=["sink"],
        )
        for id_, delivery in list(reader.deliveries.by_sink.items()):
            if id_ not in by_id:
                continue
            name, lag = [by_id[id_].name], delivery.lag
            epochs.add_metric(name, lag.epochs)
            if lag.rows is not None:
                rows.add_metric(name, lag.rows)
            writing = delivery.writing
            if writing is not None:
                done.add_metric(name, writing.done)
                total.add_metric(name, writing.total)
            seconds.add_metric(name, lag.seconds)
            failing.add_metric(name, delivery.state in ("failing", "stopped"))
            refused.add_metric(name, delivery.refused)
        yield from (epochs, rows, seconds, done, total, failing, refused)

    def _held_segments(self, relations: list[Relation]) -> Iterator[Metric]:
        count = _by(
            "headrace_log_held_segments",
            "Merged segments of a log whose files queries may still read.",
            "relation",
        )
        seconds = _by("headrace_log_held_seconds", "For how long the first has been.", "relation")
        held = self.reader.pump.compaction.logs.held_segments()
        for relation in relations:
            own = [each for each in held if each.relation == relation.id]
            if own:
                count.add_metric([relation.name], sum(each.segments for each in own))
                seconds.add_metric([relation.name], time.time() - own[0].since)
        yield from (count, seconds)

    def _logs(self, relations: list[Relation]) -> Iterator[Metric]:
        reader = self.reader
        end = _by("headrace_log_end", "Changes ever appended to a log.", "relation")
        start = _by("headrace_log_start", "Changes of a log that are no longer kept.", "relation")
        kept = _by("headrace_log_bytes", "Bytes of the segments of a log.", "relation")
        segments = _by("headrace_log_segments", "Segments of a log.", "relation")
        behind = _by("headrace_source_behind", "Messages that a source has left.", "relation")
        rejected = CounterMetricFamily(
            "headrace_rejected_rows", "Rows that did not fit.", labels=["relation"]
        )
        ends, starts = reader.ledger.head.ends, reader.ledger.head.starts
        sizes = reader.ledger.log.sizes()
        for relation in relations:
            if relation.name.startswith(HIDDEN):
                continue
            end.add_metric([relation.name], ends.get(relation.id, 0))
            start.add_metric([relation.name], starts.get(relation.id, 0))
            size = sizes.get(relation.id)
            kept.add_metric([relation.name], 0 if size is None else size.bytes)
            segments.add_metric([relation.name], 0 if size is None else size.segments)
            rejected.add_metric([relation.name], reader.ledger.rejects.count(relation.id))
            feed = self.sources.feeds.by_relation.get(relation.id)
            if feed is not None and feed.behind is not None:
                behind.add_metric([relation.name], feed.behind)
        yield from (end, start, kept, segments, *self._held_segments(relations))
        yield GaugeMetricFamily(
            "headrace_dead_bytes",
            "Bytes of runs that nothing reads, in files that have others.",
            sum(reader.ledger.files.dead_bytes().values()),
        )
        yield behind
        yield rejected


def _views(fresh: Iterable[ViewFreshness]) -> Iterator[Metric]:
    behind = _by("headrace_view_pending_changes", "Changes that a view does not show.", "view")
    seconds = _by(
        "headrace_view_seconds_behind",
        "For how long the oldest change has waited that a view does not show.",
        "view",
    )
    stopped = _by("headrace_view_stopped", "Whether a view has stopped: 0 or 1.", "view")
    dirty = _by(
        "headrace_view_dirty_age_seconds",
        "For how long a view, or one that it reads, is known to differ from its inputs.",
        "view",
    )
    slices = _by("headrace_view_dirty_slices", "The dirty slices of a view.", "view")
    quarantined = _by(
        "headrace_view_quarantined_rows", "The rows that a view has in quarantine.", "view"
    )
    for each in fresh:
        name = [each.view.name]
        age = 0.0 if each.dirty_since is None else max(0.0, time.time() - each.dirty_since)
        dirty.add_metric(name, age)
        slices.add_metric(name, each.dirty_slices)
        if each.quarantined is not None:
            quarantined.add_metric(name, each.quarantined)
        if each.pending is not None:
            behind.add_metric(name, each.pending)
        seconds.add_metric(name, each.seconds)
        stopped.add_metric(name, each.state == "stopped")
    yield from (behind, seconds, stopped, dirty, slices, quarantined)


def _by(name: str, meaning: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, labels=[label])
