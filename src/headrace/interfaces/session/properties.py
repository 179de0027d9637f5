"""Properties of a session: ``SET``, ``RESET`` and ``SHOW``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, unknown
from headrace.interfaces.statements.results import Listed

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.planning.sql import ResetOption, SetOption, ShowOption


OFFSET_RESET = "auto.offset.reset"
RUNTIME_MODE = "execution.runtime-mode"
CONSISTENCY = "consistency"
DOUBLE_QUOTES = "double_quoted_identifiers"


@dataclass(frozen=True, slots=True)
class Property:
    """A property with an effect, and its values; the first value is the default."""

    values: tuple[str, ...]
    meaning: str


KNOWN: dict[str, Property] = {
    CONSISTENCY: Property(
        ("session", "latest", "strict"),
        "a read sees this session's writes; or the last epoch, at once; or all that was written"
        " before it",
    ),
    DOUBLE_QUOTES: Property(
        ("false", "true"),
        "double-quoted texts are strings, unless one is where only a name can be; or names,"
        " as in standard SQL",
    ),
    OFFSET_RESET: Property(
        ("earliest", "latest"),
        "a push query begins with the present rows, or with the first change from now on",
    ),
    RUNTIME_MODE: Property(
        ("batch", "streaming"),
        "a SELECT without EMIT CHANGES runs once, or is a push query",
    ),
    "table.local-time-zone": Property(("UTC",), "timestamps are stored and shown in UTC"),
    "timezone": Property(("UTC",), "timestamps are stored and shown in UTC"),
}
"""The properties with an effect."""

_FOREIGN = (
    "application_name",
    "bq.",
    "cache.max.bytes.buffering",
    "client_min_messages",
    "cluster",
    "commit.interval.ms",
    "datestyle",
    "execution.checkpointing.",
    "extra_float_digits",
    "ksql.",
    "num.stream.threads",
    "parallelism.",
    "pipeline.",
    "processing.guarantee",
    "sql-client.",
    "state.backend",
    "table.exec.",
    "table.optimizer.",
)
"""Names and prefixes of other systems' properties, which are stored without effect."""


@dataclass(slots=True)
class Properties:
    """The properties set in a session; the others have their defaults."""

    given: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, key: str) -> str:
        """Return the value of a property with an effect."""
        return self.given.get(key, KNOWN[key].values[0])

    def set(self, statement: SetOption) -> str:
        """Set a property, and return a message.

        Raises:
            HeadraceError: ``invalid`` for a name or value that does not exist.
        """
        key, value = statement.key.lower(), statement.value
        known = KNOWN.get(key)
        if known is None:
            _refuse_timeout(key, statement.span)
            self._require_foreign(statement.key, statement.span)
            self.given[key] = value
            return f"{key} is stored, and has no effect"
        chosen = next((v for v in known.values if v.lower() == value.lower()), None)
        if chosen is None:
            raise HeadraceError(
                Code.INVALID,
                f"'{value}' is not a value of {key}",
                hint=f"Use {' or '.join(known.values)}: {known.meaning}.",
                span=statement.span,
            )
        self.given[key] = chosen
        return f"{key} is {chosen}"

    def reset(self, statement: ResetOption) -> str:
        """Reset one property, or all, to the default."""
        if statement.key is None:
            self.given.clear()
            return "all properties have their defaults"
        key = statement.key.lower()
        if key not in KNOWN:
            self._require_foreign(statement.key, statement.span)
        self.given.pop(key, None)
        return f"{key} is {KNOWN[key].values[0]}" if key in KNOWN else f"{key} is not set"

    def show(self, statement: ShowOption) -> Listed:
        """Return name, value and meaning of one property or all, by name.

        Raises:
            HeadraceError: ``invalid`` for a name that does not exist.
        """
        names, key = sorted({*KNOWN, *self.given}), statement.key
        if key is not None:
            if key.lower() not in names:
                self._require_foreign(key, statement.span)
            names = [name for name in names if name == key.lower()]
        rows = [
            (name, self[name], KNOWN[name].meaning)
            if name in KNOWN
            else (name, self.given[name], "stored without effect")
            for name in names
        ]
        return Listed(("name", "value", "meaning"), rows)

    def _require_foreign(self, key: str, span: Span) -> None:
        if key.lower().startswith(_FOREIGN):
            return
        raise unknown("property", key, KNOWN, "SHOW PROPERTIES lists all properties.", span)


def _refuse_timeout(key: str, span: Span) -> None:
    """Refuse a timeout, which another system would enforce and Headrace does not."""
    if "timeout" in key.replace("-", "_").split(".")[-1]:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'property "{key}" is not supported',
            detail="A statement runs until it ends or is cancelled.",
            hint="Cancel it with Ctrl-C, or Database.cancel from another thread.",
            span=span,
        )
