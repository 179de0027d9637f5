from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, IntegerType, StringType

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalog import Catalog, Relation, Stream, Table, View, relation_of_json
from headrace.types import Column, RelationId, Schema

SCHEMA = Schema((Column("userId", StringType(), nullable=False), Column("n", IntegerType())))


def stream(number: int, name: str) -> Stream:
    return Stream(RelationId(number), name, SCHEMA)


def table(number: int, name: str) -> Table:
    return Table(RelationId(number), name, SCHEMA, ("userId",))


def view(number: int, name: str, *needed: int) -> View:
    depends_on = tuple(RelationId(n) for n in needed)
    return View(RelationId(number), name, SCHEMA, "SELECT ...", depends_on, key=("userId",))


#   orders(1) ── spend(3) ── top(5)
#   users(2) ───────────────┘         clicks(4) ── visits(6)     idle(7)
CATALOG = Catalog.of(
    [
        view(5, "gold.top", 3, 2),
        stream(1, "orders"),
        table(2, "users"),
        view(3, "spend", 1),
        stream(4, "clicks"),
        view(6, "visits", 4),
        table(7, "idle"),
    ]
)


def ids(relations: tuple[View, ...]) -> list[int]:
    return [relation.id for relation in relations]


@pytest.mark.parametrize("relation", CATALOG.relations, ids=lambda relation: relation.name)
def test_a_relation_survives_json_and_pickling(relation: Relation) -> None:
    assert relation_of_json(json.loads(json.dumps(relation.to_json()))) == relation
    assert pickle.loads(pickle.dumps(relation)) == relation  # noqa: S301 - our own bytes


def test_types_survive_json_exactly() -> None:
    schema = Schema((Column("amount", DecimalType(12, 3)),))
    kept = relation_of_json(Table(RelationId(1), "t", schema).to_json())
    assert kept.schema.columns[0].type == DecimalType(12, 3)
    assert isinstance(kept, Table)
    assert kept.primary_key == ()


def test_versions_survive_json_and_old_records_have_none() -> None:
    versioned = Table(RelationId(1), "t", SCHEMA, ("n", "userId"), "userId")
    assert relation_of_json(json.loads(json.dumps(versioned.to_json()))) == versioned
    assert versioned.versioned_key == ("n",)
    old = table(2, "users")
    assert "effective_from" not in old.to_json()
    kept = relation_of_json(old.to_json())
    assert isinstance(kept, Table)
    assert kept.effective_from is None
    assert kept.versioned_key == kept.primary_key == ("userId",)


@pytest.mark.parametrize("value", [{}, {"kind": "index"}, {"kind": "table", "id": 1}, []])
def test_a_malformed_record_is_reported_as_corrupt(value: object) -> None:
    with pytest.raises(HeadraceError) as caught:
        relation_of_json(value)  # type: ignore[arg-type]
    assert caught.value.code is Code.CORRUPT


def test_a_name_resolves_regardless_of_case() -> None:
    assert CATALOG.resolve("Gold.TOP").id == 5
    assert CATALOG.find("nothing") is None


def test_an_unknown_name_is_refused_at_its_place_with_the_nearest_name() -> None:
    span = Span("SELECT * FROM ordres", 14, 20)
    with pytest.raises(HeadraceError) as caught:
        CATALOG.resolve("ordres", span)
    error = caught.value
    assert error.code is Code.INVALID
    assert error.primary == 'table, stream or view "ordres" does not exist'
    assert error.hint == 'Did you mean "orders"?'
    assert error.span == span


def test_an_unknown_name_near_no_other_has_the_statement_that_lists_names() -> None:
    with pytest.raises(HeadraceError) as caught:
        Catalog().resolve("orders")
    assert caught.value.hint == "SHOW TABLES lists what exists."


