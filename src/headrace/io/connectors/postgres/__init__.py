"""PostgreSQL: captured tables, followed by transaction, and sinks into tables.

The walk of a captured transaction:

1. ``io/connectors/postgres/source.py`` reads transactions from a replication slot
   (``pgoutput.py`` decodes the messages) and gives the changes of each table as columns
   (``changes.py``, ``access.py``). A new table is first copied in a snapshot (``tables.py``).
2. They are one ``Moment``: parts of several tables. ``lifecycle/inputs/feeding.py`` completes
   parts whose changes leave cells as they were.
3. ``execution/runtime/feeds.py`` lands the moment: one ledger transaction names the segments of
   all tables and stores the position of each. The slot's position is confirmed afterwards. An
   epoch reads all that has arrived of such tables, so it never ends within a transaction.
"""
