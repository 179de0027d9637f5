"""Options of clients of stores: user, password and TLS."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.connectors.options import Alters, SecretName, option


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLogin:
    """Options for user, password and TLS; certificates and keys are paths of files."""

    user: str | None = option("user", "username", default=None, alters=Alters.FREELY)
    password: SecretName | None = option("password", default=None, alters=Alters.FREELY)
    tls: bool = option("tls", "ssl", default=False, alters=Alters.FREELY)
    authority: str | None = option(
        "ssl certificate authority", "ssl_ca_certs", default=None, alters=Alters.FREELY
    )
    certificate: str | None = option(
        "ssl certificate", "ssl_certfile", default=None, alters=Alters.FREELY
    )
    private_key: str | None = option("ssl key", "ssl_keyfile", default=None, alters=Alters.FREELY)
