"""Every function that Spark and another dialect both have: the same, or known to be another."""

from __future__ import annotations

import pytest

from headrace.planning.catalyst.allowed import FUNCTIONS, REFUSED
from headrace.planning.dialects import (
    CALLS,
    DIFFERENCES,
    FURTHER,
    FURTHER_FORMS,
    MEANINGS,
    MEANT,
    REFUSED_CALLS,
)
from headrace.planning.dialects.translate import FORMS
from sql.function_names import NAMES

OF_THE_GRAMMAR = {"timediff", "timestampadd", "timestampdiff", "try_cast"}
SPARKS = FUNCTIONS | REFUSED.keys() | OF_THE_GRAMMAR
TREATED = {
    *(call.name.lower() for call in (*CALLS, *MEANINGS, *FURTHER)),
    *(name.lower() for name in (*FORMS, *MEANT, *FURTHER_FORMS, *REFUSED_CALLS)),
    *(name for difference in DIFFERENCES for name in difference.functions.split()),
}
UNKNOWN = {"parse_url", "get", "date_sub"}
"""Stars that need no treatment: a call in the other dialect's form is an error in Spark."""


@pytest.mark.parametrize("dialect", NAMES)
def test_a_function_with_another_meaning_is_translated_refused_or_on_the_page(dialect):
    starred = {name.removesuffix("*") for name in NAMES[dialect].split() if name.endswith("*")}
    assert starred <= SPARKS, "they need no star"
    assert starred <= TREATED | UNKNOWN


@pytest.mark.parametrize("dialect", NAMES)
def test_a_function_that_means_the_same_is_not_treated_as_another(dialect):
    same = {name for name in NAMES[dialect].split() if not name.endswith("*")} & SPARKS
    of_dialect = {
        *(each.name.lower() for each in CALLS if dialect in each.dialects),
        *(each.name.lower() for each in MEANINGS if dialect in each.dialects),
        *(
            name
            for each in DIFFERENCES
            if f" {dialect}" in f" {each.elsewhere}"
            for name in each.functions.split()
        ),
    }
    assert not same & of_dialect


def test_every_difference_is_of_a_function_that_spark_has():
    for difference in DIFFERENCES:
        assert set(difference.functions.split()) <= SPARKS, difference.written
