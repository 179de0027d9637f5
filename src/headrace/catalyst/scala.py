"""Speaking to Scala objects through py4j: sequences, options, objects, constructors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_CATALYST = "org.apache.spark.sql.catalyst"
EXPRESSIONS = f"{_CATALYST}.expressions"
LOGICAL = f"{_CATALYST}.plans.logical"


@dataclass(frozen=True, slots=True)
class Scala:
    """The JVM of one Spark session; every value it returns is a handle on a JVM object."""

    jvm: Any

    def named(self, path: str) -> Any:
        """Return the class or static holder at a dotted path."""
        found = self.jvm
        for part in path.split("."):
            found = getattr(found, part)
        return found

    def module(self, path: str) -> Any:
        """Return the singleton of a Scala ``object``."""
        return getattr(self.named(f"{path}$"), "MODULE$")

    def expression(self, name: str, *arguments: Any) -> Any:
        """Construct the Catalyst expression class ``name``."""
        return getattr(self.named(EXPRESSIONS), name)(*arguments)

    def logical(self, name: str, *arguments: Any) -> Any:
        """Construct the Catalyst logical plan class ``name``."""
        return getattr(self.named(LOGICAL), name)(*arguments)

    def seq(self, items: Iterable[Any]) -> Any:
        """Return an immutable Scala ``Seq`` of the items."""
        array = self.jvm.java.util.ArrayList()
        for item in items:
            array.add(item)
        return self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(array).toSeq()

    @property
    def none(self) -> Any:
        """Scala's ``None``."""
        return self.jvm.scala.Option.empty()


def items(sequence: Any) -> list[Any]:
    """Return the elements of a Scala collection as a list."""
    iterator = sequence.iterator()
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found


def part(product: Any, position: int) -> Any:
    """Return a field of a Scala tuple or case class; positions count from 0."""
    return product.productElement(position)


def maybe(option: Any) -> Any | None:
    """Return what a Scala ``Option`` holds, or None."""
    return option.get() if option.isDefined() else None
