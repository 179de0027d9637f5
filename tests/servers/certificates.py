"""Certificates for tests: an authority of our own, and one of a server at the loopback."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path


def authority(directory: Path, name: str) -> tuple[Path, Path]:
    """Make an authority and a server that it trusts.

    Return the files of the authority's certificate, and of the server's key and certificates.
    """
    of_authority, of_server = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    issuer = _named(f"{name} authority")
    root = _signed(issuer, of_authority, issuer, of_authority, authority=True)
    leaf = _signed(_named("127.0.0.1"), of_server, issuer, of_authority, authority=False)
    trusted, server = directory / f"{name}-authority.pem", directory / f"{name}-server.pem"
    trusted.write_bytes(_pem(root))
    key = of_server.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    server.write_bytes(key + _pem(leaf) + _pem(root))
    return trusted, server


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    *,
    authority: bool,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
    )
    return builder.sign(by, hashes.SHA256())