@pytest.mark.parametrize(
    ("relation", "primary", "hint"),
    [
        (
            view(9, "spend", 1),
            'view "spend" exists already',
            "Use CREATE OR REPLACE MATERIALIZED VIEW, or IF NOT EXISTS.",
        ),
        (
            table(9, "users"),
            'table "users" exists already',
            "Use CREATE OR REPLACE TABLE, or IF NOT EXISTS.",
        ),
        (
            view(9, "Orders", 2),
            'stream "orders" exists already',
            "Streams, tables and views share their names: choose another, or DROP STREAM first.",
        ),
    ],
)
def test_a_name_that_is_taken_is_a_conflict(relation: Relation, primary: str, hint: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        CATALOG.with_(relation)
    assert (caught.value.code, caught.value.primary) == (Code.CONFLICT, primary)
    assert caught.value.hint == hint


def test_adding_leaves_the_old_catalog_as_it_was() -> None:
    after = CATALOG.with_(view(8, "more", 7))
    assert len(after) == len(CATALOG) + 1
    assert CATALOG.find("more") is None


def test_a_relation_of_a_known_id_takes_its_place_also_under_a_new_name() -> None:
    after = CATALOG.with_(view(3, "spending", 1, 4))
    assert after.find("spend") is None
    assert after.resolve("spending").id == 3
    assert ids(after.dependants(RelationId(4))) == [3, 6, 5]


@pytest.mark.parametrize("needed", [3, 5])
def test_a_view_that_would_depend_on_itself_is_refused(needed: int) -> None:
    with pytest.raises(HeadraceError) as caught:
        CATALOG.with_(view(3, "spend", needed))
    assert caught.value.code is Code.INVALID
    assert caught.value.primary == 'view "spend" would depend on itself'


def test_a_relation_that_views_need_is_not_removed_without_them() -> None:
    with pytest.raises(HeadraceError) as caught:
        CATALOG.without([RelationId(1)])
    assert caught.value.code is Code.CONFLICT
    assert caught.value.primary == 'stream "orders" is used by view "spend"'
    assert caught.value.hint == (
        "Use DROP STREAM orders CASCADE, then CREATE it and the views above again: SHOW CREATE shows"
        " how."
    )
    everything = {RelationId(1), *(v.id for v in CATALOG.dependants(RelationId(1)))}
    left = CATALOG.without(everything)
    assert sorted(left.by_name) == ["clicks", "idle", "users", "visits"]


def test_dependants_are_transitive_and_in_order() -> None:
    assert ids(CATALOG.dependants(RelationId(1))) == [3, 5]
    assert ids(CATALOG.dependants(RelationId(2))) == [5]
    assert ids(CATALOG.dependants(RelationId(7))) == []


def test_views_come_after_what_they_read_even_if_it_is_younger() -> None:
    catalog = Catalog.of([stream(1, "s"), view(2, "a", 3), view(3, "b", 1)])
    assert ids(catalog.views_in_order()) == [3, 2]


def test_relations_are_connected_through_views() -> None:
    assert CATALOG.connected_sets() == (
        frozenset({1, 2, 3, 5}),
        frozenset({4, 6}),
        frozenset({7}),
    )
    assert Catalog().connected_sets() == ()


@pytest.mark.parametrize(
    "relations",
    [
        [stream(1, "a"), stream(1, "b")],
        [stream(1, "a"), table(2, "A")],
        [view(1, "a", 2)],
        [view(1, "a", 2), view(2, "b", 1)],
    ],
    ids=["one id twice", "one name twice", "a missing dependency", "a circle"],
)
def test_a_catalog_that_cannot_be_is_reported_as_corrupt(relations: list[Relation]) -> None:
    with pytest.raises(HeadraceError) as caught:
        Catalog.of(relations)
    assert caught.value.code is Code.CORRUPT


@given(st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=30), st.randoms())
def test_order_and_sets_agree_with_the_dependencies(needs: list[list[int]], random: object) -> None:
    relations: list[Relation] = []
    for number, needed in enumerate(needs):
        earlier = sorted({n % number for n in needed}) if number else []
        name = f"r{number}"
        relations.append(view(number, name, *earlier) if earlier else stream(number, name))
    random.shuffle(relations)  # type: ignore[attr-defined]
    catalog = Catalog.of(relations)
    seen: set[int] = {r.id for r in catalog if isinstance(r, Stream)}
    for each in catalog.views_in_order():
        assert seen.issuperset(each.depends_on)
        seen.add(each.id)
    assert len(seen) == len(relations)
    sets = catalog.connected_sets()
    assert sorted(id_ for members in sets for id_ in members) == list(range(len(relations)))
    for each in catalog.views_in_order():
        home = next(members for members in sets if each.id in members)
        assert home.issuperset(each.depends_on)
    for relation in catalog:
        direct = {v.id for v in catalog.views_in_order() if relation.id in v.depends_on}
        assert direct <= {v.id for v in catalog.dependants(relation.id)}
