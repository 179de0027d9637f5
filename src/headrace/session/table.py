"""The table of statements: the class that runs each, and the roles that each requires.

A method of a frozen dataclass runs the statement. The fields of the dataclass are the parts that it
uses, by name; :class:`headrace.session.injection.Injector` constructs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from headrace.history.marking import Marking
from headrace.history.slices import Slices
from headrace.parts.access import DATABASE
from headrace.session import needs
from headrace.session.needs import NamedRelations, Need
from headrace.session.properties import Properties
from headrace.session.reads import SessionReads
from headrace.sql import (
    AcknowledgeRejects,
    AddColumns,
    AlterSink,
    AlterStream,
    AlterView,
    AlterViewQuery,
    Backup,
    Copy,
    CopyTo,
    Correct,
    CreateBranch,
    CreateConnection,
    CreateFunction,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateToken,
    CreateView,
    Delete,
    Describe,
    Drop,
    DropBranch,
    DropCandidate,
    DropColumns,
    DropConnection,
    DropFunction,
    DropIndex,
    DropSchema,
    DropSecret,
    DropToken,
    Explain,
    ExplainChange,
    ExplainReplay,
    ExplainRow,
    ExplainScript,
    Flush,
    Grant,
    HandleSink,
    Insert,
    Invalidate,
    Name,
    PauseFill,
    Print,
    Query,
    RebuildView,
    Reconcile,
    ReconcileSink,
    Refresh,
    Rename,
    RenameColumn,
    Repair,
    Replay,
    ResetOption,
    ResumeFill,
    ResumeSource,
    RetypeColumn,
    Revoke,
    Role,
    SetOption,
    Show,
    ShowBackups,
    ShowBranches,
    ShowCreate,
    ShowDiff,
    ShowLineage,
    ShowOption,
    Subscribe,
    SwapView,
    Truncate,
    Update,
    ValidateView,
    Verify,
)
from headrace.statements.acknowledging import Acknowledging
from headrace.statements.backups import BackupStatements
from headrace.statements.branches import BranchStatements
from headrace.statements.changing.copies import Copies
from headrace.statements.changing.corrections import Corrections
from headrace.statements.changing.inserts import Inserts
from headrace.statements.changing.row_changes import RowChanges
from headrace.statements.changing.trials import Trials
from headrace.statements.changing.updates import Updates
from headrace.statements.changing.writes import Writes
from headrace.statements.checking.invalidations import Invalidations
from headrace.statements.checking.rebuilds import Rebuilds
from headrace.statements.checking.reconciliations import Reconciliations
from headrace.statements.checking.repairs import Repairs
from headrace.statements.checking.replays import ReplayStatements
from headrace.statements.checking.retries import Retries
from headrace.statements.checking.verifications import Verifications
from headrace.statements.defining.candidate_sets import CandidateSets
from headrace.statements.defining.candidates import Candidates
from headrace.statements.defining.captures import CaptureChanges
from headrace.statements.defining.column_changes import ColumnChanges
from headrace.statements.defining.column_plans import ColumnPlans
from headrace.statements.defining.connections import ConnectionChanges
from headrace.statements.defining.derived import DerivedStreams
from headrace.statements.defining.drops import Drops
from headrace.statements.defining.fills import FillChanges
from headrace.statements.defining.indexes import Indexes
from headrace.statements.defining.on_error import ErrorPolicies
from headrace.statements.defining.relations import RelationDefinitions
from headrace.statements.defining.renamings import (
    RelationRenamings,
    Renamings,
    SchemaRenamings,
)
from headrace.statements.defining.retention import Retentions
from headrace.statements.defining.schemas import SchemaChanges
from headrace.statements.defining.secrets import SecretChanges
from headrace.statements.defining.sql_functions import SqlFunctions
from headrace.statements.defining.tokens import TokenChanges
from headrace.statements.defining.view_builds import ViewBuilds
from headrace.statements.defining.views import Views
from headrace.statements.describing.alteration_effects import AlterationEffects
from headrace.statements.describing.build_effects import BuildEffects
from headrace.statements.describing.changes import ChangeExplanations, ScriptExplanations
from headrace.statements.describing.definitions import DefinitionChanges
from headrace.statements.describing.descriptions import Descriptions
from headrace.statements.describing.errors import Errors
from headrace.statements.describing.explanations import Explanations
from headrace.statements.describing.lineage import LineageListings
from headrace.statements.describing.listings import Listings
from headrace.statements.describing.names import NameListings
from headrace.statements.describing.relations import RelationListings
from headrace.statements.describing.reuse import ReusedState
from headrace.statements.describing.states import StateListings
from headrace.statements.describing.tokens import TokenListings
from headrace.statements.functions import FunctionChanges
from headrace.statements.reading.exports import Exports
from headrace.statements.reading.following import QueryFollowing
from headrace.statements.reading.point_in_time import PointInTime
from headrace.statements.reading.selects import Selects
from headrace.statements.refreshing import Refreshing
from headrace.statements.resuming import Resuming
from headrace.statements.sinks.creations import SinkCreations
from headrace.statements.sinks.handling import SinkChanges
from headrace.statements.sinks.sources import SinkSources
from headrace.statements.sinks.tables import RelationCreations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.sql import Statement
    from headrace.statements.results import Listed, Result

Answer: TypeAlias = "str | Listed | Result"
"""The value of a statement: a message or rows as of the last epoch, or a result with its own."""

S = TypeVar("S", bound="Statement")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Entry(Generic[S, C]):
    """A class of statements, the roles that it requires, and the class and method that run it."""

    statement: type[S]
    needs: Callable[[NamedRelations, S], Iterator[Need]]
    by: type[C]
    run: Callable[[C, S], Answer]


def _explain_change(named: NamedRelations, statement: ExplainChange) -> Iterator[Need]:
    target = statement.target
    if isinstance(target, Name):
        yield Need(Role.OWNER, DATABASE, statement.span)
    else:
        yield from TABLE[type(target)].needs(named, target)


_ENTRIES: Final = (
    # reading
    Entry(Query, NamedRelations.read, SessionReads, SessionReads.query),
    Entry(Subscribe, needs.subscribe, SessionReads, SessionReads.subscribe),
    Entry(Print, needs.print_, SessionReads, SessionReads.print),
    Entry(CopyTo, needs.copy_to, Exports, Exports.export),
    # describing
    Entry(Show, needs.show, Listings, Listings.show),
    Entry(ShowCreate, needs.show_create, Descriptions, Descriptions.show_create),
    Entry(ShowLineage, needs.show_lineage, LineageListings, LineageListings.show),
    Entry(ShowDiff, needs.candidate, Candidates, Candidates.difference),
    Entry(Describe, needs.describe, Descriptions, Descriptions.describe),
    Entry(Explain, needs.explain, Explanations, Explanations.explain),
    Entry(ExplainChange, _explain_change, ChangeExplanations, ChangeExplanations.explain),
    Entry(ExplainScript, needs.nothing, ScriptExplanations, ScriptExplanations.explain),
    # changing rows
    Entry(Insert, needs.insert, RowChanges, RowChanges.insert),
    Entry(Update, needs.update, RowChanges, RowChanges.update),
    Entry(Delete, needs.delete, RowChanges, RowChanges.delete),
    Entry(Truncate, needs.write, RowChanges, RowChanges.truncate),
    Entry(Correct, needs.correct, RowChanges, RowChanges.correct),
    Entry(Copy, needs.write, Copies, Copies.run),
    # defining
    Entry(CreateStream, needs.relation, RelationCreations, RelationCreations.create),
    Entry(CreateTable, needs.relation, RelationCreations, RelationCreations.create),
    Entry(CreateTableAs, needs.derived, DerivedStreams, DerivedStreams.create),
    Entry(CreateMaterializedView, needs.derived, Views, Views.create_materialized),
    Entry(CreateView, needs.derived, Views, Views.create_plain),
    Entry(CreateIndex, needs.index, Indexes, Indexes.create),
    Entry(CreateFunction, needs.owner, SqlFunctions, SqlFunctions.create),
    Entry(CreateSchema, needs.owner, SchemaChanges, SchemaChanges.create),
    Entry(CreateSecret, needs.owner, SecretChanges, SecretChanges.create),
    Entry(CreateConnection, needs.owner, ConnectionChanges, ConnectionChanges.create),
    Entry(CreateSource, needs.owner, CaptureChanges, CaptureChanges.create),
    Entry(CreateToken, needs.owner, TokenChanges, TokenChanges.create),
    Entry(Grant, needs.owner, TokenChanges, TokenChanges.grant),
    Entry(Revoke, needs.owner, TokenChanges, TokenChanges.revoke),
    Entry(AddColumns, needs.creator, ColumnChanges, ColumnChanges.alter),
    Entry(DropColumns, needs.creator, ColumnChanges, ColumnChanges.alter),
    Entry(RenameColumn, needs.creator, ColumnChanges, ColumnChanges.alter),
    Entry(RetypeColumn, needs.creator, ColumnChanges, ColumnChanges.alter),
    Entry(Rename, needs.renamed, Renamings, Renamings.rename),
    Entry(AlterStream, needs.creator, Retentions, Retentions.alter),
    Entry(AlterViewQuery, needs.derived, Views, Views.alter),
    Entry(AlterView, needs.creator, ErrorPolicies, ErrorPolicies.alter),
    Entry(RebuildView, needs.creator, CandidateSets, CandidateSets.rebuild),
    Entry(SwapView, needs.exchange, Candidates, Candidates.swap),
    Entry(PauseFill, needs.creator, FillChanges, FillChanges.pause),
    Entry(ResumeFill, needs.creator, FillChanges, FillChanges.resume),
    Entry(Drop, needs.drop, Drops, Drops.drop),
    Entry(DropCandidate, needs.exchange, Candidates, Candidates.drop),
    Entry(DropIndex, needs.creator, Indexes, Indexes.drop),
    Entry(DropFunction, needs.owner, SqlFunctions, SqlFunctions.drop),
    Entry(DropSchema, needs.owner, SchemaChanges, SchemaChanges.drop),
    Entry(DropSecret, needs.owner, SecretChanges, SecretChanges.drop),
    Entry(DropConnection, needs.owner, ConnectionChanges, ConnectionChanges.drop),
    Entry(DropToken, needs.owner, TokenChanges, TokenChanges.drop),
    # sources and sinks
    Entry(AcknowledgeRejects, needs.writer, Acknowledging, Acknowledging.acknowledge),
    Entry(ResumeSource, needs.owner, Resuming, Resuming.resume),
    Entry(CreateSink, needs.sink, SinkCreations, SinkCreations.create),
    Entry(AlterSink, needs.altered_sink, SinkChanges, SinkChanges.alter),
    Entry(HandleSink, needs.creator, SinkChanges, SinkChanges.handle),
    Entry(ReconcileSink, needs.creator, SinkChanges, SinkChanges.reconcile),
    # refreshing, checking and repairing
    Entry(Flush, needs.nothing, Refreshing, Refreshing.flush),
    Entry(Refresh, needs.refresh, Refreshing, Refreshing.refresh),
    Entry(Verify, needs.verify, Verifications, Verifications.verify),
    Entry(ValidateView, needs.candidate, Verifications, Verifications.validate),
    Entry(Reconcile, needs.reconcile, Reconciliations, Reconciliations.reconcile),
    Entry(Repair, needs.owner, Repairs, Repairs.repair),
    Entry(Invalidate, needs.invalidate, Invalidations, Invalidations.invalidate),
    Entry(Replay, needs.replay, ReplayStatements, ReplayStatements.run),
    Entry(ExplainReplay, needs.replay, ReplayStatements, ReplayStatements.run),
    Entry(ExplainRow, needs.explain_row, ReplayStatements, ReplayStatements.run),
    # backups and branches
    Entry(Backup, needs.owner, BackupStatements, BackupStatements.make),
    Entry(ShowBackups, needs.owner, BackupStatements, BackupStatements.show),
    Entry(CreateBranch, needs.owner, BranchStatements, BranchStatements.create),
    Entry(DropBranch, needs.owner, BranchStatements, BranchStatements.drop),
    Entry(ShowBranches, needs.owner, BranchStatements, BranchStatements.show),
    # the session
    Entry(SetOption, needs.nothing, Properties, Properties.set),
    Entry(ResetOption, needs.nothing, Properties, Properties.reset),
    Entry(ShowOption, needs.nothing, Properties, Properties.show),
)

TABLE: Final[Mapping[type[Statement], Entry[Any, Any]]] = {
    entry.statement: entry for entry in _ENTRIES
}
"""The entries by class of statement. Every class has one."""

COMPOSED: Final[Mapping[str, type[Any]]] = {
    "alteration_effects": AlterationEffects,
    "build_effects": BuildEffects,
    "builds": ViewBuilds,
    "candidates": Candidates,
    "capture_changes": CaptureChanges,
    "column_plans": ColumnPlans,
    "connection_changes": ConnectionChanges,
    "corrections": Corrections,
    "creations": SinkCreations,
    "definition_changes": DefinitionChanges,
    "reused": ReusedState,
    "errors": Errors,
    "following": QueryFollowing,
    "function_changes": FunctionChanges,
    "inserts": Inserts,
    "marking": Marking,
    "name_listings": NameListings,
    "point_in_time": PointInTime,
    "rebuilds": Rebuilds,
    "reconciliations": Reconciliations,
    "refreshing": Refreshing,
    "relation_listings": RelationListings,
    "relation_renamings": RelationRenamings,
    "relations": RelationDefinitions,
    "retries": Retries,
    "schema_renamings": SchemaRenamings,
    "secret_changes": SecretChanges,
    "selects": Selects,
    "sets": CandidateSets,
    "sink_sources": SinkSources,
    "slices": Slices,
    "state_listings": StateListings,
    "token_listings": TokenListings,
    "trials": Trials,
    "updates": Updates,
    "views": Views,
    "writes": Writes,
}
"""Classes constructed from parts for the fields of other classes, by field name."""
