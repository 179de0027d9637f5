"""Declares PostgreSQL: a sink into tables, and connections, also for ``CREATE SOURCE``."""

from __future__ import annotations

from typing import Final

from headrace.io.connectors.postgres import access
from headrace.io.connectors.postgres.sink import PostgresSink, SinkTable, check
from headrace.io.connectors.sinks import TableContents
from headrace.io.connectors.systems import ConnectionKind, SinkConnector, System, of_sink_table

SYSTEM: Final = System(
    sink=SinkConnector(
        "postgres",
        SinkTable,
        also=("postgresql",),
        open=PostgresSink,
        check=check,
        target=("table",),
        joins=lambda options: options.mode is TableContents.UPSERT,
        dataset=lambda options, _root: of_sink_table(options),
    ),
    connection=ConnectionKind("postgres", access.Access, access.check, also=("postgresql",)),
)
