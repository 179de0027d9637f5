"""What there is: relations with their columns, and what a stream or table takes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError, Span
from headrace.parts.written_rows import given_time
from headrace.server.answers import done
from headrace.server.failures import Refused
from headrace.statements.changing.targets import chosen, writable
from headrace.types import Schema

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.catalog import Catalog, Relation
    from headrace.server.service import Service

_NOT_FOUND: Final = 404


async def list_catalog(service: Service, request: Request) -> Response:
    """List relations with their columns, and the functions that queries can call."""
    del request
    database = service.database
    return done(
        {
            "epoch": database.last_epoch(),
            "pending": await asyncio.to_thread(database.pending),
            "relations": [
                {
                    "kind": kind,
                    "name": name,
                    "columns": [{"name": n, "type": t} for n, t in database.columns(name)],
                }
                for kind, name in database.relations()
            ],
            "functions": database.functions(),
        }
    )


async def describe_target(service: Service, request: Request) -> Response:
    """Describe what a stream or table takes: its columns but the generated ones, and defaults.

    Columns are in the JSON of Spark's ``StructType``; ``optional`` ones can be given besides.
    """
    catalog = service.database.parts.reader.catalog
    relation = writable(catalog, resolved(catalog, request.path_params["name"]))
    time = given_time(relation)
    return done(
        {
            "columns": Schema(chosen(relation, (), Span.whole(relation.name))).to_json(),
            "optional": Schema(() if time is None else (time,)).to_json(),
            "defaults": [column for column, _ in relation.declaration.defaults],
        }
    )


def resolved(catalog: Catalog, name: str) -> Relation:
    """Return the relation that a path names.

    Raises:
        Refused: ``invalid``, with status 404, if there is none.
    """
    try:
        return catalog.resolve(name)
    except HeadraceError as error:
        raise Refused(_NOT_FOUND, error) from error
