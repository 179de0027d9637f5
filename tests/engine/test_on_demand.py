"""The context of narrow steps: what is entered only if a step calls the JVM."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.execution.engine.jobs.scope import needs_spark, on_demand

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_contexts_are_entered_once_and_by_need_until_the_block_ends() -> None:
    seen: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        seen.append(f"enter {name}")
        try:
            yield
        finally:
            seen.append(f"leave {name}")

    needs_spark()
    with on_demand(lambda: noted("first"), lambda: noted("second")):
        pass
    assert not seen
    with on_demand(lambda: noted("first"), lambda: noted("second")):
        needs_spark()
        needs_spark()
    needs_spark()
    assert seen == ["enter first", "enter second", "leave second", "leave first"]
