"""Deploying a project's definitions: what differs from a database, and the changes, in order.

The walk of a plan:

1. ``deploying/`` compares files with the database and puts the statements that differ in order
   (``tools/deploying/plan.py``).
2. ``EXPLAIN SCRIPT`` tries them (``interfaces/session/rehearsal.py``): the classes of
   ``interfaces/session/table.py`` run over parts that keep nothing
   (``interfaces/session/tried_parts.py``), a planner in a session of its own, and connectors
   that are asked but create nothing. What fails is known before anything changes, and what each
   statement would cost.
3. ``headrace apply`` runs them (``tools/deploying/applying.py``); past what fails, it goes on
   with all that does not need it (decision 52).
"""
