"""The table of statements: the class that runs each, and the roles that each requires.

A method of a frozen dataclass runs the statement. The fields of the dataclass are the parts that it
uses, by name; :class:`headrace.interfaces.session.client.Injector` constructs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from headrace.interfaces.session import needs
from headrace.interfaces.session.needs import NamedRelations, Need
from headrace.interfaces.session.properties import Properties
from headrace.interfaces.session.reads import SessionReads
from headrace.interfaces.statements.changing.copies import Copies
from headrace.interfaces.statements.changing.inserts import Inserts
from headrace.interfaces.statements.changing.row_changes import (
    Corrections,
    RowChanges,
    Trials,
    Writes,
)
from headrace.interfaces.statements.changing.updates import Updates
from headrace.interfaces.statements.checking.reconciliations import Reconciliations
from headrace.interfaces.statements.checking.repairs import (
    Invalidations,
    Rebuilds,
    Repairs,
    Retries,
)
from headrace.interfaces.statements.checking.replays import ReplayStatements
from headrace.interfaces.statements.checking.verifications import Verifications
from headrace.interfaces.statements.copies import BackupStatements, BranchStatements
from headrace.interfaces.statements.defining.candidate_sets import CandidateSets
from headrace.interfaces.statements.defining.candidates import Candidates, FillChanges
from headrace.interfaces.statements.defining.column_changes import ColumnChanges, ColumnPlans
from headrace.interfaces.statements.defining.connections import (
    CaptureChanges,
    ConnectionChanges,
    SecretChanges,
)
from headrace.interfaces.statements.defining.drops import Drops
from headrace.interfaces.statements.defining.indexes import Indexes
from headrace.interfaces.statements.defining.on_error import ErrorPolicies
from headrace.interfaces.statements.defining.placing import SchemaChanges
from headrace.interfaces.statements.defining.relations import DerivedStreams, RelationDefinitions
from headrace.interfaces.statements.defining.renamings import (
    RelationRenamings,
    Renamings,
    SchemaRenamings,
)
from headrace.interfaces.statements.defining.sql_functions import SqlFunctions
from headrace.interfaces.statements.defining.stream_options import Retentions
from headrace.interfaces.statements.defining.tokens import TokenChanges
from headrace.interfaces.statements.defining.view_builds import ViewBuilds
from headrace.interfaces.statements.defining.views import Views
from headrace.interfaces.statements.describing.descriptions import (
    Descriptions,
    Errors,
    LineageListings,
)
from headrace.interfaces.statements.describing.effects import (
    AlterationEffects,
    BuildEffects,
    ChangeExplanations,
    DefinitionChanges,
    ScriptExplanations,
)
from headrace.interfaces.statements.describing.explanations import Explanations, ReusedState
from headrace.interfaces.statements.describing.listings import Listings
from headrace.interfaces.statements.describing.names import NameListings, TokenListings
from headrace.interfaces.statements.describing.relations import RelationListings
from headrace.interfaces.statements.describing.states import StateListings
from headrace.interfaces.statements.functions import Acknowledging, FunctionChanges, Resuming
from headrace.interfaces.statements.reading.following import QueryFollowing
from headrace.interfaces.statements.reading.point_in_time import PointInTime
from headrace.interfaces.statements.reading.selects import Exports, Selects
from headrace.interfaces.statements.refreshing import Refreshing
from headrace.interfaces.statements.sinks.creations import RelationCreations, SinkCreations
from headrace.interfaces.statements.sinks.destination import SinkSources
from headrace.interfaces.statements.sinks.handling import SinkChanges
from headrace.lifecycle.history.slices import Marking, Slices
from headrace.lifecycle.states.access import DATABASE
from headrace.planning.sql import (
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.interfaces.statements.results import Listed, Result
    from headrace.planning.sql import Statement


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
