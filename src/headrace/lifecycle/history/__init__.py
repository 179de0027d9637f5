"""Keeps views equal to their logs: dirty slices, the change classifier, replays, reconciliation.

The walk of a dirty slice:

1. A slice of a view is found to be wrong, or is said to be: ``INVALIDATE`` has its condition
   checked (``lifecycle/history/slices.py``). ``lifecycle/history/slices.py`` writes an entry
   for it, and entries for the views above, in one transaction of the ledger
   (``storage/ledger/dirty.py``).
2. It is published with the next state: answers with rows of the slice say so, and
   ``lifecycle/history/repairing.py`` is woken. It takes the oldest entry
   (``execution/runtime/dirty.py``), marks it as being repaired, and has the slice replayed.
3. The commit of the replay removes the entry and those above. Until then they are in the
   ledger, whatever ends the process (decision 30).

A correction of a stream's events needs none of that: it is a segment of the log
(``lifecycle/history/amending.py``), read by the next epoch as any other. Who reads an event and
its correction together sees only what it is now (``storage/log/amended.py``).

The walk of a replay:

1. ``planning/circuit/slices.py`` moves the slice's conditions from the view's columns down to
   its inputs; ``lifecycle/history/amending.py`` makes one of a time.
2. ``lifecycle/history/replaying.py`` has the view's circuit filled from those rows, beside the
   epochs; few of them in this process (``execution/engine/narrow/reading.py``). Leaves leave
   out what Arrow can tell of a column (``algebra/zset/restriction.py``), and Spark the rest.
3. While the view's set is held, ``execution/runtime/replay.py`` has one job write by what each
   arrangement differs in its slice (``execution/engine/jobs/slice_tasks.py``), steps what is
   above over the view's difference, and commits all of it with the dirty entries that it
   repairs (decision 31).
"""
