"""Sizes in files: read back as they were, and refused where they belong to another dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError
from tests.messages import refused


@given(rows=st.lists(st.tuples(*[st.integers(0, 2**63 - 1)] * 3), min_size=1))
def test_sizes_are_read_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = tmp_path_factory.mktemp("sizes") / "a.sizes"
    sizes = tp.GraphSizes(np.array(rows), ("nodes", "é", "\ud800"))
    sizes.save(path)
    found = tp.GraphSizes.load(path)
    assert found.array.tolist() == sizes.array.tolist()
    assert found.components == sizes.components


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "a.sizes"
    tp.GraphSizes([[3, 4], [2, 2]]).save(path)
    intact = path.read_bytes()
    for at in range(len(intact)):
        for content in (intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :], intact[:at]):
            path.write_bytes(content)
            with pytest.raises(FormatError, match="sizes"):
                tp.GraphSizes.load(path)
    path.write_bytes(intact + b"\0")
    with refused(FormatError, str(path)):
        tp.GraphSizes.load(path)
