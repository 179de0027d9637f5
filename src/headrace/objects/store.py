"""A store of immutable objects: S3 and its like, Google Cloud Storage, Azure, or a directory.

Names are never reused, so nothing is written twice, compared or renamed, and no listing is needed
to read: the ledger names what exists.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import uuid4

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from headrace.objects.address import StoreAddress

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
