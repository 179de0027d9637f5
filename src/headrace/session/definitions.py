"""The statements that change the catalog: CREATE, ALTER, DROP, GRANT and REVOKE, for one client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, assert_never

from headrace.sql import (
    AddColumns,
    AlterStream,
    AlterView,
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
    CreateView,
    Drop,
    DropConnection,
    DropFunction,
    DropIndex,
    DropSchema,
    DropSecret,
    DropToken,
    Grant,
    ObjectKind,
    Revoke,
)
from headrace.statements.defining.alterations import Alterations
from headrace.statements.defining.captures import CaptureChanges
from headrace.statements.defining.connections import ConnectionChanges
from headrace.statements.defining.derived import DerivedStreams
from headrace.statements.defining.drops import Drops
from headrace.statements.defining.indexes import Indexes
from headrace.statements.defining.on_error import ErrorPolicies, on_error
from headrace.statements.defining.relations import Relations
from headrace.statements.defining.retention import Retentions
from headrace.statements.defining.schemas import SchemaChanges
from headrace.statements.defining.secrets import SecretChanges
from headrace.statements.defining.sql_functions import SqlFunctions
from headrace.statements.defining.tokens import TokenChanges
from headrace.statements.defining.views import Views
from headrace.statements.functions import FunctionChanges
from headrace.statements.refreshing import Refreshing
from headrace.statements.sinks.creations import SinkCreations
from headrace.statements.sinks.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.session.parts import Parts
    from headrace.statements.results import Progress

Definition: TypeAlias = (
    CreateStream
    | CreateTable
    | CreateMaterializedView
    | CreateTableAs
    | CreateView
    | CreateSink
    | CreateSchema
    | CreateIndex
    | CreateSecret
    | CreateConnection
    | Grant
    | Revoke
    | AddColumns
    | AlterStream
    | AlterView
    | CreateSource
    | Drop
    | CreateFunction
    | DropFunction
    | DropSchema
    | DropSecret
    | DropIndex
    | DropConnection
    | DropToken
)


@dataclass(frozen=True, slots=True)
class Definitions:
    """Runs them."""

    views: Views
    indexes: Indexes
    derived: DerivedStreams
    relations: Relations
    alterations: Alterations
    retentions: Retentions
    refreshing: Refreshing
    error_policies: ErrorPolicies
    drops: Drops
    schemas: SchemaChanges
    tokens: TokenChanges
    secrets: SecretChanges
    connections: ConnectionChanges
    captures: CaptureChanges
    functions: FunctionChanges
    sql_functions: SqlFunctions
    sinks: SinkCreations

    @classmethod
    def of(cls, parts: Parts, report: Callable[[Progress], None]) -> Definitions:
        """Give each of them the parts of a database that it uses."""
        reader, ledger, engine, definer = parts.reader, parts.ledger, parts.engine, parts.definer
        views = Views(reader, ledger, engine, definer, report)
        relations = Relations(reader, ledger, engine, definer, parts.feeding, parts.connections)
        return cls(
            views=views,
            indexes=Indexes(reader, definer, views),
            derived=DerivedStreams(reader, ledger, engine, definer, views),
            relations=relations,
            alterations=Alterations(reader, definer, parts.feeds, parts.feeding, relations),
            retentions=Retentions(reader, definer, parts.pump.compaction.retirement),
            refreshing=Refreshing(reader, definer, parts.pump, report),
            error_policies=ErrorPolicies(reader, ledger, engine, definer, report),
            drops=Drops(reader, definer),
            schemas=SchemaChanges(reader, parts.schemas, definer, parts.access),
            tokens=TokenChanges(parts.access, reader, parts.schemas),
            secrets=SecretChanges(reader, parts.secrets, parts.connections),
            connections=ConnectionChanges(reader, parts.connections, parts.captures),
            captures=CaptureChanges(
                reader, ledger, definer, relations, parts.captures, parts.capturing
            ),
            sql_functions=SqlFunctions(reader, ledger, engine, definer),
            functions=FunctionChanges(
                parts.functions, parts.waiting, definer, parts.loop, parts.changes
            ),
            sinks=SinkCreations(
                reader,
                ledger,
                definer,
                Sources(reader, engine, views),
                parts.destinations,
                parts.connections,
                parts.sinks,
            ),
        )

    def run(self, statement: Definition) -> str:
        """Run one statement; return a message."""
        match statement:
            case AddColumns() | AlterStream() | AlterView():
                return self._alter(statement)
            case CreateSource():
                return self.captures.create(statement)
            case CreateTable() if statement.captured is not None:
                return self.captures.create_table(statement)
            case CreateStream() | CreateTable():
                return self.sinks.delivered(statement, self.relations.create)
            case CreateTableAs(kind=ObjectKind.STREAM):
                return self.derived.create(statement)
            case CreateMaterializedView() | CreateTableAs():
                return self.views.create_materialized(statement)
            case CreateView() | CreateFunction():
                return self._named(statement)
            case CreateSink():
                return self.sinks.create(statement)
            case CreateSchema():
                return self.schemas.create(statement)
            case CreateIndex():
                return self.indexes.create(statement)
            case CreateSecret():
                return self.secrets.create(statement)
            case CreateConnection():
                return self.connections.create(statement)
            case Grant() | Revoke():
                return self._grant(statement)
            case _:
                return self._drop(statement)

    def _named(self, statement: CreateView | CreateFunction) -> str:
        """Create what stands for its text in queries."""
        if isinstance(statement, CreateView):
            return self.views.create_plain(statement)
        return self.sql_functions.create(statement)

    def _alter(self, statement: AddColumns | AlterStream | AlterView) -> str:
        match statement:
            case AddColumns():
                return self.alterations.add_columns(statement)
            case AlterStream():
                return self.retentions.alter(statement)
            case AlterView() if (policy := on_error(statement.options)) is not None:
                return self.error_policies.alter(statement, policy)
            case AlterView():
                return self.refreshing.alter(statement)

    def _grant(self, statement: Grant | Revoke) -> str:
        if isinstance(statement, Grant):
            return self.tokens.grant(statement)
        return self.tokens.revoke(statement)

    def _drop(
        self,
        statement: Drop
        | DropFunction
        | DropIndex
        | DropSchema
        | DropSecret
        | DropConnection
        | DropToken,
    ) -> str:
        match statement:
            case Drop() if self.captures.owns(statement):
                return self.captures.drop(statement)
            case Drop():
                return self.drops.drop(statement)
            case DropFunction() if self.sql_functions.owns(statement):
                return self.sql_functions.drop(statement)
            case DropFunction():
                return self.functions.drop(statement)
            case DropIndex():
                return self.indexes.drop(statement)
            case DropSchema():
                return self.schemas.drop(statement)
            case DropSecret():
                return self.secrets.drop(statement)
            case DropConnection():
                return self.connections.drop(statement)
            case DropToken():
                return self.tokens.drop(statement)
            case _:
                assert_never(statement)
