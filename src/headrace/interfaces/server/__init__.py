"""The HTTP server of one open database.

The walk of a request:

1. With readers, ``interfaces/server/reader_process.py`` accepts the connection: it answers a
   row by key, and passes all else on. ``interfaces/server/remote_reader.py`` does the same on
   another machine: its states come from the ledger (``lifecycle/states/following.py``), which
   ``lifecycle/states/following.py`` follows. ``interfaces/server/listener.py`` refuses what
   another site's page has made a browser send; ``interfaces/server/routes.py`` has all routes,
   each with the least role that it needs, its handler, and what the description says of it; a
   handler's fields are the parts that it uses. ``interfaces/server/entrance.py`` finds out who
   asks: a *principal* (``lifecycle/states/access.py``), which the session of the request has.
   What each class of statements needs is in the same table, and is checked before a statement
   runs (``interfaces/session/dispatch.py``). A row by key is read before routes are tried, on
   the loop's own thread (``interfaces/server/lookups.py``), by
   ``execution/serving/contents.py`` in the published state (decision 26).
2. ``interfaces/server/running.py`` runs the request's call on one of a limited number of
   threads, in a session of ``interfaces/server/running.py``, and cancels it by its timeout or
   when the client leaves.
3. ``interfaces/server/requests.py`` writes the result in the format that is accepted, or
   ``interfaces/server/statements.py`` as events, with progress before it, which is what
   ``remote/`` asks for (decision 23). A follower's events come from
   ``interfaces/server/subscriptions.py``, which reads each view once for all who follow it
   (decision 22).

The console (``server/console/``, plain modules of JavaScript without a build) asks only what
every client can: ``interfaces/server/catalog.py`` reads the published state,
``interfaces/server/status.py`` looks at the database once a second for all who listen (decision
27).
"""
