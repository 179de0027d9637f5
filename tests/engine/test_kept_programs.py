"""Which programs are kept between steps, and which sets of changed relations share one."""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace.execution.engine.lowering.programs import KeptPrograms, LiveKey
from headrace.types import RelationId

NONE: frozenset[RelationId] = frozenset()
STREAMS = frozenset(map(RelationId, range(20)))
VIEW = RelationId(99)


def key(*changed: int, partitions: int = 2) -> LiveKey:
    return LiveKey(frozenset(map(RelationId, changed)), NONE, partitions, NONE, NONE)


def kept(*keys: LiveKey) -> KeptPrograms:
    programs = KeptPrograms()
    for each in keys:
        programs.get(each, (), partial(program, each))
    return programs


def program(name: object) -> Any:
    return name


def test_a_program_is_built_again_only_if_what_it_is_over_is_another() -> None:
    programs, over, built = KeptPrograms(), (object(), object()), []

    def build() -> Any:
        built.append(len(built))
        return built[-1]

    assert programs.get(key(1), over, build) == 0
    assert programs.get(key(1), tuple(over), build) == 0
    assert programs.get(key(2), over, build) == 1
    assert programs.get(key(1), (over[0], object()), build) == 2
    assert programs.get(key(1), over[:1], build) == 3


def test_programs_that_are_used_are_kept() -> None:
    programs = kept(*(key(i % 20, partitions=i) for i in range(64)))
    programs.get(key(0, partitions=0), (), lambda: program("again"))
    programs.get(key(19), (), lambda: program("another"))
    left = programs.programs()
    assert key(0, partitions=0) in left
    assert key(1, partitions=1) not in left


def test_few_sets_have_programs_of_their_own() -> None:
    programs = kept(*(key(i) for i in range(7)))
    assert programs.covering(key(3), STREAMS) == {3}
    assert programs.covering(key(12), STREAMS) == {12}


def test_many_sets_share_the_program_of_all() -> None:
    programs = kept(*(key(i, i + 1) for i in range(8)))
    every = programs.covering(key(12), STREAMS)
    assert every == {*range(9), 12}
    programs.get(LiveKey(every, NONE, 2, NONE, NONE), (), lambda: program("all"))
    assert programs.covering(key(5, 7), STREAMS) == every
    assert programs.covering(key(5, 6), STREAMS) == {5, 6}, "it has a program of its own"
    assert programs.covering(key(5, 13), STREAMS) == every | {13}


def test_the_narrowest_program_serves() -> None:
    sets = [key(1, 2, 3, 4), key(1, 2, 3), *(key(i) for i in range(6))]
    assert kept(*sets).covering(key(1, 2), STREAMS) == {1, 2, 3}
    assert kept(*sets[1:]).covering(key(1, 2), STREAMS) == {1, 2}


def test_views_whose_time_passes_are_never_added() -> None:
    programs = kept(key(1, VIEW), *(key(i) for i in range(8)))
    assert programs.covering(key(12), STREAMS) == {*range(8), 12}
    assert programs.covering(key(1, 2, VIEW), STREAMS) == {1, 2, VIEW}


def test_other_partitions_are_other_programs() -> None:
    programs = kept(key(1, 2, partitions=4))
    assert programs.covering(key(1), STREAMS) == {1}
