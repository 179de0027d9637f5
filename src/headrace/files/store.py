"""A store of immutable objects: S3 and its like, Google Cloud Storage, Azure, or a directory.

Names are never reused, so nothing is written twice, compared or renamed, and no listing is needed
to read: the ledger names what exists.

Where a store is: its URL and the options of the client, as values that other processes get.

Places of files by name: a directory of this machine, or an object store.
"""

from __future__ import annotations

import os
import re
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol
from urllib.parse import parse_qsl
from uuid import uuid4

from headrace.errors import Code, HeadraceError, not_written

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence


_SCHEMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "file": "file",
    "memory": "memory",
}
_URL: Final = re.compile(
    r"(?P<scheme>[a-z0-9]+)://(?P<place>[^/?#]*)(?P<prefix>/[^?#]*)?(\?(?P<query>[^#]*))?"
)
BRANCHES: Final = "branches"
"""The folder of the branches of a database."""
_BRANCH: Final = re.compile(rf"(?P<origin>.+)/{BRANCHES}/[a-z0-9][a-z0-9_-]*")
_OPTIONS: Final = frozenset(
    {"region", "endpoint", "virtual_hosted_style_request", "skip_signature", "account_name"}
)
"""Options that a URL may have. Credentials have no place there: URLs are shown."""

