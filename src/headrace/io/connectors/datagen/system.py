"""Declares datagen: a source of generated rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.io.connectors.datagen.source import DatagenSource, Options
from headrace.io.connectors.systems import SourceConnector, System

if TYPE_CHECKING:
    from headrace.io.connectors.systems import SourceContext


def _source(options: Options, context: SourceContext) -> DatagenSource:
    return DatagenSource(options, context.schema)


def _check(options: Options, context: SourceContext) -> None:
    _source(options, context)


SYSTEM: Final = System(source=SourceConnector("datagen", Options, open=_source, check=_check))
