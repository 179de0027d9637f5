"""Arrangements on disk: sorted immutable runs, spines (sums of runs), and compaction."""

from headrace.spine.columns import flat
from headrace.spine.due_rows import due_rows, earliest_due
from headrace.spine.durable import ChecksummedFile
from headrace.spine.first_rows import Around, FirstOf, Rank, Ranked
from headrace.spine.flattened import Flat
from headrace.spine.merge import (
    SHARED_BYTES,
    at_rest,
    by_partition,
    difference,
    differences,
    due,
    due_by_partition,
    merge,
)
from headrace.spine.mounts import sync_directory
from headrace.spine.narrowing import pairs_of
from headrace.spine.near_rows import Neighbours, is_summable, sums_between, weights_between
from headrace.spine.open_runs import (
    check_run,
    forget_runs,
    open_run,
    read_to_check,
    times_forgotten,
    unchecked_bytes,
)
from headrace.spine.pack import (
    PackWriter,
    delete_packs,
    remove_packs,
    remove_packs_of,
    write_parts,
    write_run,
)
from headrace.spine.parts import PART_BYTES, SpineParts
from headrace.spine.ranges import HIGHEST, LOWEST, partition_of, ranges
from headrace.spine.ranges_of_keys import KeyLimit
from headrace.spine.run import Run, matches_of_runs, pairs_among
from headrace.spine.run_file import Place, RunFile
from headrace.spine.spine import Spine
from headrace.spine.stored import Batch

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
