"""A plugin: logs are merged after each epoch, so that tests read merged segments all the time.

For instance ``python -m pytest -p merged_logs tests/views tests/e2e``. Databases in the background
merge two landings as soon as they would look at hundreds. Tests that count what an epoch asks of an
object store are not for it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.execution.runtime import pump as pumps
from headrace.execution.runtime.epoch import EpochLoop

if TYPE_CHECKING:
    import pytest

    from headrace.execution.runtime.pump import Pump

_TAIL = 2
_done: Counter[str] = Counter()
_pumps: dict[int, Pump] = {}


def pytest_configure() -> None:
    """Have each loop merge after its epochs."""
    begun, advance = pumps.Pump.__post_init__, EpochLoop.advance

    def created(self: Pump) -> None:
        begun(self)
        _pumps[id(self.loop)] = self

    def advanced(self: EpochLoop, **how: Any) -> Any:
        epoch = advance(self, **how)
        pump = _pumps.get(id(self))
        if epoch is not None and pump is not None and pump.loop is self and not pump.running:
            _done["epochs"] += 1
            _done["segments"] += pump.compaction.merge_logs(_TAIL)
        return epoch

    pumps.Pump.__post_init__, EpochLoop.advance = created, advanced
    pumps.TAIL_SEGMENTS = pumps.RESTING_SEGMENTS = _TAIL


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many segments were merged: none would prove nothing."""
    counts = f"{_done['segments']} segments merged after {_done['epochs']} epochs"
    terminalreporter.write_line(counts)
