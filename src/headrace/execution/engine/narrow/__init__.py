"""Runs the plans of programs in this process, since a job costs more than processing few rows.

The walk of one inserted row through an epoch:

1. The pump (``execution/runtime/pump.py``) is woken by the append and calls
   ``EpochLoop.advance``. ``poll`` finds one change of one table; ``Widths.of`` says ``NARROW``.
2. ``Engine.plan_live`` puts the step together from *parts*: ``StepParts.of_table`` and, for
   each view above, ``StepParts.of_view`` (``execution/engine/narrow/parts.py``). A part is
   built once, from the plan that Spark would run, by ``node_of`` in ``narrow/reading.py``.
   Nothing is analysed or built after that.
3. ``Engine.run_live`` calls ``run_parts``, inputs first. ``StepPart.is_idle`` skips what cannot
   change. Else ``RowsNode.rows`` (``narrow/nodes.py``) asks for the rows of the nodes below it:
   a ``DeltaLeaf`` takes columns of the relation's delta (``Deltas.read``), which is read from
   the log once, or was computed by the part below; ``Projected`` and ``Filtered`` evaluate
   their expressions (``narrow/evaluated.py``): over Arrow columns where that is proved
   (``catalyst/vectors``, decision 39), and else by Catalyst in one crossing to the JVM; a
   ``Task`` calls the ``OperatorTask`` that a worker would call (``jobs/worker.py``): it looks
   up what it needs in its spines, steps its operator, and writes runs by ``write_run_of``
   (``jobs/reports.py``) into the one pack of the step; ``Windowed`` and ``Aggregated`` compute
   windows, and aggregates of touched groups, over sorted rows (``narrow/frames.py``), if their
   functions are in the allow-list of ``narrow/calls.py``; a ``JobNode`` is a Spark job over the
   rows below it, for what only Spark's operators do, such as percentiles; those of all parts
   that wait for no other run as one job (``narrow/parts.py``).
4. ``Deltas.add`` keeps the part's delta for the views above: a chain of views is one pass in
   memory. If a node has more than 500,000 rows, ``MoreRowsError`` ends the step, its pack is
   removed, and ``EpochLoop.run_step`` runs it again as jobs.
5. The pack is synced once, when ``in_this_process`` ends. ``EpochLoop`` commits, publishes, and
   wakes who waits for the row.
"""
