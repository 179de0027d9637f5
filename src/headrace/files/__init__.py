"""Data directories: their paths, and the lock of the process that has one open.

Stores of objects: where the files of a database are if not on one machine.
"""

from headrace.files.store import DirectoryPlace, ObjectStore, Place, StoreAddress, StorePlace

__all__ = ["DirectoryPlace", "ObjectStore", "Place", "StoreAddress", "StorePlace"]
