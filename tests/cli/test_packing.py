"""``headrace cluster pack`` where there is nothing that it can pack."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command


def test_a_package_that_is_a_link_to_its_sources_is_refused(command: Command, tmp_path: Path):
    pytest.importorskip("venv_pack")
    place = tmp_path / "env.tar.gz"
    assert command("cluster", "pack", str(place)) == 1
    assert "error[invalid]: package headrace cannot be packed" in command.err
    assert "Installed with --editable, as a link to sources: headrace." in command.err
    assert not place.exists()


def test_without_the_library_the_extra_is_named(command: Command, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "venv_pack", None)
    assert command("cluster", "pack", str(tmp_path / "env.tar.gz")) == 1
    assert "error[invalid]: the library venv-pack2 is not installed" in command.err
    assert 'pip install "headrace[cluster]"' in command.err


@pytest.mark.parametrize(
    ("made", "hint"), [(None, "python -m venv env"), ("conda-meta", "conda-pack")]
)
def test_an_environment_of_another_kind_is_refused(
    command: Command, tmp_path: Path, monkeypatch, made: str | None, hint: str
):
    pytest.importorskip("venv_pack")
    if made:
        (tmp_path / made).mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    assert command("cluster", "pack", str(tmp_path / "env.tgz")) == 1
    assert f'error[invalid]: "{tmp_path}" is not a virtual environment' in command.err
    assert hint in command.err


def test_another_kind_of_file_is_wrong_usage(command: Command, tmp_path: Path):
    assert command("cluster", "pack", str(tmp_path / "env.zip")) == 2
    assert "Give the name of a .tar.gz file." in command.err
