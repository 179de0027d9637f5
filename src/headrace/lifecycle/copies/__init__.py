"""Copies of a database: backups, branches, and checks from outside.

The walk of a backup:

1. ``interfaces/statements/copies.py`` asks ``Backups`` (``lifecycle/copies/backups.py``).
   Compaction holds files back (``execution/runtime/log_merging.py``), and the ledger is copied
   (``storage/ledger/copies.py``).
2. The copy says which files it needs (``NamedFiles.needed``), and which parts of them with
   which checksums. Those that the place lacks are copied and checked
   (``lifecycle/copies/repository.py``), then the copy of the ledger, then the manifest, which
   makes it a backup (``lifecycle/copies/repository.py``).
3. ``headrace restore`` (``lifecycle/copies/backups.py``) writes the files, then the ledger;
   until that is done, ``restoring.json`` keeps the target from being opened (decision 45).

The walk of a branch:

1. ``interfaces/statements/copies.py`` asks ``Branches`` (``lifecycle/copies/branching.py``).
   Files are held as for a backup, and the ledger is copied.
2. ``storage/ledger/rewinding.py`` takes the copy back to the epoch;
   ``lifecycle/copies/branching.py`` leaves out sinks and sources. Views without a state of
   their operators are marked as waiting.
3. ``lifecycle/copies/branch_places.py`` links the files that the copy names into a directory
   among the attempts, and renames that; ``lifecycle/copies/branch_places.py`` records them in
   the ledger of the parent, and writes the copy into a schema of its own. From there on it is a
   database as any other (decision 54).
4. When it is opened, ``lifecycle/definitions/waiting.py`` fills these views again.
"""
