"""Declares sinks into tables of Delta and Iceberg, and into files for a warehouse."""

from __future__ import annotations

from typing import Final

from headrace.io.connectors.files.sink import place
from headrace.io.connectors.lake import delta, iceberg, iceberg_catalogues, tables, warehouse
from headrace.io.connectors.sinks import TableContents
from headrace.io.connectors.systems import ConnectionKind, SinkConnector, System, of_path

DELTA: Final = System(
    sink=SinkConnector(
        "delta",
        tables.LakeTable,
        open=delta.opened,
        check=delta.check,
        place=tables.path_of,
        joins=lambda options: options.mode is TableContents.UPSERT,
        over=("s3",),
        dataset=lambda options, root: of_path(options.path, root),
    ),
)
ICEBERG: Final = System(
    sink=SinkConnector(
        "iceberg",
        iceberg.IcebergTable,
        open=iceberg.opened,
        check=iceberg.check,
        target=("path", "table"),
        place=iceberg.path_of,
        shares=True,
        joins=lambda options: options.mode is TableContents.UPSERT,
        over=("iceberg", "s3"),
    ),
    connection=ConnectionKind("iceberg", iceberg_catalogues.RestAccess, iceberg_catalogues.check),
)
WAREHOUSE: Final = System(
    sink=SinkConnector(
        "warehouse",
        warehouse.Options,
        open=warehouse.opened,
        check=warehouse.check,
        target=("warehouse", "table"),
        place=lambda options, context: place(options.path, context),
    ),
)
