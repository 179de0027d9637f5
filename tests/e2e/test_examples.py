"""The smallest examples print what they show at their top."""

from __future__ import annotations

from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import headrace
from length import choose

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("duality", "accounts", "orders", "trending", "viewership", "features")


@pytest.mark.spark
@pytest.mark.parametrize("name", choose([NAMES[0]], NAMES))
def test_an_example_prints_what_it_shows(name, spark, tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = spec_from_file_location(f"example_{name}", EXAMPLES / name / "pipeline.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.example(partial(headrace.connect, tmp_path / "db", spark=spark, partitions=2))
    shown = [line[4:] for line in module.__doc__.splitlines() if line.startswith("    ")]
    assert capsys.readouterr().out.splitlines() == shown
