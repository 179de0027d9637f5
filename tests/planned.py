"""Queries planned over a few relations, with nothing that runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from headrace.errors import Span
from headrace.execution.engine.engine import Engine
from headrace.execution.engine.jobs.lease import RunningSpark
from headrace.interfaces.statements.defining.views import check_names
from headrace.planning.catalog import Relation, Stream, Table, View
from headrace.planning.catalyst.select import LATEST, Edition
from headrace.storage.log import EmbeddedLog
from headrace.types import BuildId, RelationId, Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.planning.circuit import Circuit

COLUMNS = {
    "t": "k INT, g INT, x BIGINT, s STRING, d DOUBLE, m DECIMAL(10,2), ts TIMESTAMP,"
    " arr ARRAY<INT>, mp MAP<STRING, INT>",
    "u": "k INT, v INT",
    "w": "mp MAP<STRING, INT>, a INT NOT NULL, b INT NOT NULL",
    "p": "item INT NOT NULL, price INT, since TIMESTAMP NOT NULL",
}
KEYS = {"t": ("k",), "w": ("a", "b"), "p": ("item", "since")}
VERSIONED = {"p": "since"}


@dataclass
class Planned:
    """An engine that knows the tables ``t``, ``w`` and ``p``, by key, and the stream ``u``."""

    spark: SparkSession
    engine: Engine = field(init=False)
    names: dict[RelationId, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine(RunningSpark(self.spark), 2, EmbeddedLog())
        for name, columns in COLUMNS.items():
            key = KEYS.get(name, ())
            schema = Schema.of_spark(StructType.fromDDL(columns))
            id_ = RelationId(len(self.names) + 1)
            table = Table(id_, name, schema, key, VERSIONED.get(name))
            self.declare(table if key else Stream(id_, name, schema))

    def declare(self, relation: Relation) -> None:
        self.names[relation.id] = relation.name
        self.engine.declare(relation)

    def view(self, name: str, query: str) -> Circuit:
        """Declare a view, and return its circuit."""
        span = Span(query, 0, len(query))
        analysed = self.engine.planner.analyse(span)
        names = analysed.schema.names
        check_names(names, len(names), span)
        id_ = RelationId(len(self.names) + 1)
        circuit = self.engine.circuits.circuit_of(id_, BuildId(id_), analysed, span, names)
        key = tuple(names[i] for i in circuit.output.key) if circuit.unique else ()
        view = View(id_, name, analysed.schema, query, analysed.names, created_sql=query, key=key)
        self.declare(replace(view, single=circuit.unique and not key))
        return circuit

    def circuit(self, query: str, edition: Edition = LATEST) -> Circuit:
        """Return the circuit of a query, as an edition of the planner makes it."""
        span = Span(query, 0, len(query))
        analysed = self.engine.planner.analyse(span)
        names = analysed.schema.names
        check_names(names, len(names), span)
        return self.engine.circuits.circuit_of(
            RelationId(9), BuildId(9), analysed, span, names, edition=edition
        )
