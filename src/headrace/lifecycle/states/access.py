"""Access tokens, the roles granted to them, and the principal of a request.

Only the SHA-256 of a token's secret is stored. That is enough: slow hashes protect secrets that
people choose and others can guess, and these are 256 random bits.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.planning.catalog.naming import HIDDEN, SYSTEM_SCHEMA, schema_of
from headrace.planning.sql import Role
from headrace.storage.ledger.named_settings import NamedSettings, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.errors import Span
    from headrace.storage.ledger import Ledger


_TOKENS: Final = "tokens"
"""The ledger's setting that stores the tokens."""
_PREFIX: Final = "hrt_"
"""The prefix of every secret, by which leaked ones can be recognised."""
_SECRET_BYTES: Final = 32
_MOST_TOKENS: Final = 1000
DATABASE: Final = ""
"""Denotes the whole database, in place of a schema's name."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token: the hash of its secret, its times in Unix seconds, and its roles by schema.

    Roles in the whole database have the key :data:`DATABASE`.
    """

    name: str
    hash: str
    created: float
    expires: float | None = None
    roles: Mapping[str, frozenset[Role]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, stored: Any) -> AccessToken:
        """Return the token that :meth:`to_json` wrote."""
        roles = {place: frozenset(map(Role, each)) for place, each in stored["roles"].items()}
        return cls(name, stored["hash"], stored["created"], stored["expires"], roles)

    def to_json(self) -> dict[str, Any]:
        """Return the token without its name, as it is stored."""
        roles = {place: sorted(each) for place, each in self.roles.items()}
        times = {"created": self.created, "expires": self.expires}
        return {"hash": self.hash, **times, "roles": roles}

    def role_in(self, schema: str) -> Role | None:
        """Return the greatest role in a schema, or in :data:`DATABASE`; None if it has none."""
        mine = self.roles.get(schema, frozenset()) | self.roles.get(DATABASE, frozenset())
        return max(mine, key=list(Role).index, default=None)


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of an access token or, without a name, whoever opened the data directory.

    ``token`` returns the current token; None if it has been dropped or has expired.
    """

    name: str | None = None
    token: Callable[[], AccessToken | None] = lambda: None

    def may(self, role: Role, schema: str = DATABASE) -> bool:
        """Whether the principal has at least a role in a schema, or in the whole database."""
        mine = self.role_in(schema)
        return mine is not None and mine.includes(role)

    def role_in(self, schema: str = DATABASE) -> Role | None:
        """Return the greatest current role in a schema, or in the whole database."""
        if self.name is None:
            return Role.OWNER
        token = self.token()
        return None if token is None else token.role_in(schema)

    def sees(self, name: str) -> bool:
        """Whether the principal may know of and read the relation of a dotted name."""
        if self.name is None:
            return True
        schema = schema_of(name)
        return schema == SYSTEM_SCHEMA or (
            not name.startswith(HIDDEN) and self.may(Role.READER, schema)
        )

    @property
    def is_known(self) -> bool:
        """Whether the principal's token, if it has one, is still valid."""
        return self.name is None or self.token() is not None


OWNER: Final = Principal()
"""The principal that opened the database in this process; it may do everything."""


@dataclass(slots=True)
class Tokens:
    """Access tokens by name, as this process knows them.

    ``tokens`` is replaced, never changed in place, because it is read without a lock. ``clock``
    returns Unix seconds.
    """

    tokens: Mapping[str, AccessToken] = field(default_factory=dict)
    clock: Callable[[], float] = time.time

    @property
    def is_required(self) -> bool:
        """Whether any token exists: then every HTTP request must have one."""
        return bool(self.tokens)

    def principal(self, secret: str) -> Principal | None:
        """Return the principal of a secret; None if no valid token has it.

        The time that this takes reveals nothing about the existing secrets.
        """
        given, found = _hash(secret), None
        for token in self.tokens.values():
            if hmac.compare_digest(given, token.hash):
                found = token
        if found is None or self._valid(found) is None:
            return None
        return self.holder(found)

    def holder(self, token: AccessToken) -> Principal:
        """Return the principal of a token; a later token with the same name is a different one."""

        def now() -> AccessToken | None:
            known = self.tokens.get(token.name)
            return self._valid(known) if known is not None and known.hash == token.hash else None

        return Principal(token.name, now)

    def _valid(self, token: AccessToken) -> AccessToken | None:
        return token if token.expires is None or self.clock() < token.expires else None