_VARIABLES: Final = {
    "s3": {
        "AWS_ACCESS_KEY_ID": "access_key_id",
        "AWS_SECRET_ACCESS_KEY": "secret_access_key",
        "AWS_SESSION_TOKEN": "session_token",
        "AWS_DEFAULT_REGION": "region",
        "AWS_REGION": "region",
        "AWS_ENDPOINT_URL": "endpoint",
        "AWS_ENDPOINT_URL_S3": "endpoint",
    },
    "gs": {
        "GOOGLE_SERVICE_ACCOUNT": "service_account",
        "GOOGLE_SERVICE_ACCOUNT_KEY": "service_account_key",
    },
    "az": {
        "AZURE_STORAGE_ACCOUNT_NAME": "account_name",
        "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
        "AZURE_STORAGE_SAS_KEY": "sas_key",
    },
}
"""The variables that say how a store is reached, and the options that they are; later ones win."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store: ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``.

    ``options`` are those of the client, such as a region and an endpoint, which the URL may have as
    well: ``s3://bucket/prefix?region=eu-west-1``. What is missing, as credentials mostly are, is
    found in the environment and, in a cloud, from the machine's role.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, url: str, options: Mapping[str, str] | None = None) -> StoreAddress:
        """Return the address of a store.

        Raises:
            HeadraceError: ``invalid`` for a URL that names no store.
        """
        found = _URL.fullmatch(url)
        if found is None or found["scheme"] not in _SCHEMES:
            raise HeadraceError(
                Code.INVALID,
                f'"{url}" is not the URL of an object store',
                hint='Write "s3://bucket/prefix", "gs://bucket/prefix" or "az://container/prefix".',
            )
        scheme = _SCHEMES[found["scheme"]]
        if scheme not in ("file", "memory") and not found["place"]:
            raise HeadraceError(
                Code.INVALID,
                f'URL "{url}" of an object store names no bucket',
                hint=f'Write "{scheme}://bucket/prefix".',
            )
        chosen = dict(parse_qsl(found["query"] or "", keep_blank_values=True))
        for name in chosen.keys() - _OPTIONS:
            raise HeadraceError(
                Code.INVALID,
                f'URL of an object store cannot have the option "{name}"',
                f"It can have: {', '.join(sorted(_OPTIONS))}.",
                "Credentials come from the environment, such as AWS_ACCESS_KEY_ID, or from the"
                " machine's role.",
            )
        prefix = (found["prefix"] or "").rstrip("/")
        return cls(f"{scheme}://{found['place']}{prefix}", {**chosen, **(options or {})})

    @staticmethod
    def branch_url(url: str, name: str) -> str:
        """Return the URL of the store of a branch of the database whose store has a URL."""
        place, options, rest = url.partition("?")
        return f"{place.rstrip('/')}/{BRANCHES}/{name}{options}{rest}"

    @property
    def origin(self) -> StoreAddress | None:
        """The store of the database that this is a branch of; None if it is no branch's."""
        found = _BRANCH.fullmatch(self.url)
        return None if found is None else replace(self, url=found["origin"])

    def completed(self, environment: Mapping[str, str]) -> StoreAddress:
        """Return the address with what variables say of it: processes may have other variables.

        Options that the address has already stay.
        """
        known = _VARIABLES.get(self.url.partition(":")[0], {})
        found = {
            option: environment[name] for name, option in known.items() if environment.get(name)
        }
        return replace(self, options={**found, **self.options})

    @staticmethod
    def is_store(target: str) -> bool:
        """Return whether a text is the URL of an object store, and not of a file or a server."""
        scheme, found, _ = target.partition("://")
        return bool(found) and _SCHEMES.get(scheme, "file") != "file"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads. It has the credentials."""
        return {"url": self.url, "options": dict(self.options)}

    @classmethod
    def of_json(cls, value: Any) -> StoreAddress:
        """Return the address that :meth:`to_json` wrote."""
        return cls(value["url"], value["options"])


_DELETED_AT_ONCE: Final = 1_000
"""The most objects of one request to S3 that deletes some."""
_TIMES: Final = {"timeout": "30s", "connect_timeout": "5s"}
_RETRIES: Final[dict[str, Any]] = {"max_retries": 4}
"""Requests that a store answers with a failure of its own are sent again for a few seconds."""
_PIECE: Final = 16 << 20
"""The bytes of one part of a large object: S3 allows 10,000 of them."""
_PARTS: Final = 2
"""How many parts of a large object are sent at once."""
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
DRAFT: Final = ".part"
"""The end of the names of files that are being fetched."""


@dataclass(slots=True)
class Requests:
    """How many requests have been sent, and the bytes of objects sent and received."""

    puts: int = 0
    gets: int = 0
    deletes: int = 0
    lists: int = 0
    bytes_put: int = 0
    bytes_got: int = 0


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A store at an address. Thread-safe.

    What the store of a branch lacks is read from its ``origin``. All methods raise ``unavailable``
    while the store does not answer, and ``invalid`` for a bucket that does not exist and for
    credentials that it refuses.
    """

    address: StoreAddress
    requests: Requests = field(default_factory=Requests)
    _client: Any = field(default=None, repr=False)
    origin: ObjectStore | None = field(default=None, repr=False)

    @classmethod
    def at(cls, address: StoreAddress) -> ObjectStore:
        """Return the store at an address; no request is sent.

        Raises:
            HeadraceError: ``invalid`` if the client's library is not installed, or an option does
                not exist.
        """
        try:
            from obstore import store as stores  # noqa: PLC0415  (an extra)
            from obstore.exceptions import BaseError  # noqa: PLC0415
        except ImportError as error:
            raise HeadraceError(
                Code.INVALID,
                "client for object stores is not installed",
                f"{error}.",
                'Install it: pip install "headrace[objects]".',
            ) from error
        options: dict[str, Any] = {}
        if address.url.startswith("file:"):
            options["mkdir"] = True
        elif not address.url.startswith("memory:"):
            options = {"client_options": dict(_TIMES), "retry_config": _RETRIES}
            if address.options.get("endpoint", "").startswith("http://"):
                options["client_options"]["allow_http"] = True
        try:
            make: Any = stores.from_url
            client = make(address.url, **options, **address.options)
        except (BaseError, ValueError) as error:
            raise HeadraceError(
                Code.INVALID, f'object store "{address.url}" cannot be used', f"{_first(error)}"
            ) from error
        origin = None if address.origin is None else cls.at(address.origin)
        return cls(address, _client=client, origin=origin)

    def put(self, name: str, file: Path | bytes) -> None:
        """Store a file as an object: when this returns, it is durable and all machines see it."""
        size = len(file) if isinstance(file, bytes) else file.stat().st_size
        with self._translated(f'object "{name}" could not be stored'):
            self._client.put(name, file)
        self.requests.puts += 1
        self.requests.bytes_put += size

    def put_pieces(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store pieces of bytes, in order, as an object: whole, or not at all.

        Raises:
            Exception: what ``pieces`` raises.
        """
        from obstore import open_writer  # noqa: PLC0415

        size = 0
        with self._translated(f'object "{name}" could not be stored'):
            # Given an iterator, the client would call it where no other store can be asked.
            writer = open_writer(self._client, name, buffer_size=_PIECE, max_concurrency=_PARTS)
            for piece in pieces:
                size += writer.write(piece)
            writer.close()  # only now there is an object
        self.requests.puts += 1
        self.requests.bytes_put += size

    def pieces(self, name: str) -> Generator[bytes]:
        """Yield the bytes of an object, in order; of one that only the origin has, those.

        Raises:
            FileNotFoundError: there is no such object.
        """
        with self._translated(f'object "{name}" could not be read'):
            try:
                found = self._client.get(name)
            except FileNotFoundError:
                if self.origin is None:
                    raise
                found = None
            for piece in () if found is None else found.stream():
                self.requests.bytes_got += len(piece)
                yield bytes(piece)
        self.requests.gets += 1
        if found is None and self.origin is not None:
            yield from self.origin.pieces(name)

    def fetch(self, name: str, file: Path) -> None:
        """Make an object a file: whole, or not at all.

        Raises:
            FileNotFoundError: there is no such object.
            OSError: the file cannot be written.
        """
        with closing(self.pieces(name)) as pieces:
            write_whole(file, pieces)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that do not exist are no failure."""
        left = list(names)
        for at in range(0, len(left), _DELETED_AT_ONCE):
            some: Sequence[str] = left[at : at + _DELETED_AT_ONCE]
            with self._translated("objects could not be deleted"):
                try:
                    self._client.delete(some)
                except FileNotFoundError:  # a directory says so, and stops there
                    for name in some:
                        with suppress(FileNotFoundError):
                            self._client.delete(name)
            self.requests.deletes += 1

    def names(self, prefix: str = "", after: str = "") -> Iterator[tuple[str, int]]:
        """Yield the names below a prefix that ends with a slash, and their sizes in bytes.

        With ``after``, only greater names; nearly all stores yield them in order.
        """
        with self._translated("objects could not be listed"):
            for page in self._client.list(prefix or None, offset=after or None):
                self.requests.lists += 1
                for each in page:
                    yield each["path"], each["size"]

    @contextmanager
    def _translated(self, primary: str) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            yield
        except FileNotFoundError as error:
            if not any(sign in str(error) for sign in _NO_BUCKET):
                raise
            raise HeadraceError(
                Code.INVALID,
                f"{primary}: there is no such bucket",
                f'Store "{self.address.url}" says: {_first(error)}',
                "Create the bucket, or correct its name, the region or the endpoint.",
            ) from error
        except BaseError as error:
            self._refuse(primary, error)

    def _refuse(self, primary: str, error: Exception) -> NoReturn:
        from obstore import exceptions  # noqa: PLC0415

        denied = isinstance(
            error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError
        )
        code = Code.INVALID if denied else Code.UNAVAILABLE
        raise HeadraceError(
            code,
            f"{primary}: {'access was denied' if denied else 'the store did not answer'}",
            f'Store "{self.address.url}" says: {_first(error)}',
            "Correct the credentials, or what they are allowed to do."
            if denied
            else "Nothing is lost: it is tried again.",
        ) from error


def write_whole(file: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file, which may exist: whole, or not at all; it is not synced."""
    draft = file.with_name(f"{file.name}.{uuid4().hex}{DRAFT}")
    try:
        with draft.open("xb") as written:
            for piece in pieces:
                written.write(piece)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _first(error: Exception) -> str:
    """Return the first line of a message of the client; the others are its own structures."""
    text = str(error).strip().partition("\n")[0].strip()
    return text if text.endswith(".") else f"{text}."


PIECE_BYTES: Final = 4 << 20
"""The most bytes that are read from a file at once."""
_DRAFT: Final = ".part"


class Place(Protocol):
    """Files by name, with ``/`` between the parts of names. Thread-safe.

    All methods raise ``unavailable`` if the place does not answer or is full.
    """

    @property
    def url(self) -> str:
        """The URL or path, for messages: without credentials."""
        ...

    def names(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield the names of the files below a folder, and their sizes in bytes."""
        ...

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store a file: whole, or not at all; it is durable after :meth:`sync`."""
        ...

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Raises:
            FileNotFoundError: there is no such file.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that do not exist are no failure."""
        ...

    def sync(self) -> None:
        """Make what was put so far durable."""
        ...


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """A directory of this machine, created with the first file."""

    path: Path
    _changed: set[Path] = field(default_factory=set)
    """The directories with new names that are not synced."""

    @property
    def url(self) -> str:
        """The path."""
        return str(self.path)

    def names(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield the names of the files below a folder, and their sizes in bytes."""
        root = self.path / folder
        try:
            for directory, _, files in os.walk(root, onerror=_raise_unless_missing):
                for path in (Path(directory) / file for file in files):
                    yield path.relative_to(self.path).as_posix(), path.stat().st_size
        except OSError as error:
            raise _not_read(root, error) from error

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store a file: whole, or not at all; it is durable after :meth:`sync`."""
        path = self.path / name
        draft = path.with_name(f".{path.name}.{uuid4().hex}{_DRAFT}")
        try:
            missing = [each for each in (path.parent, *path.parent.parents) if not each.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with draft.open("xb") as file:
                    for piece in pieces:
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise not_written(f'file "{path}"', error) from error
        self._changed.update([path.parent, *(each.parent for each in missing)])

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Raises:
            FileNotFoundError: there is no such file.
        """
        path = self.path / name
        try:
            with path.open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _not_read(path, error) from error

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that do not exist are no failure."""
        for path in (self.path / name for name in names):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise not_written(f'file "{path}"', error) from error

    def sync(self) -> None:
        """Make the names of files durable; their bytes are already."""
        for directory in sorted(self._changed):
            try:
                descriptor = os.open(directory, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise not_written(f'directory "{directory}"', error) from error
            self._changed.discard(directory)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """An object store, below the prefix of its URL."""

    store: ObjectStore

    @property
    def url(self) -> str:
        """The URL."""
        return self.store.address.url

    def names(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield the names of the objects below a folder, and their sizes in bytes."""
        return self.store.names(f"{folder}/" if folder else "")

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store an object: whole, or not at all."""
        self.store.put_pieces(name, pieces)

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of an object.

        Raises:
            FileNotFoundError: there is no such object.
        """
        return self.store.pieces(name)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that do not exist are no failure."""
        self.store.delete(names)

    def sync(self) -> None:
        """Do nothing: an object is durable when it was put."""


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _not_read(path: Path, error: OSError) -> HeadraceError:
    return HeadraceError(
        Code.UNAVAILABLE,
        f'"{path}" could not be read',
        f"{error.strerror or error}.",
        "Try again once the cause is gone.",
    )
