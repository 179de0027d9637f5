"""What all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Deterministic, so that a red build is red again; no deadline, for machines that are shared.
settings.register_profile(
    "laws",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", parent=settings.get_profile("laws"), max_examples=2000)
settings.load_profile("laws")
