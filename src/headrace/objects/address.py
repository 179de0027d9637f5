"""Where a store is: its URL and the options of the client, as values that other processes get."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCHEMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "file": "file",
    "memory": "memory",
}
_URL: Final = re.compile(
    r"(?P<scheme>[a-z0-9]+)://(?P<place>[^/?#]*)(?P<prefix>/[^?#]*)?(\?(?P<query>[^#]*))?"
)
BRANCHES: Final = "branches"
"""The folder of the branches of a database."""
_BRANCH: Final = re.compile(rf"(?P<origin>.+)/{BRANCHES}/[a-z0-9][a-z0-9_-]*")
_OPTIONS: Final = frozenset(
    {"region", "endpoint", "virtual_hosted_style_request", "skip_signature", "account_name"}
)
"""Options that a URL may have. Credentials have no place there: URLs are shown."""

_VARIABLES: Final = {
    "s3": {
        "AWS_ACCESS_KEY_ID": "access_key_id",
        "AWS_SECRET_ACCESS_KEY": "secret_access_key",
        "AWS_SESSION_TOKEN": "session_token",
        "AWS_DEFAULT_REGION": "region",
        "AWS_REGION": "region",
        "AWS_ENDPOINT_URL": "endpoint",
        "AWS_ENDPOINT_URL_S3": "endpoint",
    },
    "gs": {
        "GOOGLE_SERVICE_ACCOUNT": "service_account",
        "GOOGLE_SERVICE_ACCOUNT_KEY": "service_account_key",
    },
    "az": {
        "AZURE_STORAGE_ACCOUNT_NAME": "account_name",
        "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
        "AZURE_STORAGE_SAS_KEY": "sas_key",
    },
}
"""The variables that say how a store is reached, and the options that they are; later ones win."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store: ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``.

    ``options`` are those of the client, such as a region and an endpoint, which the URL may have as
    well: ``s3://bucket/prefix?region=eu-west-1``. What is missing, as credentials mostly are, is
    found in the environment and, in a cloud, from the machine's role.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, url: str, options: Mapping[str, str] | None = None) -> StoreAddress:
        """Return the address of a store.

        Raises:
            HeadraceError: ``invalid`` for a URL that names no store.
        """
        found = _URL.fullmatch(url)
        if found is None or found["scheme"] not in _SCHEMES:
            raise HeadraceError(
                Code.INVALID,
                f'"{url}" is not the URL of an object store',
                hint='Write "s3://bucket/prefix", "gs://bucket/prefix" or "az://container/prefix".',
            )
        scheme = _SCHEMES[found["scheme"]]
        if scheme not in ("file", "memory") and not found["place"]:
            raise HeadraceError(
                Code.INVALID,
                f'URL "{url}" of an object store names no bucket',
                hint=f'Write "{scheme}://bucket/prefix".',
            )
        chosen = dict(parse_qsl(found["query"] or "", keep_blank_values=True))
        for name in chosen.keys() - _OPTIONS:
            raise HeadraceError(
                Code.INVALID,
                f'URL of an object store cannot have the option "{name}"',
                f"It can have: {', '.join(sorted(_OPTIONS))}.",
                "Credentials come from the environment, such as AWS_ACCESS_KEY_ID, or from the"
                " machine's role.",
            )
        prefix = (found["prefix"] or "").rstrip("/")
        return cls(f"{scheme}://{found['place']}{prefix}", {**chosen, **(options or {})})

    @staticmethod
    def branch_url(url: str, name: str) -> str:
        """Return the URL of the store of a branch of the database whose store has a URL."""
        place, options, rest = url.partition("?")
        return f"{place.rstrip('/')}/{BRANCHES}/{name}{options}{rest}"

    @property
    def origin(self) -> StoreAddress | None:
        """The store of the database that this is a branch of; None if it is no branch's."""
        found = _BRANCH.fullmatch(self.url)
        return None if found is None else replace(self, url=found["origin"])

    def completed(self, environment: Mapping[str, str]) -> StoreAddress:
        """Return the address with what variables say of it: processes may have other variables.

        Options that the address has already stay.
        """
        known = _VARIABLES.get(self.url.partition(":")[0], {})
        found = {
            option: environment[name] for name, option in known.items() if environment.get(name)
        }
        return replace(self, options={**found, **self.options})

    @staticmethod
    def is_store(target: str) -> bool:
        """Return whether a text is the URL of an object store, and not of a file or a server."""
        scheme, found, _ = target.partition("://")
        return bool(found) and _SCHEMES.get(scheme, "file") != "file"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads. It has the credentials."""
        return {"url": self.url, "options": dict(self.options)}

    @classmethod
    def of_json(cls, value: Any) -> StoreAddress:
        """Return the address that :meth:`to_json` wrote."""
        return cls(value["url"], value["options"])
