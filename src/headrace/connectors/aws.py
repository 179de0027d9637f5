"""Services of AWS: the options by which one is reached, clients, and errors as ours."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.formats.libraries import library

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
    }
)


@dataclass(frozen=True, slots=True)
class Rights:
    """Where a service is, and with which rights it is used: by default the environment's.

    ``access_key`` is an id; ``secret_key`` and ``token`` are values of secrets.
    """

    region: str | None
    endpoint: str | None
    access_key: str | None
    secret_key: str | None
    token: str | None


def client(
    service: str, extra: str, rights: Rights, *, attempts: int = 2, connections: int = 10
) -> Any:
    """Return a client of a service; the library comes with an extra of this package.

    A request is sent ``attempts`` times at most, and as many run at once as there are
    ``connections``.

    Raises:
        HeadraceError: ``invalid`` if the library is not installed.
    """
    what = f"client for {service}"
    boto3 = library("boto3", what, extra)
    return boto3.client(
        service,
        region_name=rights.region or ("us-east-1" if rights.endpoint else None),
        endpoint_url=rights.endpoint,
        aws_access_key_id=rights.access_key,
        aws_secret_access_key=rights.secret_key,
        aws_session_token=rights.token,
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
    """Return what a service and its client say as errors of ours, whose text is ``primary``.

    ``known`` makes errors of the codes of a service, each of a detail.
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
