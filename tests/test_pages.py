"""The tutorial and the how-to pages do what they say: each is followed step by step."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from headrace.planning.sql import parse_statement, split
from headrace.tools.cli.command import headrace as command
from headrace.tools.cli.command import main
from pages import LeftOpen, Reader, blocks_of, commands_of, same
from served import served
from server.browser import browser

DOCS = Path(__file__).parents[1] / "docs"
HOW_TO = DOCS / "how-to"
SERVER = "http://127.0.0.1:8088"


def follow(db, directory, page, patience=0, **replaced):
    """Follow a page; everything that it shows has to be what was printed."""

    def compare(printed, shown):
        assert same(printed, shown), f"{page.name} shows\n{shown}\nbut this is printed:\n{printed}"

    return Reader(db, directory, replaced, patience).follow(page, compare)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The directory that a reader is in; programs of a page import its files."""
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.long
def test_the_tutorial_shows_what_happens(db, place):
    with served(db) as running:
        shown = follow(db, place, DOCS / "tutorial.md", **{SERVER: running.server.url.rstrip("/")})
    assert shown >= 14


@pytest.mark.long
@pytest.mark.parametrize("name", ["change-a-view", "back-up", "features", "your-own-spark"])
def test_a_how_to_page_shows_what_happens(db, place, name):
    assert follow(db, place, HOW_TO / f"{name}.md") >= 1


@pytest.mark.long
def test_the_page_about_branches_shows_what_happens(db, place):
    named = {'"mill"': f'"{db.directory}"'}
    assert follow(db, place, HOW_TO / "try-on-a-branch.md", **named) == 5


@pytest.mark.long
def test_the_tests_of_the_page_about_tests_pass(place):
    """Commands run as a reader's: in processes of their own, which share what is prepared."""
    compared, printed = 0, ""
    for block in blocks_of(HOW_TO / "test-a-view.md"):
        named = re.match(r"(?:--|#) (\S+/\S+)\n", block.text)
        if named:
            (place / named[1]).parent.mkdir(exist_ok=True)
            (place / named[1]).write_text(block.text, encoding="utf-8")
        elif block.kind == "sh":
            for line in block.text.splitlines():
                words = [sys.executable, "-m", *line.split()]
                environment = {**os.environ, "HEADRACE_CACHE": str(place / "cache")}
                done = subprocess.run(
                    words, env=environment, capture_output=True, text=True, check=False
                )
                printed = done.stdout
                assert done.returncode == int("wrong" in line), printed + done.stderr
        else:
            compared += 1
            assert same(printed, block.text), printed
    assert compared == 1


@pytest.mark.long
def test_the_page_about_deploying_shows_what_happens(db, place, capsys):
    compared, printed = 0, ""
    for block in blocks_of(HOW_TO / "deploy-definitions.md"):
        named = re.match(r"-- (views/\S+)\n", block.text)
        if named:
            (place / "views").mkdir(exist_ok=True)
            (place / named[1]).write_text(block.text, encoding="utf-8")
        elif block.kind == "sh" and "--data" in block.text:
            main(block.text.split()[1:], lambda *_, **__: LeftOpen(db))
            printed = capsys.readouterr().out
        elif block.kind == "text":
            compared += 1
            assert same(printed, block.text), printed
    assert compared == 5


@pytest.mark.long
def test_orders_from_kafka_reach_the_page(opened, place, broker):
    db = opened()  # it makes epochs as messages arrive
    page = HOW_TO / "kafka-to-a-page.md"
    for block in blocks_of(page):
        if block.kind in ("html", "js"):
            first, _, text = block.text.partition("\n")
            file = place / first.strip("/<!-> ")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
    assert follow(db, place, page, 60, **{"localhost:9092": broker.address}) >= 1
    with served(db, pages=place / "page") as running, browser(running.server.url) as shown:
        shown.open("pages/")
        shown.wait_for("ann", "#totals")
        assert shown.complaints() == []


def documents():
    return sorted([*DOCS.rglob("*.md"), DOCS.parent / "README.md"])


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=f"{page.stem}-{n}")
        for page in documents()
        for n, words in enumerate(commands_of(page))
    ],
)
def test_a_command_that_a_page_shows_is_one(words):
    """Its subcommands and options exist."""
    found: click.Command = command
    options = set(names_of_options(command))
    for word in words:
        if isinstance(found, click.Group) and word in found.commands:
            found = found.commands[word]
            options.update(names_of_options(found))
    assert found is not command or words == ["--help"], f"headrace {' '.join(words)} has no command"
    used = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
    assert used <= options


def names_of_options(of: click.Command) -> list[str]:
    return ["--help", *(name for option in of.params for name in option.opts)]


@pytest.mark.parametrize("page", documents(), ids=lambda page: page.name)
def test_a_statement_that_is_only_shown_can_be_read(page):
    """Those that need another system are not run."""
    for block in blocks_of(page):
        if (block.kind, block.word) == ("sql", "example"):
            for statement in split(block.text):
                parse_statement(statement)


def test_text_that_is_left_out_stands_for_anything_within_a_line():
    assert same("a | b | c\n", "a | … | c\n")
    assert not same("a | b\n", "a | …\nc")
    assert not same("a | b", "b | …")
