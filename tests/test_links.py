"""Every link of the pages leads somewhere: to a file of the repository, and a heading of it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for folder in (".", "docs", "benchmarks", "examples")
    for path in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
)


def text_of(page: Path) -> str:
    """The Markdown of a page without its blocks of code and spans of code."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return re.sub(r"`[^`\n]*`", lambda span: re.sub(r"[\[\]()!]", "", span[0]), text)


@cache
def anchors_of(page: Path, level: str = "#+ ") -> frozenset[str]:
    """The anchors that GitHub gives to the headings of a page, of all levels or of one."""
    anchors: set[str] = set()
    for heading in re.findall(rf"^{level}(.*)$", text_of(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        base = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        again = sum(
            anchor == base or re.fullmatch(rf"{re.escape(base)}-\d+", anchor) is not None
            for anchor in anchors
        )
        anchors.add(f"{base}-{again}" if again else base)
    return frozenset(anchors)


def broken_links(page: Path) -> list[str]:
    """The links and pictures of a page whose file or heading does not exist."""
    text = text_of(page)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(
        r"(?:src|srcset|href)=\"([^\"]+)\"", text
    )
    broken = []
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in anchors_of(path)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    assert broken_links(page) == []


def test_a_link_to_no_file_or_no_heading_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `b` (c)\n[a](#a-b-c) [b](#a) [c](none.md)\n```\n[d](none.md)\n```\n")
    assert broken_links(page) == ["#a", "none.md"]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if ROOT / "docs" in page.parents and page.name != "coverage.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_with_many_sections_lists_all_of_them(page):
    sections = len(re.findall(r"^## ", text_of(page), re.MULTILINE))
    listed = set(re.findall(r"\]\(#([^)\s]+)\)", text_of(page).partition("\n## ")[0]))
    if sections >= 6:
        missing = [anchor for anchor in anchors_of(page, "## ") if anchor not in listed]
        assert missing == [], "list these at the top of the page"


def test_every_page_of_the_documentation_is_linked_from_its_contents():
    """A page that nothing links to is not found by a reader."""
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)", text_of(page))
    }
    decisions = ROOT / "docs/decisions"
    documents = [page for page in (ROOT / "docs").rglob("*.md") if decisions not in page.parents]
    assert [page.name for page in documents if page not in linked] == []
