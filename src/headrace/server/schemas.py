"""The JSON schemas of request and answer bodies, by their names in the OpenAPI description."""

from __future__ import annotations

from typing import Any, Final

TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer"}
_NUMBER: Final = {"type": "number"}


def _object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with required properties; it may have more."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_COLUMN: Final = _object(name=TEXT, type=TEXT)
_MOMENT: Final[dict[str, Any]] = {
    "at": _NUMBER,
    "epoch": _WHOLE,
    "committed_at": _NUMBER,
    "epochs": _WHOLE,
    "narrow": _WHOLE,
    "epoch_seconds": _or_null(_NUMBER),
    "rows": _or_null(_NUMBER),
    "pending": _WHOLE,
    "seconds": _NUMBER,
    "statements": _WHOLE,
    "subscribers": _WHOLE,
}
SCHEMAS: Final[dict[str, Any]] = {
    "Error": _object(
        error=_object(
            code=TEXT,
            primary=TEXT,
            detail=_or_null(TEXT),
            hint=_or_null(TEXT),
            span=_or_null({"type": "object"}),
        )
    ),
    "Statements": {
        "type": "object",
        "required": ["sql"],
        "additionalProperties": False,
        "properties": {
            "sql": {"type": "string", "description": "One statement, or several."},
            "parameters": {
                "type": ["array", "object", "null"],
                "description": "The values of ?, or of :name.",
            },
            "session": {"type": ["string", "null"], "description": "Of POST /v1/sessions."},
            "timeout": {"type": ["number", "null"], "description": "In seconds."},
            "follow": {
                "type": ["boolean", "null"],
                "description": "With events: answer with the parameters of /v1/subscribe.",
            },
            "min_epoch": {
                "type": ["string", "integer", "null"],
                "description": "A token or an epoch for which queries wait.",
            },
            "max_staleness": {
                "type": ["number", "null"],
                "description": "The maximum wait of missing changes, in seconds.",
            },
        },
    },
    "Sql": {
        "type": "object",
        "required": ["sql"],
        "additionalProperties": False,
        "properties": {"sql": {"type": "string", "description": "One statement, or several."}},
    },
    "Result": _object(
        kind={"enum": ["rows", "done"]},
        columns=_list(_COLUMN),
        rows=_list({"type": "array"}),
        message=TEXT,
        epoch=_WHOLE,
        token=TEXT,
        freshness=_or_null(
            _object(
                epoch=_WHOLE,
                committed_at=_NUMBER,
                pending=_WHOLE,
                dirty=_list(TEXT),
                frontier=_or_null(_WHOLE),
            )
        ),
    ),
    "Source": _object(
        name=TEXT,
        state=TEXT,
        connector=_or_null(TEXT),
        shared_source=_or_null(TEXT),
        behind=_or_null(_WHOLE),
        error=_or_null(TEXT),
        rejected=_or_null(_WHOLE),
        acknowledged=_or_null(_WHOLE),
        duplicates=_or_null(_WHOLE),
        late=_or_null(_WHOLE),
        watermark=_or_null(_NUMBER),
        delay=_or_null(_NUMBER),
        lateness=_or_null(_NUMBER),
        end=_or_null(_WHOLE),
    ),
    "Freshness": _object(
        pending=_or_null(_WHOLE),
        seconds=_NUMBER,
        watermark=_or_null(_NUMBER),
        dirty_since=_or_null(_NUMBER),
        dirty_slices=_WHOLE,
        refresh=TEXT,
        epoch=_WHOLE,
        shown_at=_NUMBER,
        next_refresh=_or_null(_NUMBER),
        quarantined=_or_null(_WHOLE),
        waits_for=_or_null(TEXT),
        error=_or_null(TEXT),
        inputs=_list(
            _object(relation=TEXT, position=_WHOLE, end=_WHOLE, watermark=_or_null(_NUMBER))
        ),
    ),
    "Relation": _object(
        name=TEXT,
        kind={"enum": ["stream", "table", "materialized view", "plain view", "sink"]},
        state=TEXT,
        role=_or_null(TEXT),
        key=_list(TEXT),
        columns=_list(_COLUMN),
        inputs=_list(TEXT),
        target=_or_null(TEXT),
        stored=_or_null(
            _object(rows=_or_null(_WHOLE), entries=_WHOLE, bytes=_WHOLE, arrangements=_WHOLE)
        ),
        freshness=_or_null(_ref("Freshness")),
        source=_or_null(_ref("Source")),
        delivery=_or_null({"type": "object"}),
    ),
    "Described": {
        "allOf": [
            _ref("Relation"),
            _object(
                sql=_or_null(TEXT),
                circuit=_or_null(
                    _list(
                        _object(
                            depth=_WHOLE,
                            number=_WHOLE,
                            title=TEXT,
                            arrangements=_list(
                                _object(
                                    id=TEXT,
                                    key=TEXT,
                                    columns=_WHOLE,
                                    relation=_or_null(TEXT),
                                    rows=_or_null(_WHOLE),
                                    bytes=_or_null(_WHOLE),
                                )
                            ),
                            cost=_or_null(TEXT),
                            again={"type": "boolean"},
                            work=_or_null(
                                _object(
                                    epochs=_WHOLE,
                                    changes=_WHOLE,
                                    rows_in=_WHOLE,
                                    rows_out=_WHOLE,
                                    rows_read=_WHOLE,
                                    seconds=_NUMBER,
                                )
                            ),
                        )
                    )
                ),
            ),
        ]
    },
    "Dependence": _object(
        relation=TEXT,
        column=TEXT,
        input=TEXT,
        input_column=TEXT,
        type={"enum": ["direct", "indirect"]},
        influence=TEXT,
        distance=_WHOLE,
        external=_or_null(TEXT),
    ),
    "Lineage": _object(
        relation=TEXT, upstream=_list(_ref("Dependence")), downstream=_list(_ref("Dependence"))
    ),
    "Candidate": _object(
        name=TEXT,
        role=_or_null(TEXT),
        state={"enum": ["being filled", "waits", "served before"]},
        same_columns=_or_null({"type": "boolean"}),
        swapped_with=_or_null(TEXT),
        view_definition=_or_null(TEXT),
        kept_until=_or_null(_NUMBER),
    ),
    "Fill": _object(
        name=TEXT,
        role=_or_null(TEXT),
        kind={"enum": ["view", "candidate", "index"]},
        state=TEXT,
        rows_done=_WHOLE,
        rows_total=_or_null(_WHOLE),
        rows_per_second=_or_null(_NUMBER),
        seconds_left=_or_null(_NUMBER),
        began_at=_NUMBER,
    ),
    "Catalog": _object(
        epoch=_WHOLE,
        committed_at=_NUMBER,
        pending=_WHOLE,
        client=_object(name=_or_null(TEXT), role=_or_null(TEXT)),
        relations=_list(_ref("Relation")),
        sources=_list(_ref("Source")),
        candidates=_list(_ref("Candidate")),
        fills=_list(_ref("Fill")),
        server=_or_null(
            _object(version=TEXT, memory=_or_null(_WHOLE), disk=_WHOLE, disk_free=_WHOLE)
        ),
        costs=_list(
            _object(name=TEXT, candidate={"type": "boolean"}, seconds=_NUMBER, share=_NUMBER)
        ),
        functions=_list(TEXT),
        keywords=_list(TEXT),
    ),
    "History": _object(**{name: _list(schema) for name, schema in _MOMENT.items()}, step=_WHOLE),
    "Epochs": _object(
        epochs=_list(
            _object(
                epoch=_WHOLE,
                committed_at=_NUMBER,
                width=_or_null(TEXT),
                seconds=_or_null(_NUMBER),
                changes=_or_null(_WHOLE),
                jobs=_or_null(_WHOLE),
                rows_in=_or_null(_WHOLE),
                rows_out=_or_null(_WHOLE),
                rows_read=_or_null(_WHOLE),
                spent={"type": "object", "additionalProperties": _NUMBER},
                tasks_spent={"type": "object", "additionalProperties": _NUMBER},
                fans_out=_or_null(TEXT),
                fans_out_view=_or_null(TEXT),
            )
        )
    ),
    "Running": _object(
        statements=_list(
            _object(
                id=TEXT,
                sql=TEXT,
                began_at=_NUMBER,
                by=_or_null(TEXT),
                progress=_or_null({"type": "object"}),
            )
        ),
        ended=_list(
            _object(
                id=TEXT,
                sql=TEXT,
                began_at=_NUMBER,
                by=_or_null(TEXT),
                seconds=_NUMBER,
                outcome=TEXT,
                error=_or_null(TEXT),
            )
        ),
    ),
    "Script": _object(statements=_list(_object(sql=TEXT, start=_WHOLE, end=_WHOLE))),
    "Changes": _object(
        relation=TEXT,
        columns=_list(_COLUMN),
        epoch=_WHOLE,
        token=TEXT,
        complete={"type": "boolean"},
        epochs=_list(
            _object(
                epoch=_WHOLE,
                committed_at=_NUMBER,
                changes=_list(
                    _object(epoch=_WHOLE, op=TEXT, weight=_WHOLE, row={"type": "object"})
                ),
            )
        ),
    ),
    "Object": {"type": "object"},
}
