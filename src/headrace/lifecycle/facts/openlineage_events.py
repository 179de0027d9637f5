"""Events of OpenLineage on the views and sinks of a database, as objects of its client.

A materialized view or a sink is a streaming job, whose one run lasts from its creation until it is
dropped or replaced. Filling a view, at first or again, is a batch job whose parent is that run. A
plain view runs nothing: it is described by an event on its job alone.

The external datasets that streams and tables are fed from, and that sinks write to.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from pyspark.sql.types import StructType

from headrace.io.connectors import (
    CONNECTOR,
    REFERENCE,
    Reference,
    feeding_connector,
    sink_connector,
)
from headrace.io.connectors.systems import ExternalDataset, of_table
from headrace.io.formats.libraries import library
from headrace.lifecycle.states.evaluating import row_count
from headrace.planning.catalog import PlainView, Sink, Stream, Table, View
from headrace.planning.catalog.lineage import NO_LINEAGE, Influence
from headrace.planning.catalog.naming import HIDDEN
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from headrace.execution.runtime.published import Published
    from headrace.io.connectors import Captures
    from headrace.lifecycle.facts.lineage import Lineages
    from headrace.planning.catalog import Catalog, Declaration, Relation
    from headrace.planning.catalog.lineage import Influences, RelationLineage


EXTRA: Final = "openlineage"
_CLIENT: Final = "client of OpenLineage"
_INTEGRATION: Final = "HEADRACE"
_KINDS: Final[dict[type[Any], tuple[str, str | None]]] = {
    Stream: ("STREAM", None),
    Table: ("TABLE", None),
    PlainView: ("VIEW", None),
    View: ("VIEW", "MATERIALIZED"),
    Sink: ("TABLE", "EXTERNAL"),
}


class RunState(StrEnum):
    """The states of a run, by OpenLineage's names."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"


class FillJob(StrEnum):
    """Why a view is filled: the last part of the name of the job."""

    FILL = "fill"
    REBUILD = "rebuild"


class Lifecycle(StrEnum):
    """How the dataset of a view or sink has changed, by OpenLineage's names."""

    CREATE = "CREATE"
    OVERWRITE = "OVERWRITE"
    DROP = "DROP"