class Access(Tokens):
    """The access tokens of one database; a change is durable when its method returns."""

    __slots__ = ("_lock", "ledger")

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self.ledger = ledger
        self._lock = threading.Lock()
        stored = self._kept.all().items()
        super().__init__({name: AccessToken.of(name, each) for name, each in stored}, clock)

    @property
    def _kept(self) -> NamedSettings:
        return NamedSettings(self.ledger, _TOKENS)

    def __iter__(self) -> Iterator[AccessToken]:
        """Yield the tokens by name, expired ones too."""
        yield from sorted(self.tokens.values(), key=lambda token: token.name)

    def create(
        self, name: str, valid_for: float | None = None, span: Span | None = None
    ) -> tuple[AccessToken, str]:
        """Create a token without roles; return it and its secret, which is not stored.

        ``valid_for`` is in seconds.

        Raises:
            HeadraceError: ``conflict``, at the span, if the name exists; ``unsupported`` if there
                are too many tokens.
        """
        secret = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        now = self.clock()
        made = AccessToken(name, _hash(secret), now, None if valid_for is None else now + valid_for)
        with self._lock:
            if name in self.tokens:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'token "{name}" exists already',
                    hint="DROP TOKEN first: a token is never given another secret.",
                    span=span,
                )
            if len(self.tokens) >= _MOST_TOKENS:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    f"more than {_MOST_TOKENS:,} tokens are not supported",
                    hint="DROP TOKEN those that have expired: SHOW TOKENS lists them.",
                    span=span,
                )
            self._keep(made)
        return made, secret

    def drop(self, name: str) -> None:
        """Drop a token; its holders lose their roles at once."""
        with self._lock:
            self._kept.remove(name)
            self.tokens = {each: token for each, token in self.tokens.items() if each != name}

    def grant(self, name: str, role: Role, place: str, span: Span | None = None) -> None:
        """Grant a token a role in a schema, or in :data:`DATABASE`.

        Raises:
            HeadraceError: ``invalid``, at the span, if the token does not exist.
        """
        with self._lock:
            token = self.find(name, span)
            roles = token.roles.get(place, frozenset()) | {role}
            self._keep(replace(token, roles={**token.roles, place: roles}))

    def revoke(self, name: str, role: Role, place: str, span: Span | None = None) -> None:
        """Revoke a role that was granted.

        Raises:
            HeadraceError: ``invalid``, at the span, if the role was not granted or the token does
                not exist.
        """
        with self._lock:
            token = self.find(name, span)
            before = token.roles.get(place, frozenset())
            if role not in before:
                where = f'schema "{place}"' if place else "the database"
                raise HeadraceError(
                    Code.INVALID,
                    f'token "{name}" was not granted role {role} in {where}',
                    hint=f"SHOW GRANTS FOR {name} lists what it was granted.",
                    span=span,
                )
            rest = {where: each for where, each in token.roles.items() if where != place}
            if before - {role}:
                rest[place] = before - {role}
            self._keep(replace(token, roles=rest))

    def forget_schema(self, schema: str) -> None:
        """Revoke all roles in a dropped schema: a later schema of that name starts without."""
        with self._lock:
            for token in self.tokens.values():
                if schema in token.roles:
                    rest = {where: r for where, r in token.roles.items() if where != schema}
                    self._keep(replace(token, roles=rest))

    def copy_roles(self, schema: str, other: str) -> None:
        """Grant the roles in a schema in another one, too."""
        with self._lock:
            for token in self.tokens.values():
                if schema in token.roles:
                    roles = {**token.roles, other: token.roles[schema]}
                    self._keep(replace(token, roles=roles))

    def find(self, name: str, span: Span | None = None) -> AccessToken:
        """Return the token with a name.

        Raises:
            HeadraceError: ``invalid``, at the span, if it does not exist.
        """
        return named("token", name, self.tokens, f"CREATE TOKEN {name}.", span)

    def _keep(self, token: AccessToken) -> None:
        self._kept.put(token.name, token.to_json())
        self.tokens = {**self.tokens, token.name: token}


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
