"""What an object store costs: S3 Standard in us-east-1, as of November 2026, in USD."""

from __future__ import annotations

PUT, GET, GIGABYTE_MONTH = 0.005 / 1000, 0.0004 / 1000, 0.023
"""A request that writes or lists, one that reads, and a GB kept for a month; deleting is free."""
MONTH_SECONDS = 30 * 24 * 3600
