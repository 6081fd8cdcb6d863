"""A packed loader that accelerate prepares is an error that names accelerate."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError
from tests.support.messages import refused
from tests.support.stores import molecules

pytestmark = pytest.mark.processes

ITEMS = molecules(40)


def prepared(loader: Any) -> Any:
    accelerate = pytest.importorskip("accelerate")
    return accelerate.Accelerator(cpu=True).prepare(loader)


@pytest.mark.parametrize("padded", [True, False])
def test_a_packed_loader_that_lost_its_sampler_is_refused(padded: bool) -> None:
    loader = tp.packed_loader(ITEMS, 12, padded=padded)
    with refused(InputError, "single graph 0", "accelerator.prepare(loader)", "loader.view"):
        next(iter(DataLoader(loader.dataset, batch_size=None)))
    assert sum(1 for _ in loader) == len(loader)


@pytest.mark.parametrize("padded", [True, False])
def test_a_packed_loader_is_refused_by_name(padded: bool) -> None:
    with refused(InputError, "accelerate", "prepare only the model and the optimiser"):
        next(iter(prepared(tp.packed_loader(ITEMS, 12, padded=padded))))
