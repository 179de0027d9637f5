"""Where a database may be opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.files.directories import data_directory


def test_an_empty_path_is_refused_in_place_of_the_current_directory() -> None:
    with pytest.raises(HeadraceError, match="data directory has an empty path"):
        data_directory("")
    assert data_directory(".") == Path()
