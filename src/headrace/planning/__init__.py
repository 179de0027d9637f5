"""From text to a program: the catalog, SQL and its dialects, Spark's planner, circuits.

The life of a query:

1. ``sql/`` splits the text and reads the statement; the query inside stays text. Before Spark
   reads a query, forms of other dialects (``dialects/``) and ``FOR SYSTEM_TIME AS OF``, which
   Spark lacks (``planning/dialects/table_versions.py``), are rewritten on tokens to plain Spark
   SQL (``planning/dialects/translate.py``); errors point at the original text.
2. ``planning/catalyst/planner.py`` parses it with Spark, checks every node and function against
   an allow-list, then lets Spark resolve and optimise it over placeholder relations with the
   declared schemas.
3. A view: ``planning/catalyst/read.py`` converts the optimised plan to Headrace's own (``NOT
   IN`` and scalar subqueries become joins in ``planning/catalyst/rewrite.py``,
   ``planning/catalyst/subqueries.py`` and ``planning/catalyst/subqueries.py``; as-of joins
   become plain joins in ``planning/catalyst/asof.py``, calls of Python functions become
   projections in ``planning/catalyst/python.py``; forms for which Spark's planner fails or
   returns wrong rows are rewritten first (decision 15); equal parts become one in
   ``planning/catalyst/recursion.py``). The nodes of that plan (``planning/catalyst/plan.py``)
   answer what passes over it ask: their inputs, expressions and parameters
   (``planning/catalyst/node.py``). ``planning/circuit/differentiate.py`` makes stateful nodes
   operators with arrangements, ``execution/engine/lowering/programs.py`` transplants the
   resolved expressions onto deltas. Then it is filled, as above. The tie-break of rows that are
   equal in ``ORDER BY`` is added when the query is analysed (``planning/catalyst/ties.py``),
   for views, reads and ``VERIFY`` alike.
4. A SELECT: see above.
5. VERIFY (``interfaces/statements/checking/verifications.py``,
   ``lifecycle/history/comparing.py``): ``execution/engine/verifying/history.py``, in a session
   of its own, rebuilds tables from their logs by Spark SQL, runs the texts of all views over
   them, two in a job, and compares bags (``execution/engine/verifying/comparisons.py``). It
   shares no code with the operators.
6. Reconciliation (``lifecycle/history/reconciler.py``) compares samples in the background, by
   the same queries with a condition on a salted hash of the key
   (``lifecycle/history/comparing.py``). What differs becomes evidence and a dirty slice in one
   transaction, is repaired as any dirty slice is, and compared again (decision 32).
"""
