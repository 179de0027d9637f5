"""The confidence bound of a random sample: the exact bound of Clopper and Pearson."""

from __future__ import annotations

import math
from typing import Final

CONFIDENCE: Final = 0.95

_HALVINGS: Final = 60
"""The bisections of [0, 1] that make a bound exact to a float's last digit."""


def upper_bound(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the greatest share of failures that is compatible with a random sample.

    It is the one-sided bound of Clopper and Pearson: the share ``p`` for which at most this many
    ``failures`` among the ``trials`` have the probability ``1 - confidence``. If the true share is
    ``p`` or more, so few failures are found with that probability at most. Without failures it is
    ``1 - (1 - confidence) ** (1 / trials)``, about 3 / trials for 95%; without trials it is 1.
    """
    if failures >= trials:
        return 1.0
    low, high = failures / trials, 1.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        if _at_most(failures, trials, share) > 1 - confidence:
            low = share
        else:
            high = share
    return high


def _at_most(failures: int, trials: int, share: float) -> float:
    """Return the probability of at most some failures, if each trial fails with a share."""
    if not 0 < share < 1:
        return float(share <= 0)
    odds = math.log(share) - math.log1p(-share)
    term = trials * math.log1p(-share)
    logs = [term]
    for k in range(1, failures + 1):
        term += odds + math.log(trials - k + 1) - math.log(k)
        logs.append(term)
    greatest = max(logs)
    return math.exp(greatest) * sum(math.exp(each - greatest) for each in logs)
