"""Names for numbers and strings that must not be mixed up."""

from __future__ import annotations

from typing import NewType

Epoch = NewType("Epoch", int)
"""A committed step of the whole database; 0 is the empty database."""

Offset = NewType("Offset", int)
"""A position in a relation's log: the number of changes before it."""

RelationId = NewType("RelationId", int)
"""A stream, table or view, for ever: never reused, also after a drop."""

ArrangementId = NewType("ArrangementId", str)
"""An arrangement: ``"<relation id>/<node>"``."""
