"""Access to AWS services: options, clients, and the translation of errors."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.options import Alters, SecretName, option
from headrace.io.formats.libraries import library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


DENIED: Final = frozenset(
    {
        "AccessDeniedException",
        "UnrecognizedClientException",
        "InvalidSignatureException",
        "IncompleteSignature",
        "MissingAuthenticationTokenException",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "KMSAccessDeniedException",
        "AccessDenied",
        "AllAccessDisabled",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
    }
)
"""Error codes for credentials that are wrong or lack a permission."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Region, endpoint and credentials of a client; None for those of the environment.

    ``access_key`` is an id; ``secret_key`` and ``token`` are values of secrets.
    """

    region: str | None
    endpoint: str | None
    access_key: str | None
    secret_key: str | None = field(repr=False)
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Options for the region, the endpoint and credentials, by default the environment's."""

    region: str | None = option("aws.region", "region", default=None, alters=Alters.ADDRESS)
    endpoint: str | None = option("aws.endpoint", "endpoint", default=None, alters=Alters.ADDRESS)
    access_key: str | None = option(
        "aws.credentials.basic.accesskeyid",
        "access key",
        "access_key",
        default=None,
        alters=Alters.ADDRESS,
    )
    secret_key: SecretName | None = option(
        "aws.credentials.basic.secretkey",
        "secret key",
        "secret_key",
        default=None,
        alters=Alters.ADDRESS,
    )
    session_token: SecretName | None = option(
        "aws.credentials.basic.sessiontoken",
        "session token",
        "session_token",
        default=None,
        alters=Alters.ADDRESS,
    )

    def settings(self, secret: Callable[[str], str]) -> ClientSettings:
        """Return the settings of a client; ``secret`` returns a secret's value."""
        return ClientSettings(
            self.region,
            self.endpoint,
            self.access_key,
            self.secret_key and secret(self.secret_key),
            self.session_token and secret(self.session_token),
        )


def resolved(settings: ClientSettings, what: str, extra: str) -> ClientSettings:
    """Complete settings from the environment, for libraries that do not search it as boto3 does.

    Raises:
        HeadraceError: ``invalid`` if the library of the extra is not installed.
    """
    session = library("boto3", what, extra).Session(
        settings.access_key, settings.secret_key, settings.token, settings.region
    )
    found = session.get_credentials()
    frozen = None if found is None else found.get_frozen_credentials()
    return ClientSettings(
        session.region_name or ("us-east-1" if settings.endpoint else None),
        settings.endpoint,
        frozen and frozen.access_key,
        frozen and frozen.secret_key,
        frozen and frozen.token,
    )


def client(
    service: str, extra: str, settings: ClientSettings, *, attempts: int = 2, connections: int = 10
) -> Any:
    """Return a boto3 client of a service; ``extra`` is the extra of this package that installs it.

    A request is sent at most ``attempts`` times; at most ``connections`` requests run at once.

    Raises:
        HeadraceError: ``invalid`` if the library is not installed.
    """
    what = f"client for {service}"
    boto3 = library("boto3", what, extra)
    return boto3.client(
        service,
        region_name=settings.region or ("us-east-1" if settings.endpoint else None),
        endpoint_url=settings.endpoint,
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        aws_session_token=settings.token,
        config=library("botocore.config", what, extra).Config(
            connect_timeout=5,
            read_timeout=20,
            retries={"total_max_attempts": attempts, "mode": "standard"},
            max_pool_connections=connections,
        ),
    )


@contextmanager
def errors(
    primary: str, known: Mapping[str, Callable[[str], HeadraceError]] | None = None
) -> Iterator[None]:
    """Translate errors of boto3 to a HeadraceError with the message ``primary``.

    ``known`` maps error codes of the service to functions that make the error from its detail.
    """
    from botocore import exceptions  # noqa: PLC0415

    try:
        yield
    except exceptions.ClientError as error:
        said = error.response["Error"]
        code = said["Code"]
        detail = f"The service says: {(said.get('Message') or code).rstrip('.')}."
        if known is not None and code in known:
            raise known[code](detail) from error
        if code in DENIED:
            hint = "Correct the credentials, or what they are allowed to do."
            raise HeadraceError(Code.INVALID, primary, detail, hint) from error
        raise HeadraceError(Code.UNAVAILABLE, primary, detail, "It is tried again.") from error
    except (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.NoRegionError,
        exceptions.ProfileNotFound,
        ValueError,
    ) as error:
        raise HeadraceError(
            Code.INVALID,
            primary,
            f"The client says: {error}.".replace("..", "."),
            "Give aws.region and credentials as options, or in the environment.",
        ) from error
    except exceptions.BotoCoreError as error:
        raise HeadraceError(
            Code.UNAVAILABLE,
            primary,
            f"The client says: {error}.".replace("..", "."),
            "Correct the region or the endpoint, or the way to it.",
        ) from error
