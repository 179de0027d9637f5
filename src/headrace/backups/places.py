"""Where backups are: a directory, or an object store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.objects import DirectoryPlace, ObjectStore, StoreAddress, StorePlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.objects import Place


def place_at(url: str, environment: Mapping[str, str]) -> Place:
    """Return the place at a path, a ``file://`` URL or the URL of an object store.

    ``environment`` may have the credentials of a store. Nothing is read or written.

    Raises:
        HeadraceError: ``invalid`` for a URL that names no place.
    """
    if StoreAddress.is_store(url):
        return StorePlace(ObjectStore.at(StoreAddress.of(url).completed(environment)))
    parts = urlsplit(url) if url.startswith("file:") else None
    path = url if parts is None else unquote(parts.path)
    if not path or (parts is not None and parts.netloc not in ("", "localhost")):
        raise HeadraceError(
            Code.INVALID,
            f'"{url}" names no place of backups',
            hint="Give a directory, a file:// URL, or s3://bucket/prefix, gs:// or az://.",
        )
    return DirectoryPlace(Path(path).absolute())


def missing_file(place: Place, name: str) -> HeadraceError:
    """Return the error for a file of a backup that does not exist."""
    return HeadraceError(
        Code.CORRUPT,
        f'file "{name}" of a backup is missing',
        f'It should be in "{place.url}".',
        f"Restore another backup. {BACKUPS}",
    )
