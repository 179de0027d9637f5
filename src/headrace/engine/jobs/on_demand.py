"""What a step that runs in this process needs of the JVM, entered before its first call to it."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_this_thread = threading.local()


@contextmanager
def on_demand(*contexts: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Let :func:`needs_spark` enter some contexts, until the block ends.

    Entering them is several calls to the JVM, and most narrow steps make no other.
    """
    with ExitStack() as stack:
        _this_thread.waiting = contexts, stack
        try:
            yield
        finally:
            _this_thread.waiting = None


def needs_spark() -> None:
    """Enter the contexts of :func:`on_demand` on this thread, unless they are entered."""
    waiting = getattr(_this_thread, "waiting", None)
    if waiting is not None:
        _this_thread.waiting = None
        contexts, stack = waiting
        for each in contexts:
            stack.enter_context(each())
