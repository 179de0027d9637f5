"""What the runtime lets a user choose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """Limits of epochs and of history.

    ``epoch_rows`` is about how many changes one epoch reads: a longer backlog takes more epochs,
    but what one statement wrote is never split.
    ``history_epochs`` is how many epochs back a view or table can still be read.
    ``small_rows`` is up to how many changes an epoch is stepped in one task, and up to how many
    rows a view is filled in one: below that, starting tasks costs more than a second core brings.
    ``attempts`` is how often a step is tried before its failure counts. ``recursion_rows`` is by
    how many rows the recursions of one set of views may change in an epoch, all rounds together:
    it ends what multiplies without end.
    """

    epoch_rows: int = 1_000_000
    small_rows: int = 20_000
    fill_rows: int = 1_000_000
    history_epochs: int = 256
    attempts: int = 3
    recursion_rows: int = 4_000_000
