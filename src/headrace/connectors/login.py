"""How clients of stores log in, and whether what they send is encrypted."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.connectors.options import SecretName, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user with a password, and TLS; certificates and keys are paths of files."""

    user: str | None = option("user", "username", default=None)
    password: SecretName | None = option("password", default=None)
    tls: bool = option("tls", "ssl", default=False)
    authority: str | None = option("ssl certificate authority", "ssl_ca_certs", default=None)
    certificate: str | None = option("ssl certificate", "ssl_certfile", default=None)
    private_key: str | None = option("ssl key", "ssl_keyfile", default=None)
