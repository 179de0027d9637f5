"""The list of the parts of an open database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.backups import Backups
    from headrace.branches import Branches
    from headrace.connectors import Captures, Connections, Secrets
    from headrace.engine.engine import Engine
    from headrace.engine.reading.queries import Queries
    from headrace.history.amending import Amending
    from headrace.history.changes import ChangeClassifier
    from headrace.history.comparing import Comparing
    from headrace.history.pending_versions import PendingVersions
    from headrace.history.reconciler import Reconciler
    from headrace.history.reconciling import Reconciling
    from headrace.history.repairing import Repairing
    from headrace.history.replaying import Replays
    from headrace.history.row_sources import RowSources
    from headrace.ledger import Ledger
    from headrace.parts.access import Access
    from headrace.parts.capturing import Capturing
    from headrace.parts.datasets import Datasets
    from headrace.parts.declarations import Declarations
    from headrace.parts.definer import Definer
    from headrace.parts.destinations import Destinations
    from headrace.parts.evaluating import OwnEvaluator
    from headrace.parts.feeding import Feeding
    from headrace.parts.fills import Fills
    from headrace.parts.former_builds import FormerBuilds
    from headrace.parts.functions import Functions
    from headrace.parts.lineage import Lineages
    from headrace.parts.log import Log
    from headrace.parts.openlineage import OpenLineage
    from headrace.parts.planning import Planning
    from headrace.parts.reader import Reader
    from headrace.parts.reshaping import Reshaping
    from headrace.parts.schemas import Schemas
    from headrace.parts.sinks import Sinks
    from headrace.parts.snapshots import Snapshots
    from headrace.parts.sources import SourceStates
    from headrace.parts.upgrades import Upgrades
    from headrace.parts.waiting import WaitingViews
    from headrace.runtime.deliveries import Deliveries
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.feeds import Feeds
    from headrace.runtime.pump import Pump
    from headrace.runtime.retirement import Retirement
    from headrace.session.information_schema import InformationSchema


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
