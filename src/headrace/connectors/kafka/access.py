"""Access to Kafka's brokers: options of connections, sources and sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.connectors.options import Alters, SecretName, option

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Options of a connection, with the keys of librdkafka and of Flink, Materialize and others."""

    brokers: str = option(
        "properties.bootstrap.servers",
        "bootstrap.servers",
        "brokers",
        "broker",
        alters=Alters.ADDRESS,
    )
    protocol: str | None = option(
        "properties.security.protocol", "security protocol", default=None, alters=Alters.FREELY
    )
    mechanism: str | None = option(
        "properties.sasl.mechanism",
        "properties.sasl.mechanisms",
        "sasl mechanisms",
        "sasl mechanism",
        default=None,
        alters=Alters.FREELY,
    )
    username: str | None = option(
        "properties.sasl.username", "sasl username", default=None, alters=Alters.FREELY
    )
    password: SecretName | None = option(
        "properties.sasl.password", "sasl password", default=None, alters=Alters.FREELY
    )
    authority: str | None = option(
        "properties.ssl.ca.location",
        "ssl certificate authority",
        default=None,
        alters=Alters.FREELY,
    )
    certificate: str | None = option(
        "properties.ssl.certificate.location", "ssl certificate", default=None, alters=Alters.FREELY
    )
    private_key: str | None = option(
        "properties.ssl.key.location", "ssl key", default=None, alters=Alters.FREELY
    )

    def client(self, secret: Callable[[str], str]) -> dict[str, Any]:
        """Return settings for librdkafka; ``secret`` returns the value of a secret."""
        found = {
            "bootstrap.servers": self.brokers,
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": None if self.password is None else secret(self.password),
            "ssl.ca.location": self.authority,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.private_key,
        }
        return {key: value for key, value in found.items() if value is not None}
