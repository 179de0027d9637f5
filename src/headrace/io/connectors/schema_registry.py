"""Client of a schema registry: Confluent's HTTP API, also in Karapace, Apicurio and Redpanda."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.options import Alters, SecretName, option
from headrace.io.formats.libraries import library as optional
from headrace.io.formats.protobuf import RegisteredSchema

if TYPE_CHECKING:
    from collections.abc import Callable


_ANSWER_SECONDS: Final = 10
_NOT_FOUND: Final = 404
_REFUSED: Final = frozenset({409, 422})
_DENIED: Final = frozenset({401, 403})

T = TypeVar("T")


@dataclass(slots=True)
class Registry:
    """The registry at a URL.

    ``login`` returns ``user:password``; None without a login. ``form`` is the format in which
    schemas are requested; None for text.
    """

    url: str
    login: Callable[[], str] | None = None
    authority: str | None = None
    form: str | None = None
    _client: Any = field(default=None, repr=False)

    def schema(self, id_: int) -> RegisteredSchema | None:
        """Return the schema of an id; None for an unknown id.

        Raises:
            HeadraceError: ``unavailable`` if the registry does not answer; ``invalid`` if it
                refuses access.
        """
        return self._asked(lambda client: self._found(client.get_schema(id_, fmt=self.form)))

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject; None for an unknown subject.

        Raises:
            HeadraceError: ``unavailable`` if the registry does not answer; ``invalid`` if it
                refuses access.
        """
        return self._asked(
            lambda client: self._found(client.get_latest_version(subject, fmt=self.form).schema)
        )

    def register(self, subject: str, text: str) -> int:
        """Register an Avro schema under a subject, if it is new there; return its id.

        Raises:
            HeadraceError: ``unavailable`` if the registry does not answer; ``invalid`` if it
                refuses access, or a schema that is incompatible with earlier ones.
        """
        schema = _library().Schema(text, "AVRO")
        id_ = self._asked(lambda client: int(client.register_schema(subject, schema)))
        if id_ is None:
            raise self._failed("it has no place for new schemas", denied=False)
        return id_

    def _asked(self, ask: Callable[[Any], T]) -> T | None:
        library = _library()
        if self._client is None:
            self._client = self._made(library)
        try:
            return ask(self._client)
        except library.SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                return None
            if error.http_status_code in _REFUSED:
                raise HeadraceError(
                    Code.INVALID,
                    f'schema registry "{self.url}" refuses a schema',
                    f"It says: {error}.",
                    "Use another topic, or set its subject to another compatibility.",
                ) from error
            raise self._failed(str(error), denied=error.http_status_code in _DENIED) from error
        except Exception as error:  # the errors of its HTTP client are not part of its interface
            raise self._failed(f"{type(error).__name__}: {error}", denied=False) from error

    def _found(self, found: Any) -> RegisteredSchema | None:
        if found is None:
            return None
        references: dict[str, str] = {}
        self._collect(found, references)
        return RegisteredSchema(
            (found.schema_type or "AVRO").upper(), found.schema_str or "", tuple(references.items())
        )

    def _collect(self, found: Any, into: dict[str, str]) -> None:
        """Collect the schemas that a schema imports: dependencies first."""
        for each in found.references or ():
            if each.name not in into:
                inner = self._client.get_version(each.subject, each.version, fmt=self.form).schema
                self._collect(inner, into)
                into[each.name] = inner.schema_str

    def _made(self, library: Any) -> Any:
        settings: dict[str, Any] = {"url": self.url, "timeout": _ANSWER_SECONDS, "max.retries": 0}
        if self.login is not None:
            settings["basic.auth.user.info"] = self.login()
        if self.authority is not None:
            settings["ssl.ca.location"] = self.authority
        try:
            return library.SchemaRegistryClient(settings)
        except (ValueError, TypeError, OSError) as error:
            raise HeadraceError(
                Code.INVALID,
                f'the client for schema registry "{self.url}" cannot be made',
                f"It says: {error}.",
                'Correct option "schema.registry.url", and those of its access.',
            ) from error

    def _failed(self, said: str, *, denied: bool) -> HeadraceError:
        return HeadraceError(
            Code.INVALID if denied else Code.UNAVAILABLE,
            f'schema registry "{self.url}" {"refuses access" if denied else "did not answer"}',
            f"The client says: {said}.",
            'Correct options "schema.registry.username" and "schema.registry.password".'
            if denied
            else "Start the registry, or correct its address.",
        )


@dataclass(frozen=True, kw_only=True)  # without slots, which only one base of a class may have
class RegistryAccess:
    """The options of a schema registry."""

    registry: str | None = option(
        "schema.registry.url",
        "avro-confluent.url",
        "avro-confluent.schema-registry.url",
        "value.avro-confluent.url",
        "protobuf-confluent.url",
        default=None,
        alters=Alters.NEVER,
    )
    registry_user: str | None = option(
        "schema.registry.username", default=None, alters=Alters.FREELY
    )
    registry_password: SecretName | None = option(
        "schema.registry.password", default=None, alters=Alters.FREELY
    )
    registry_authority: str | None = option(
        "schema.registry.ssl.ca.location", default=None, alters=Alters.FREELY
    )

    def registry_client(self, secret: Callable[[str], str], form: str | None = None) -> Registry:
        """Return the registry of the options; see :class:`Registry` for ``form``."""
        if self.registry is None:
            raise HeadraceError(Code.INTERNAL, "no schema registry is configured")
        user, password = self.registry_user, self.registry_password
        login = None if user is None or password is None else lambda: f"{user}:{secret(password)}"
        return Registry(self.registry, login, self.registry_authority, form)


def _library() -> Any:
    return optional("confluent_kafka.schema_registry", "client for schema registries", "kafka")
