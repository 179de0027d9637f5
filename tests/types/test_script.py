"""Type checkers read a program that uses the package as users do: pyright here, mypy in ``make check``."""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import headrace
import headrace.testing
from headrace.interfaces.settings import GivenSettings, Settings, setting_names

ROOT = Path(__file__).parents[2]


def test_pyright_strict_finds_nothing_in_a_program_and_names_each_misuse():
    pytest.importorskip("basedpyright", reason="pyright is installed by make setup")
    found = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 errors, 0 warnings" in found.stdout


def test_the_package_says_that_it_has_types():
    assert (files("headrace") / "py.typed").is_file()


def test_each_setting_is_a_keyword_of_connect_with_its_type():
    declared = Settings.__annotations__
    assert GivenSettings.__annotations__.keys() == set(setting_names())
    for name, kind in GivenSettings.__annotations__.items():
        assert kind.__forward_arg__ == declared[name], name


@pytest.mark.parametrize("module", [headrace, headrace.testing], ids=lambda m: m.__name__)
def test_a_module_lists_what_it_exports(module):
    public = [name for name in dir(module) if not name.startswith("_")]
    assert public == sorted(name for name in module.__all__ if not name.startswith("_"))
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_listing_the_names_imports_nothing():
    code = "import sys, headrace; dir(headrace); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
