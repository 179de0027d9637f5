"""Arrangements on disk: sorted immutable runs, spines (sums of runs), and compaction."""

from headrace.algebra.spine.columns import PART_BYTES, SpineParts, flat
from headrace.algebra.spine.due_rows import due_rows, earliest_due
from headrace.algebra.spine.first_rows import Around, FirstOf, Rank, Ranked
from headrace.algebra.spine.merge import (
    SHARED_BYTES,
    at_rest,
    by_partition,
    difference,
    differences,
    due,
    due_by_partition,
    merge,
)
from headrace.algebra.spine.near_rows import (
    KeyLimit,
    Neighbours,
    is_summable,
    pairs_of,
    sums_between,
    weights_between,
)
from headrace.algebra.spine.open_runs import (
    check_run,
    forget_runs,
    open_run,
    read_to_check,
    times_forgotten,
    unchecked_bytes,
)
from headrace.algebra.spine.pack import (
    HIGHEST,
    LOWEST,
    Flat,
    PackWriter,
    delete_packs,
    partition_of,
    ranges,
    remove_packs,
    remove_packs_of,
    write_parts,
    write_run,
)
from headrace.algebra.spine.run import Place, Run, RunFile, matches_of_runs, pairs_among
from headrace.algebra.spine.spine import Spine
from headrace.algebra.spine.stored import Batch
from headrace.files.bundles import ChecksummedFile
from headrace.files.mounts import sync_directory

__all__ = [
    "HIGHEST",
    "LOWEST",
    "PART_BYTES",
    "SHARED_BYTES",
    "Around",
    "Batch",
    "ChecksummedFile",
    "FirstOf",
    "Flat",
    "KeyLimit",
    "Neighbours",
    "PackWriter",
    "Place",
    "Rank",
    "Ranked",
    "Run",
    "RunFile",
    "Spine",
    "SpineParts",
    "at_rest",
    "by_partition",
    "check_run",
    "delete_packs",
    "difference",
    "differences",
    "due",
    "due_by_partition",
    "due_rows",
    "earliest_due",
    "flat",
    "forget_runs",
    "is_summable",
    "matches_of_runs",
    "merge",
    "open_run",
    "pairs_among",
    "pairs_of",
    "partition_of",
    "ranges",
    "read_to_check",
    "remove_packs",
    "remove_packs_of",
    "sums_between",
    "sync_directory",
    "times_forgotten",
    "unchecked_bytes",
    "weights_between",
    "write_parts",
    "write_run",
]