@dataclass(frozen=True, slots=True)
class OpenLineageEvents:
    """Makes events. Nothing is sent.

    ``namespace`` is that of jobs, and of datasets that are not in another system; ``identity`` is
    that of the database. ``directory`` is the data directory. Events have the time ``at`` which
    something happened, by default now.

    Raises:
        HeadraceError: from every method, ``invalid`` if the client of OpenLineage is not installed.
    """

    directory: Path
    lineages: Lineages
    datasets: Datasets
    namespace: str
    identity: str

    def on(self, relations: Iterable[Relation], state: Published) -> Iterator[Any]:
        """Yield an event on each view and sink that is not hidden: those with runs are running."""
        for relation in relations:
            if relation.name.startswith(HIDDEN):
                continue
            match relation:
                case PlainView():
                    yield self.job(state.catalog, relation)
                case View() | Sink():
                    yield self.run(state.catalog, relation, RunState.RUNNING, state)
                case Stream() | Table():
                    pass

    def job(
        self,
        catalog: Catalog,
        view: PlainView,
        lifecycle: Lifecycle | None = None,
        *,
        at: datetime | None = None,
    ) -> Any:
        """Return the event on the job of a plain view; without inputs, if it was dropped."""
        events = _events()
        inputs, outputs = self._data(catalog, view, lifecycle)
        job = self._job(view.name, view, "BATCH", "VIEW")
        return events.JobEvent(
            eventTime=_text(at), producer=_producer(), job=job, inputs=inputs, outputs=outputs
        )

    def run(
        self,
        catalog: Catalog,
        relation: View | Sink,
        run_state: RunState,
        state: Published | None = None,
        *,
        lifecycle: Lifecycle | None = None,
        error: str | None = None,
        at: datetime | None = None,
    ) -> Any:
        """Return an event on the run of a view or sink; ``state`` is that of its contents."""
        kind = "VIEW" if isinstance(relation, View) else "SINK"
        job = self._job(relation.name, relation, "STREAMING", kind)
        inputs, outputs = self._data(catalog, relation, lifecycle, state)
        return self._event(run_state, self.run_id(relation), job, inputs, outputs, error, at)

    def filling(
        self,
        catalog: Catalog,
        view: View,
        filling: FillJob,
        run: UUID,
        run_state: RunState,
        state: Published | None = None,
        *,
        error: str | None = None,
        at: datetime | None = None,
    ) -> Any:
        """Return an event on one filling of a view, whose id is ``run``."""
        parents = _facets().parent_run
        job = self._job(f"{view.name}.{filling}", view, "BATCH", filling.name)
        parent = parents.ParentRunFacet(
            run=parents.Run(runId=str(self.run_id(view))),
            job=parents.Job(namespace=self.namespace, name=view.name),
        )
        lifecycle = Lifecycle.CREATE if filling is FillJob.FILL else Lifecycle.OVERWRITE
        inputs, outputs = self._data(catalog, view, lifecycle, state)
        return self._event(run_state, run, job, inputs, outputs, error, at, parent=parent)

    def run_id(self, relation: View | Sink) -> UUID:
        """Return the id of a run: the same for one build of a view in all processes."""
        build = relation.build if isinstance(relation, View) else relation.id
        return uuid5(NAMESPACE_URL, f"headrace:{self.identity}/{relation.id}/{build}")

    # -- parts of events -------------------------------------------------------------------------

    def _event(
        self,
        run_state: RunState,
        run: UUID,
        job: Any,
        inputs: list[Any],
        outputs: list[Any],
        error: str | None,
        at: datetime | None,
        **facets: Any,
    ) -> Any:
        events, kinds = _events(), _facets()
        given = {
            "processing_engine": kinds.processing_engine_run.ProcessingEngineRunFacet(
                version=version("headrace"), name="Headrace"
            ),
            **facets,
        }
        if error is not None:
            given["errorMessage"] = kinds.error_message_run.ErrorMessageRunFacet(
                message=error, programmingLanguage="SQL"
            )
        return events.RunEvent(
            eventType=events.RunState[run_state.value],
            eventTime=_text(at),
            producer=_producer(),
            run=events.Run(runId=str(run), facets=_produced(given)),
            job=job,
            inputs=inputs,
            outputs=outputs,
        )

    def _job(self, name: str, relation: View | PlainView | Sink, processing: str, kind: str) -> Any:
        kinds = _facets()
        facets = {
            "jobType": kinds.job_type_job.JobTypeJobFacet(
                processingType=processing, integration=_INTEGRATION, jobType=kind
            )
        }
        sql = relation.created_sql if isinstance(relation, Sink) else relation.query
        if sql:
            facets["sql"] = kinds.sql_job.SQLJobFacet(query=sql, dialect="spark")
        return _events().Job(namespace=self.namespace, name=name, facets=_produced(facets))

    def _data(
        self,
        catalog: Catalog,
        relation: View | PlainView | Sink,
        lifecycle: Lifecycle | None,
        state: Published | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """Return the inputs and the output of a job; a dropped one has no inputs."""
        events, kinds = _events(), _facets()
        dropped = lifecycle is Lifecycle.DROP
        known = _with(catalog, relation)
        lineage = NO_LINEAGE if dropped else self.lineages.shown(known, relation.id)
        inputs = []
        for id_ in sorted(lineage.reads):
            below = known.by_id[id_]
            named = self.name(below)
            facets = _produced(self._described(below))
            inputs.append(events.InputDataset(named.namespace, named.name, facets=facets))
        facets = self._described(relation)
        if not dropped:
            facets["columnLineage"] = self._columns(known, lineage)
        if lifecycle is not None:
            changed = kinds.lifecycle_state_change_dataset
            facets["lifecycleStateChange"] = changed.LifecycleStateChangeDatasetFacet(
                changed.LifecycleStateChange[lifecycle.value]
            )
        outputs = {} if state is None else self._counted(relation, state)
        named = self.name(relation)
        output = events.OutputDataset(
            named.namespace, named.name, facets=_produced(facets), outputFacets=_produced(outputs)
        )
        return inputs, [output]

    def name(self, relation: Relation) -> ExternalDataset:
        """Return the dataset of a relation, in another system if it is fed from or writes there."""
        return self.datasets.of(relation) or ExternalDataset(self.namespace, relation.name)

    def _described(self, relation: Relation) -> dict[str, Any]:
        """Return the facets on what a dataset is, by their keys."""
        kinds, named = _facets(), self.name(relation)
        kind, subtype = _KINDS[type(relation)]
        facets = {
            "schema": kinds.schema_dataset.SchemaDatasetFacet(
                fields=[_field(c.name, c.type, c.sql) for c in relation.schema.columns]
            ),
            "dataSource": kinds.datasource_dataset.DatasourceDatasetFacet(
                name=named.namespace, uri=named.uri
            ),
            "datasetType": kinds.dataset_type_dataset.DatasetTypeDatasetFacet(kind, subtype),
        }
        if named.namespace != self.namespace:
            symlinks = kinds.symlinks_dataset
            other = symlinks.Identifier(self.namespace, relation.name, "TABLE")
            facets["symlinks"] = symlinks.SymlinksDatasetFacet([other])
        return facets

    def _columns(self, catalog: Catalog, lineage: RelationLineage) -> Any:
        """Return the facet of lineage by column."""
        kinds = _facets().column_lineage_dataset
        fields = {
            name: kinds.Fields(inputFields=list(self._inputs(catalog, given)))
            for name, given in lineage.columns.items()
        }
        rows = list(self._inputs(catalog, lineage.rows))
        return kinds.ColumnLineageDatasetFacet(fields=fields, dataset=rows)

    def _inputs(self, catalog: Catalog, given: Influences) -> Iterator[Any]:
        kinds = _facets().column_lineage_dataset
        for column in sorted(given):
            named = self.name(catalog.by_id[column.relation])
            yield kinds.InputField(
                named.namespace, named.name, column.dotted, _transformations(given[column])
            )

    def _counted(self, relation: Relation, state: Published) -> dict[str, Any]:
        """Return the statistics of a view's contents: of all of them, not of one epoch."""
        runs = state.spines.get(rows_of(relation.id))
        if not isinstance(relation, View) or runs is None or relation.id not in state.catalog.by_id:
            return {}
        statistics = _facets().output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        rows = row_count(state, relation, self.directory)
        size = sum(run.file.bytes for run in runs)
        return {"outputStatistics": statistics(rowCount=rows, size=size)}


def as_json(event: Any) -> str:
    """Return an event as one line of JSON."""
    found: str = library("openlineage.client.serde", _CLIENT, EXTRA).Serde.to_json(event)
    return found


def _transformations(influences: Iterable[Influence]) -> list[Any]:
    transformation = _facets().column_lineage_dataset.Transformation
    return [
        transformation(type=each.type.upper(), subtype=each.name, masking=False)
        for each in sorted(influences)
    ]


def _field(name: str, kind: Any, sql: str) -> Any:
    fields = _facets().schema_dataset.SchemaDatasetFacetFields
    within = kind.fields if isinstance(kind, StructType) else ()
    below = [_field(each.name, each.dataType, each.dataType.simpleString()) for each in within]
    return fields(name=name, type=sql, fields=below)


def _with(catalog: Catalog, relation: Relation) -> Catalog:
    """Return the catalog with a relation that is about to be created or replaced."""
    if catalog.by_id.get(relation.id) is relation:
        return catalog
    kept = (each for each in catalog if each.id != relation.id and each.name != relation.name)
    return type(catalog)((*kept, relation))


def _produced(facets: dict[str, Any]) -> dict[str, Any]:
    """Return facets with the producer of the database's version."""
    for each in facets.values():
        each._producer = _producer()  # noqa: SLF001  (a field of the specification)
    return facets


def _producer() -> str:
    return f"urn:headrace:{version('headrace')}"


def _text(at: datetime | None) -> str:
    """Return a time, by default the present one."""
    return (at or datetime.now(UTC)).isoformat()


def _events() -> Any:
    return library("openlineage.client.event_v2", _CLIENT, EXTRA)


def _facets() -> Any:
    return library("openlineage.client.facet_v2", _CLIENT, EXTRA)


@dataclass(frozen=True, slots=True)
class Datasets:
    """Returns external datasets. ``directory`` is the data directory."""

    directory: Path
    captures: Captures

    def of(self, relation: Relation) -> ExternalDataset | None:
        """Return the external dataset of a stream, table or sink; None if it has none with a name.

        Views have none.
        """
        root = (self.directory / "sinks").resolve()
        if isinstance(relation, Stream | Table):
            return self._source(relation.declaration, root)
        if not isinstance(relation, Sink) or relation.target is not None:
            return None
        connector = sink_connector(dict(relation.options)[CONNECTOR])
        return connector.dataset(connector.restored(relation.options), root)

    def _source(self, declaration: Declaration, root: Path) -> ExternalDataset | None:
        stored = dict(declaration.source)
        if declaration.shared_source is not None:
            capture = self.captures.find(declaration.shared_source)
            access = self.captures.connections.find(capture.connection).options
            return of_table(access, Reference.of(stored[REFERENCE]))
        connector = feeding_connector(stored.get(CONNECTOR, ""))
        if connector is None:
            return None
        return connector.dataset(connector.restored(declaration.source), root)
