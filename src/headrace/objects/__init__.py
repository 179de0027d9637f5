"""Stores of objects: where the files of a database are if not on one machine."""

from headrace.objects.address import StoreAddress
from headrace.objects.places import DirectoryPlace, Place, StorePlace
from headrace.objects.store import ObjectStore

__all__ = ["DirectoryPlace", "ObjectStore", "Place", "StoreAddress", "StorePlace"]
