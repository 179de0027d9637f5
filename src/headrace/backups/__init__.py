"""Backups: consistent copies of a database at another place, and databases restored from them."""

from headrace.backups.backing_up import BackedUp, Backups
from headrace.backups.manifest import Manifest
from headrace.backups.places import place_at
from headrace.backups.repository import Repository
from headrace.backups.restoring import Restored, Target, restore

__all__ = [
    "BackedUp",
    "Backups",
    "Manifest",
    "Repository",
    "Restored",
    "Target",
    "place_at",
    "restore",
]
