"""Secrets: references to values that are read at each use, and never stored or shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.planning.sql import SecretSource
from headrace.storage.ledger.named_settings import NamedSettings, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.errors import Span
    from headrace.storage.ledger import Ledger


_SETTING = "secrets"


@dataclass(frozen=True, slots=True)
class Secret:
    """A reference to a value: an environment variable, or a file by its absolute path."""

    name: str
    source: SecretSource
    where: str


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets of one database; ``variable`` reads an environment variable."""

    ledger: Ledger
    variable: Callable[[str], str | None]

    @property
    def _kept(self) -> NamedSettings:
        return NamedSettings(self.ledger, _SETTING)

    def __iter__(self) -> Iterator[Secret]:
        """Yield the secrets by name."""
        for name, (source, where) in self._kept.all().items():
            yield Secret(name, SecretSource(source), where)

    def add(self, secret: Secret) -> None:
        """Add or replace a secret after checking that its value can be read.

        Raises:
            HeadraceError: ``unavailable`` if it cannot be read.
        """
        self._read(secret)
        self._kept.put(secret.name, [secret.source, secret.where])

    def remove(self, name: str) -> None:
        """Remove a secret."""
        self._kept.remove(name)

    def find(self, name: str, span: Span | None = None) -> Secret:
        """Return the secret of a name.

        Raises:
            HeadraceError: ``invalid``, at the span, if it does not exist.
        """
        known = {secret.name: secret for secret in self}
        created = f"CREATE SECRET {name} FROM ENV 'VARIABLE', or FROM FILE 'path'."
        return named("secret", name, known, created, span)

    def value(self, name: str) -> str:
        """Read the value of a secret; a file's line breaks at the end are removed.

        Raises:
            HeadraceError: ``invalid`` if the secret does not exist; ``unavailable`` if it cannot
                be read.
        """
        return self._read(self.find(name))

    def problem(self, secret: Secret) -> str | None:
        """Return why the value of a secret cannot be read; None if it can."""
        try:
            self._read(secret)
        except HeadraceError as error:
            return error.detail
        return None

    def _read(self, secret: Secret) -> str:
        if secret.source is SecretSource.ENV:
            value = self.variable(secret.where)
            if value is None:
                raise _unreadable(secret, f"The variable {secret.where} is not set.")
            return value
        try:
            return Path(secret.where).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise _unreadable(secret, f"File {secret.where}: {reason}.") from error


def _unreadable(secret: Secret, why: str) -> HeadraceError:
    return HeadraceError(
        Code.UNAVAILABLE,
        f'the value of secret "{secret.name}" cannot be read',
        detail=why,
        hint="Make it readable to this process, or CREATE OR REPLACE the secret.",
    )
