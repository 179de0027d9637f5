"""Epochs: planning, running and committing them; backfill, compaction and deliveries.

The walk of an epoch:

1. Poll (``execution/runtime/connected.py``). The changes since the last epoch are fixed as an
   offset range per relation (``execution/runtime/connected.py``), together with the clock: the
   value of ``now()``, and the views in which rows are due by then
   (``execution/runtime/connected.py``).
2. Plan. Changes are made into a ``Step`` as data: the segments to read, and the runs of each
   arrangement. ``execution/runtime/attempt.py`` says how wide it is. Up to ``small_rows``
   changes are one narrow step. A connected set of views with more has a wide step of its own,
   on a thread beside the epochs of other sets (``execution/runtime/beside.py``), as have narrow
   steps that took long or have failed; where no epochs are made in the background, it is a part
   of the epoch.
3. Step (``engine/``). A narrow step runs in this process (decision 41): see below. A wide one
   is a Spark job, built once (``lowering/programs.py``), that runs in *stages* (decision 42): a
   Python task (``wide/nodes.py``) reads what the step names or what was sent to it, evaluates
   expressions over Arrow columns, steps operators against memory-mapped spines, writes runs,
   and sends rows to the partition that owns their hash. Where an expression or a node needs
   Spark, Spark evaluates everything between operators, and each operator is a task
   (``jobs/worker.py``). Spark returns a report of each task to the driver, which counts them
   and sees every file that they name (``jobs/reports.py``). If a recursion has changed, the
   step is run again, in rounds, until none changes (``execution/runtime/rounds.py``).
4. Commit (``storage/ledger/commit.py``). One transaction moves offsets, runs and counters, if
   the previous epoch and the fence are still the ones that the step began with; of a step
   beside epochs, if nothing of its set has changed since. Before it, the packs of the attempt's
   runs and their directory are synced: one pack of a narrow step, one for each task of a wide
   one. The ledger does not name the files of a failed attempt.
5. Publish. The new state is swapped in, and waiting threads are woken. Compaction merges runs
   concurrently, and never changes what an epoch contains.
6. Deliver (``execution/runtime/deliveries.py``, from where
   ``execution/runtime/delivery_position.py`` says that it stands). Each sink gets the delta of
   every epoch, in parts and at its own pace, and its position is stored after each; the epochs
   that it has not read yet stay readable. A target without transactions, such as
   ``connectors/redis/``, ``cassandra/`` or ``dynamodb/``, orders what arrives late by itself:
   by a session, a timestamp or the epoch stored with each item; ``io/connectors/stores.py``
   drives them all. One with them records the epoch in the commit of its changes:
   ``kafka/transactions.py`` an offset, ``lake/delta.py`` and ``lake/iceberg.py`` in the table's
   log, on this machine or in S3 (``s3.py``, ``lake/iceberg_catalogues.py``),
   ``files/s3_sink.py`` in an object's metadata.

The step is checked against the keys that views declare (``execution/runtime/step.py``): the
keys of inserted rows are looked up in the contents before it
(``algebra/operators/contents.py``). Keys that follow from a query
(``planning/circuit/keys.py``, from what ``planning/catalyst/implied.py`` finds in expressions)
are not checked.

If the query of a view fails on rows and the view quarantines them
(``execution/runtime/isolating.py``), trials of its step find which, and the epoch is made
without them: they pass through ``algebra/operators/quarantine.py`` between the relation and the
view, and are its state (decision 34).

Recovery is reading the ledger: there is nothing to replay. Files that it does not name are
deleted when the database is opened.

What an epoch does with its time is measured where it is done (``execution/runtime/spent.py``),
and what its operators did is added up by operator (``execution/runtime/spent.py``); both are
counters of its record, which ``SHOW EPOCHS``, the console and the metrics show.
"""
