"""Reading views: snapshots, lookups and subscriptions."""
