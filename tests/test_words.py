"""The code speaks the field's words: plain English, one word per idea, one class per name."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/headrace"

TURNS = {
    r"of which": "which, each of these, or a sentence of its own",
    r"(?<!there )(?:is|are) none": "is not, such as: if it is not a number",
    r"(?<!so )that there (?:is|are)": "existing, or nothing",
    r"ours|theirs": "the noun, such as: this process's end",
    r"anew": "again",
    r"mend(?:s|ed|ing)?": "repair",
    r"told": "sent to, notified, or given",
    r"at hand": "current",
    r"no more(?! than)": "no longer",
    r"lets? go of": "release, or drop",
    r"whose [\w ]+ these are": "the noun that these values belong to",
    r"for ever": "forever, or without limit",
    r"com(?:e|es) and go(?:es)?": "appear and disappear, or inserted and deleted",
    r"(?:by|with|to|of) whom": "who, or the client",
    r"thereof|thereby|hereby|whereby|wherein|hence|upon|whilst|amongst": "a current word",
    r"what is said": "the noun",
    r"Runs them\.": "what is run, and what it may change",
}
"""Turns that readers have to solve, as regular expressions on whole words, and plain words."""
SENTENCE = re.compile(r"(?:^|\"\"\")\s*Ha(?:ve|s) [a-z]+ ")
"""A docstring that begins like ``Have the index cover``: Extend the index to cover."""

SAME_NAME = {
    "Access": "how each external system is reached",
    "Aggregate": "a node of the plan, its node of the circuit, and a node of the plan of a SELECT",
    "Call": "a call of an aggregate, by this name in digests, and a call of a Python function",
    "Compared": "a node of the plan, and the operator that computes it",
    "Constant": "a node of the plan, and its node of the circuit",
    "Filter": "a node of the plan, and a node of the plan of a SELECT",
    "FirstRows": "a node of the plan, and the operator that computes it",
    "Fold": "a node of the plan, and the operator that computes it",
    "Join": "a node of the plan, its node of the circuit, and a node of the plan of a SELECT",
    "Limit": "a node of the plan of a SELECT, and of the tree that DuckDB's text is made of",
    "Loop": "a node of the plan, and its node of the circuit",
    "Node": "the nodes of the plan, and those of the plan of a SELECT",
    "Options": "the options of each connector",
    "Project": "a node of the plan, and a node of the plan of a SELECT",
    "Sort": "a node of the plan of a SELECT, and of the tree that DuckDB's text is made of",
    "Stored": "a node of the plan of a SELECT, and of the tree that DuckDB's text is made of",
    "Temporal": "a node of the plan, and the operator that computes it",
    "Union": "a node of the plan of a SELECT, and of the tree that DuckDB's text is made of",
    "Window": "a node of the plan, and a window of time in the text of a dialect",
}
"""Public classes that are rightly defined under one name in several modules, and why."""


@cache
def modules() -> dict[str, str]:
    """Return the source of each module, by its path in the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in paths}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, messages and comments of a module, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def turns_in(text: str) -> list[str]:
    words = " ".join(text.split())
    return [
        f"{found.group(0)!r}: write {plain}"
        for turn, plain in TURNS.items()
        for found in re.finditer(rf"(?<![\w-])(?:{turn})(?![\w-])", words)
    ]


ANY_TURN = re.compile(re.sub(r"\(\?<?!.*?\)", "", "|".join(TURNS)).replace(" ", r"""[\s#"'f]+"""))
"""Matches the source of every module that has a turn, also across lines, and of few others."""


def classes() -> dict[str, list[str]]:
    """Return the modules that define a public class, by the name of the class."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, source in modules().items():
        for each in re.findall(r"^\s*class ([A-Z]\w*)[(:\[]", source, re.MULTILINE):
            found[each].append(name)
    return found


def test_texts_are_plain_english() -> None:
    found = []
    for name, source in modules().items():
        if not (ANY_TURN.search(source) or SENTENCE.search(source)):
            continue
        for line, text in texts(source):
            found += [f"{name}:{line}: {turn}" for turn in turns_in(text)]
            if SENTENCE.match(text):
                found.append(f"{name}:{line}: {text.split(chr(10))[0]}: say what it does")
    assert not found, "\n".join(found)


def test_the_turns_are_found_as_whole_words_only() -> None:
    assert turns_in("a stream of which the first rows are kept")
    assert turns_in("values of a column whose texts these are")
    assert turns_in("if the condition is none on the view")
    assert not turns_in("None if there is none; amended by those of the view, no more than 3 hours")


def test_a_name_is_of_one_class() -> None:
    twice = {
        name: defined
        for name, defined in classes().items()
        if len(defined) > 1 and name not in SAME_NAME
    }
    assert not twice


def test_the_classes_that_share_a_name_do_so() -> None:
    found = classes()
    assert [name for name in SAME_NAME if len(found[name]) < 2] == []


def test_the_words_of_the_glossary_are_those_of_the_code() -> None:
    assert "docs/concepts.md#glossary" in (ROOT / "CONTRIBUTING.md").read_text()
    page = (ROOT / "docs/concepts.md").read_text()
    table = page.partition("\n## Glossary\n")[2]
    words = [
        word.strip(" *")
        for row in re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)
        for word in row.split(",")
    ]
    words = [word for word in words if word not in ("word", "") and "---" not in word]
    assert len(words) >= 20
    used = set(re.findall(r"[a-z-]+", " ".join(source for source in modules().values()).lower()))
    assert [word for word in words if word.lower() not in used] == []
