"""Seeded defects of the code that maintains views, by the views in which they show."""

from __future__ import annotations

from mutations.active import Defect

_PAIRS, _PRESENCE = "headrace.algebra.operators.pairs", "headrace.algebra.operators.pairs"
_MATCHES, _GROUPS = "headrace.algebra.operators.joins", "headrace.algebra.operators.group_aggregate"
_PARTS, _FIRST = (
    "headrace.algebra.operators.aggregate_parts",
    "headrace.algebra.operators.first_rows",
)
_TOUCHED, _TIMES = "headrace.algebra.operators.touched", "headrace.algebra.operators.temporal"
_WORKER = "headrace.execution.engine.jobs.worker"

DEFECTS: dict[str, tuple[Defect, ...]] = {
    "inner_": (
        Defect(
            "join: pairs of retracted left rows stay",
            _PAIRS,
            "Pairs.change",
            "inserted, retracted = left.by_sign()",
            "left = left.by_sign()[0]\n    inserted, retracted = left.by_sign()",
        ),
        Defect(
            "join: both sides change in one epoch, and the new rows do not meet",
            _PAIRS,
            "Pairs.change",
            "(inserted, before[1].plus(right))",
            "(inserted, before[1])",
        ),
        Defect(
            "join: the other side's change meets rows that were retracted",
            _PAIRS,
            "Pairs.change",
            "before[0].plus(retracted)",
            "before[0]",
        ),
        Defect(
            "join: wrong sign where the right side retracts",
            _PAIRS,
            "Pairs._combined",
            "pc.multiply_checked(left.table[WEIGHT], right.table[WEIGHT])",
            "left.table[WEIGHT]",
        ),
        Defect(
            "join: the other side's change meets half of the keys",
            _PAIRS,
            "Pairs.change",
            "before[0].plus(retracted)",
            "before[0].plus(retracted).below(0)",
        ),
        Defect(
            "join: retractions are not stored",
            "headrace.algebra.operators.joins",
            "InnerJoin.step",
            "return StepResult(output, (left, right))",
            "return StepResult(output, (left, right.by_sign()[0]))",
        ),
    ),
    "left_": (
        Defect(
            "presence: the first partner is not noticed",
            _PRESENCE,
            "partner_deltas",
            "(old > 0) != (new > 0)",
            "(old > 0) > (new > 0)",
        ),
        Defect(
            "outer join: changed rows have no partner",
            "headrace.algebra.operators.joins",
            "OuterJoin.step",
            "known = seen if index == 0 else None",
            "known = seen * 0 if index == 0 else None",
        ),
        Defect(
            "presence: rows that are retracted move as well",
            _PRESENCE,
            "partner_deltas",
            "rows.plus(retracted).lookup",
            "rows.lookup",
        ),
        Defect(
            "outer join: rows with a NULL key are dropped",
            "headrace.algebra.operators.joins",
            "OuterJoin.step",
            "changes[index].filter(~matchable[index])",
            "changes[index].filter(matchable[index] & False)",
        ),
        Defect(
            "outer join: partners are counted, and never discounted",
            "headrace.algebra.operators.joins",
            "OuterJoin.step",
            "updates.append(other)",
            "updates.append(other.by_sign()[0])",
        ),
    ),
    "semi_": (
        Defect(
            "presence: every row has a partner",
            _PRESENCE,
            "partner_deltas",
            "present = seen > 0",
            "present = seen >= 0",
        ),
        Defect(
            "presence: the last partner's end is not noticed",
            _PRESENCE,
            "partner_deltas",
            "(old > 0) != (new > 0)",
            "(old > 0) < (new > 0)",
        ),
    ),
    "anti_": (
        Defect(
            "anti join: rows with a NULL key are dropped",
            "headrace.algebra.operators.joins",
            "SemiJoin.step",
            "[found.unmatched, rows.filter(~matchable)]",
            "[found.unmatched]",
        ),
    ),
    "any_": (
        Defect(
            "matches: a row without a pair stays when it gets one",
            _MATCHES,
            "Matches.step",
            "old_weights * (old_matches == 0)",
            "old_weights * (matches == 0)",
        ),
        Defect(
            "matches: a row with one pair has none",
            _MATCHES,
            "Matches.step",
            "lone = weights * (matches == 0)",
            "lone = weights * (matches <= 1)",
        ),
        Defect(
            "matches: retracted pairs are not passed on",
            _MATCHES,
            "Matches.step",
            "(pairs & self.passes)",
            "(pairs & self.passes & (numbers(given, WEIGHT) > 0))",
        ),
    ),
    "sums": (
        Defect(
            "groups: the old row is not retracted",
            _GROUPS,
            "_step",
            "_answer(schema, old, new",
            "_answer(schema, old.where(changed[old.at] & False), new",
        ),
        Defect(
            "groups: a group without rows stays",
            _GROUPS,
            "_step",
            "_answer(schema, old, new",
            "_answer(schema, old.where(np.isin(old.at, new.at)), new",
        ),
        Defect(
            "groups: the last increment is left out",
            _GROUPS,
            "GroupAggregate.step",
            "ZSet.of(self.increments, inputs[0])",
            "ZSet.of(self.increments, inputs[0].slice(0, max(1, inputs[0].num_rows - 1)))",
        ),
        Defect(
            "groups: the first group of a step is not changed",
            _GROUPS,
            "_step",
            "changed[change.at] = True",
            "changed[change.at[1:]] = True",
        ),
        Defect(
            "step: one partition's runs are dropped",
            _WORKER,
            "OperatorTask._stepped",
            "if update.rows and i not in self.read",
            "if update.rows and i not in self.read and partition > 0",
        ),
        Defect(
            "commit: the last run is dropped",
            "headrace.execution.runtime.attempt",
            "Attempt.own",
            "for report in reports:",
            "for report in list(reports)[:-1]:",
        ),
        Defect(
            "spine: of the rows of a key, one run's are not found",
            "headrace.algebra.spine.run",
            "matches_in",
            "if len(found) == 1 and not few:",
            "found = found[:1]\n    if len(found) == 1 and not few:",
            keeps_groups=True,
        ),
    ),
    "ends": (
        Defect(
            "extremum: it stays when it is retracted",
            _PARTS,
            "_first_values",
            "before.first_rows_around(change, groups.hashes, groups.keys, 1)",
            "before.first_rows_around(change.by_sign()[0], groups.hashes, groups.keys, 1)",
            keeps_groups=True,
        ),
        Defect(
            "extremum: retracted values stay stored",
            _PARTS,
            "_first_values",
            "return PartStep((change,),",
            "return PartStep((change.by_sign()[0],),",
        ),
        Defect(
            "extremum: the second value in place of the first",
            _PARTS,
            "_first_values",
            "groups.hashes, groups.keys, 1)",
            "groups.hashes, groups.keys, 2)",
            keeps_groups=True,
        ),
    ),
    "values_": (
        Defect(
            "distinct: each copy of a value counts",
            _PARTS,
            "Distinct.change",
            "np.sign(new) - np.sign(old)",
            "new - old",
            keeps_groups=True,
        ),
        Defect(
            "distinct: a value that goes is counted again",
            _PARTS,
            "Distinct.change",
            "dict.fromkeys(self.counts, pa.array(sign))",
            "dict.fromkeys(self.counts, pa.array(np.abs(sign)))",
            keeps_groups=True,
        ),
        Defect(
            "distinct: wrong sign in the sum",
            _PARTS,
            "Distinct.change",
            "negated(values, sign < 0)",
            "negated(values, sign > 0)",
            keeps_groups=True,
        ),
        Defect(
            "values: retracted ones stay",
            _PARTS,
            "counted",
            "given.filter(weights != 0)",
            "given.filter(weights > 0)",
            keeps_groups=True,
        ),
    ),
    "both": (
        Defect(
            "contents: rows of some keys are skipped",
            "headrace.algebra.operators.contents",
            "Integrate.step",
            "return StepResult(change.table, (change,))",
            "return StepResult(change.table, (change.filter(change.hashes % 5 != 0),))",
        ),
        Defect(
            "contents: retracted rows stay",
            "headrace.algebra.operators.contents",
            "Integrate.step",
            "return StepResult(change.table, (change,))",
            "return StepResult(change.table, (change.by_sign()[0],))",
        ),
    ),
    "logged": (
        Defect(
            "log: the first change of each partition is skipped",
            _WORKER,
            "LeafTask._part",
            "share.between(rows * index // count, ",
            "share.between(min(rows * index // count + 1, rows * (index + 1) // count), ",
        ),
    ),
    "keyed": (
        Defect(
            "table: of the changes of a key, the first wins",
            "headrace.algebra.operators.contents",
            "_last_by_key",
            "np.append(differs, np.ones(min(1, len(order)), np.bool_))",
            "np.append(np.ones(min(1, len(order)), np.bool_), differs)",
        ),
        Defect(
            "table: some deletions are ignored",
            "headrace.algebra.operators.contents",
            "Upsert.step",
            "last = _last_by_key(changes, numbers(inputs[0], OFFSET))",
            "last = _last_by_key(changes, numbers(inputs[0], OFFSET))\n"
            "    last = last[(changes.weights[last] > 0) | (changes.hashes[last] % 3 != 0)]",
        ),
    ),
    "top": (
        Defect(
            "first rows: one too few",
            _FIRST,
            "FirstRows._copies",
            "np.minimum(stops, self.skip + self.count + 1)",
            "np.minimum(stops, self.skip + self.count)",
        ),
        Defect(
            "first rows: OFFSET is off by one",
            _FIRST,
            "FirstRows._copies",
            "np.maximum(ranks, self.skip + 1)",
            "np.maximum(ranks, self.skip + 2)",
        ),
        Defect(
            "first rows: those that fall behind stay",
            _FIRST,
            "FirstRows._change",
            "copies[1] - copies[0]",
            "(copies[1] - copies[0]).clip(0)",
        ),
        Defect(
            "first rows: retracted ones keep their rank",
            _FIRST,
            "FirstRows.step",
            "first_rows_around(change, groups.hashes",
            "first_rows_around(change.by_sign()[0], groups.hashes",
        ),
    ),
    "ranked": (
        Defect(
            "ranks: the last one is missing",
            "headrace.algebra.spine.first_rows",
            "around",
            "(ranks <= count)",
            "(ranks < count)",
        ),
        Defect(
            "ranks: ties have ranks of their own",
            "headrace.algebra.spine.first_rows",
            "_ranks",
            "np.flatnonzero(first | ties)",
            "np.arange(len(probes))",
        ),
    ),
    "listed": (
        Defect(
            "recompute: a touched group is skipped",
            _TOUCHED,
            "TouchedGroups.step",
            "touched = change.take(heads)",
            "kept = group > 0\n    heads = heads[1:] - int((~kept).sum())\n"
            "    change, group = change.filter(kept), group[kept] - 1\n"
            "    touched = change.take(heads)",
        ),
        Defect(
            "recompute: the group has its retracted rows",
            _TOUCHED,
            "TouchedGroups.step",
            "old.plus(change).summed(np.concatenate([probes, group]))",
            "old.plus(change.filter(change.weights > 0)).summed(\n"
            "        np.concatenate([probes, group[change.weights > 0]])\n"
            "    )",
        ),
        Defect(
            "recompute: copies of a row count once",
            _TOUCHED,
            "TouchedGroups._version",
            "rows.take(copies_of(rows))",
            "rows",
        ),
    ),
    "recent": (
        Defect(
            "clock: rows do not move as time passes",
            _TIMES,
            "Temporal.step",
            "due_rows(before[0], past, now)",
            "due_rows(before[0], past, past)",
        ),
        Defect(
            "clock: rows never leave",
            _TIMES,
            "Temporal._moves",
            "if self.leaves is not None:\n        parts.append",
            "if self.leaves is None:\n        parts.append",
        ),
        Defect(
            "clock: rows whose time is over are taken",
            _TIMES,
            "Temporal._performed",
            "moves.weights * numbers(moves.table, SIGN)",
            "moves.weights",
        ),
    ),
}
"""The defects, by the view in which they show."""
