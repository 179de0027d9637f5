"""The list of the parts of an open database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.execution.engine.engine import Engine
    from headrace.execution.engine.reading.queries import Queries
    from headrace.execution.runtime.deliveries import Deliveries
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.feeds import Feeds
    from headrace.execution.runtime.pump import Pump
    from headrace.execution.runtime.retirement import Retirement
    from headrace.interfaces.session.information_schema import InformationSchema
    from headrace.io.connectors import Captures, Connections, Secrets
    from headrace.lifecycle.copies.backups import Backups
    from headrace.lifecycle.copies.branching import Branches
    from headrace.lifecycle.definitions.candidates import FormerBuilds
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.definitions.filling import Fills
    from headrace.lifecycle.definitions.functions import Functions
    from headrace.lifecycle.definitions.reshaping import Reshaping
    from headrace.lifecycle.definitions.waiting import Planning, Upgrades, WaitingViews
    from headrace.lifecycle.facts.lineage import Lineages
    from headrace.lifecycle.facts.openlineage import OpenLineage
    from headrace.lifecycle.facts.openlineage_events import Datasets
    from headrace.lifecycle.history.amending import Amending, PendingVersions
    from headrace.lifecycle.history.changes import ChangeClassifier
    from headrace.lifecycle.history.comparing import Comparing
    from headrace.lifecycle.history.reconciler import Reconciler
    from headrace.lifecycle.history.reconciling import Reconciling
    from headrace.lifecycle.history.repairing import Repairing
    from headrace.lifecycle.history.replaying import Replays
    from headrace.lifecycle.history.row_sources import RowSources
    from headrace.lifecycle.inputs.feeding import Capturing, Feeding
    from headrace.lifecycle.inputs.log import Log
    from headrace.lifecycle.inputs.sinks import Destinations, Sinks
    from headrace.lifecycle.inputs.sources import SourceStates
    from headrace.lifecycle.states.access import Access
    from headrace.lifecycle.states.declarations import Declarations, Schemas
    from headrace.lifecycle.states.evaluating import OwnEvaluator, Snapshots
    from headrace.lifecycle.states.reader import Reader
    from headrace.storage.ledger import Ledger


@dataclass(frozen=True, slots=True)
class DatabaseParts:
    """The parts of one database. A statement receives only those that it uses.

    Classes that run statements have fields of the same names. The first group comes from lower
    layers; the second has classes that statements share.
    """

    ledger: Ledger
    engine: Engine
    queries: Queries
    loop: EpochLoop
    pump: Pump
    planning: Planning
    upgrades: Upgrades
    retirement: Retirement
    deliveries: Deliveries
    feeds: Feeds
    secrets: Secrets
    connections: Connections
    captures: Captures
    schemas: Schemas
    access: Access

    reader: Reader
    snapshots: Snapshots
    own_evaluator: OwnEvaluator
    information: InformationSchema
    comparing: Comparing
    log: Log
    declarations: Declarations
    definer: Definer
    fills: Fills
    former_builds: FormerBuilds
    reshaping: Reshaping
    functions: Functions
    waiting: WaitingViews
    destinations: Destinations
    sinks: Sinks
    feeding: Feeding
    capturing: Capturing
    sources: SourceStates
    repairing: Repairing
    amending: Amending
    changes: ChangeClassifier
    versions: PendingVersions
    reconciling: Reconciling
    reconciler: Reconciler
    backups: Backups
    branches: Branches
    replays: Replays
    row_sources: RowSources
    lineages: Lineages
    datasets: Datasets
    openlineage: OpenLineage
