"""Checks of a database from outside, beside whoever has it open: nothing is changed."""

from headrace.inspection.findings import Finding, State
from headrace.inspection.inspecting import Inspected, inspect, upgrades

__all__ = ["Finding", "Inspected", "State", "inspect", "upgrades"]
