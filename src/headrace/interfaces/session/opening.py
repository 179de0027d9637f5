"""Opens a database: loads the ledger's catalog and declares it to Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.published import stored_layouts
from headrace.execution.runtime.unfit import resume_fitting
from headrace.files import ObjectStore, StoreAddress
from headrace.planning.catalog import Catalog, Sink, Stream, Table, View, relation_of_json
from headrace.planning.catalog.naming import HIDDEN
from headrace.storage.ledger import STORE_SETTING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from headrace.interfaces.session.parts import DatabaseParts
    from headrace.planning.functions import Function
    from headrace.storage.ledger import Ledger


def stored_partitions(ledger: Ledger, directory: Path, asked: int, *, chosen: bool) -> int:
    """Return the number of partitions, which is fixed when the database is created.

    ``chosen``: whether the requested number was set explicitly.

    Raises:
        HeadraceError: ``invalid`` if another number was set.
    """
    stored = ledger.settings.get("partitions")
    if stored is None:
        ledger.settings.set("partitions", asked)
        return asked
    if chosen and asked != stored:
        raise HeadraceError(
            Code.INVALID,
            f'setting "partitions" cannot be {asked}',
            detail=f'Data directory "{directory}" was created with {stored}.',
            hint=f"Leave it out, or give {stored}.",
        )
    return int(stored)


def stored_store(ledger: Ledger, directory: Path, asked: str) -> str:
    """Return the URL of the object store that has the files; an empty text if the directory has.

    Which one it is is fixed when the database is created; the URL's options may differ. To be
    called before :func:`stored_partitions`, which marks a database as created.

    Raises:
        HeadraceError: ``invalid`` if another store was set.
    """
    stored = ledger.settings.get(STORE_SETTING)
    if stored is None and ledger.settings.get("partitions") is None:
        ledger.settings.set(STORE_SETTING, asked)
        return asked
    stored = stored or ""
    if not asked or _place(asked) == _place(stored):
        return asked or stored
    raise HeadraceError(
        Code.INVALID,
        f'setting "store" cannot be "{asked}"',
        detail=f'The files of the database are in "{stored}".'
        if stored
        else f'The files of the database are in the directory "{directory}".',
        hint="Leave the setting out.",
    )


def require_own_store(ledger: Ledger, store: StoreAddress) -> None:
    """Refuse an object store that has files which a new database would delete as strays.

    To be called before :func:`stored_partitions`.

    Raises:
        HeadraceError: ``invalid`` if the database is new, and the store has any file.
    """
    if ledger.settings.get("partitions") is not None:
        return
    other = next(iter(ObjectStore.at(store).names()), None)
    if other is not None:
        raise HeadraceError(
            Code.INVALID,
            f'object store "{store.url}" has files of another database',
            f'The ledger "{ledger.place}" is new, and the store has "{other[0]}".',
            "Give the ledger of that database, or another prefix. A restore that was interrupted"
            " goes on when headrace restore is run again.",
        )


def _place(url: str) -> str:
    return StoreAddress.of(url).url if url else ""


def restore(parts: DatabaseParts, functions: Iterable[Function] = ()) -> None:
    """Load the catalog from the ledger into Spark, and drop temporary views.

    Views that lack a function wait for it; views whose function is now given resume. No view is
    planned.
    """
    resume_fitting(parts.ledger)
    ledger, declarations, waiting = parts.ledger, parts.declarations, parts.waiting
    records = ledger.relations.existing()
    catalog = Catalog.of(relation_of_json(dict(record.definition)) for record in records)
    declarations.announce_system()
    for relation in catalog:
        if isinstance(relation, Stream | Table):
            declarations.announce(relation)
    parts.functions.restore(catalog, functions)
    lacking = waiting.lacking(catalog)
    for view in catalog.defined_in_order():
        if view.id in lacking:
            declarations.announce_waiting(view)
            continue
        declarations.announce(view)
    layouts = stored_layouts(ledger.head, (each.id for each in catalog))
    parts.loop.published.publish(catalog, layouts)
    # Before the first epoch, since dropping releases their history step by step.
    parts.loop.held.update({id_: record.held for id_, record in ledger.deliveries.all().items()})
    parts.log.admission.sweep(r for r in catalog if isinstance(r, Stream))
    waiting.wait(lacking)
    fed = {relation.source for relation in catalog if isinstance(relation, Sink)}
    fed |= {relation.into for relation in catalog if isinstance(relation, View) and relation.into}
    hidden = [
        relation.id
        for relation in catalog
        if isinstance(relation, View | Stream)
        and relation.name.startswith(HIDDEN)
        and relation.id not in fed
        and not (isinstance(relation, View) and _is_kept(relation))
    ]
    if hidden:
        parts.definer.drop(hidden)
    waiting.resume()


def _is_kept(hidden: View) -> bool:
    """Whether a hidden view outlives the process: an index, or a candidate that SWAP may use."""
    if hidden.candidate_of is not None:
        return not hidden.temporary
    return hidden.index is not None
