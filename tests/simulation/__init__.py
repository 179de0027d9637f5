"""A deterministic simulation of one database: epochs, fills, sinks, compaction, and what goes wrong.

One integer is one history (``histories.py``): steps (``rules.py``) on a world (``world.py``) of
processes, machines, a store of objects and a ledger's server. At each *point* that a process
reaches (``points.py``) it may crash, be answered by an error, or be overtaken by another process. After each step
the database is compared with a model in plain Python. There is no thread, no network and no JVM, so a history takes
milliseconds, and is repeated exactly by its seed.
"""
