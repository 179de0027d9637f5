"""Rewrites of analysed plans for which Spark's optimiser would return wrong rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.catalyst.kept_structs import with_structs_kept
from headrace.catalyst.limits import with_limits_below
from headrace.catalyst.session_windows import with_sessions_merged

if TYPE_CHECKING:
    from headrace.catalyst.scala import Scala


def corrected(scala: Scala, plan: Any) -> Any:
    """Return an equivalent plan that Spark gets right; the plan itself if nothing changes."""
    plan = with_structs_kept(scala, with_limits_below(scala, plan))
    return with_sessions_merged(scala, plan)
