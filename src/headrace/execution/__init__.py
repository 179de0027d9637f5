"""Programs are run: as epochs, as fills and replays, and as reads of what is published.

The walk of a refresh:

1. A view with ``refresh = 'every 1 hour'`` or ``'manual'`` lags behind: its build has a
   frontier of its own, and epochs leave its circuit out. ``execution/runtime/refreshing.py``
   finds which views are due, or ``interfaces/statements/refreshing.py`` which are named.
2. ``execution/runtime/refresh.py`` groups them by what they have to read between where they
   stand and the published state, and steps each group's circuits over it: parts of logs, and
   the delta runs of tables and views.
3. It holds the views' sets and reads the rest. What is maintained above follows the views'
   deltas, and one commit moves contents and frontiers. Views that read others of the refresh
   through maintained ones are committed after these, by level, with the sets still held
   (decision 29).
"""
