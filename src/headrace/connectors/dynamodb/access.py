"""Access to DynamoDB: options, clients, and the translation of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.connectors import aws
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(aws.Access):
    """Options of a connection."""

    def client(self, secret: Callable[[str], str], connections: int = 10) -> Any:
        """Return a client without automatic retries; ``secret`` returns a secret's value.

        A request sent twice may be executed twice, the first one after requests sent later.
        """
        with errors("DynamoDB cannot be reached"):
            return aws.client(
                "dynamodb",
                "dynamodb",
                self.settings(secret),
                attempts=1,
                connections=connections,
            )


def check(access: Access, secret: Callable[[str], str]) -> None:
    """Raise if the service cannot be reached."""
    client = access.client(secret)
    with errors("DynamoDB cannot be reached"):
        client.list_tables(Limit=1)


def errors(primary: str) -> AbstractContextManager[None]:
    """Translate errors of the service and its client to a HeadraceError with this message."""
    return aws.errors(
        primary,
        {
            "ResourceNotFoundException": lambda detail: HeadraceError(
                Code.INVALID,
                primary,
                detail,
                "Create the table, or correct its name, the region or the endpoint.",
            ),
        },
    )
