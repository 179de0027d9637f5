"""Definitions: made, altered, filled, swapped, and dropped.

The walk of a fill:

1. ``interfaces/statements/defining/views.py`` plans the view and asks the ``Definer`` to create
   it. ``Engine.begin_fill`` keeps its circuit aside: no epoch steps it
   (``lifecycle/definitions/filling.py``).
2. ``execution/runtime/fill.py`` reads the contents of the inputs in one published state, in
   parts, into runs that the ledger does not name. They belong to an *attempt*
   (``execution/runtime/attempt.py``), as those of an epoch, a refresh or a replay do: it
   removes them unless a commit is begun. A part is stepped in this process if all that the view
   does is vectorised here (``execution/engine/narrow/reach.py``), by the part that epochs step
   it by afterwards; else as a job. In place of inputs, it reads state that other views keep,
   where these compute the same below an operator (``planning/circuit/reuse.py``,
   ``execution/runtime/fill_parts.py``, decision 57).
3. It catches up with the epochs made meanwhile, by their delta runs and the new part of each
   log, until few changes are left.
4. It holds the sets that the view is or will be part of, reads those, and one commit publishes
   the view, its contents and the offsets (``execution/runtime/builds.py``; decision 19).

``CREATE OR REPLACE`` of a view fills another *build* of it in the same way. In the last step
its operators' state takes the place of the former build's, and the view's contents change by
the difference, which everything above follows in the same epoch: a *swap*
(``execution/runtime/builds.py``), as a refresh, a replay and a repair are (decision 20).
"""
