"""Reaching DynamoDB: the options of a connection, clients, and errors as ours."""

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
    """Where the service is, and with which rights."""

    def client(self, secret: Callable[[str], str], connections: int = 10) -> Any:
        """Return a client that repeats nothing by itself; ``secret`` returns a secret's value.

        What is sent twice may be done twice, the first time later than what was sent after it.
        """
        with errors("DynamoDB cannot be reached"):
            return aws.client(
                "dynamodb",
                "dynamodb",
                self.rights(secret),
                attempts=1,
                connections=connections,
            )


def check(access: Access, secret: Callable[[str], str]) -> None:
    """Raise if the service cannot be reached."""
    client = access.client(secret)
    with errors("DynamoDB cannot be reached"):
        client.list_tables(Limit=1)


def errors(primary: str) -> AbstractContextManager[None]:
    """Return what the service and its client say as errors of ours."""
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
