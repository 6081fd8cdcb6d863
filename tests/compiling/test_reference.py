"""A compared call runs on copies: it leaves everything as it was, and refuses functions that write tensors."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import dgl_tuplepack as tp
from dgl_tuplepack.compiling.reference import run_on_copies
from dgl_tuplepack.errors import CompileError
from tests.support.compiled import network, rows
from tests.support.messages import refused
from tests.support.threads import at_the_same_time

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("forget")]


def test_gradients_buffers_and_random_numbers_stay() -> None:
    """After a compared call, all is as after one call of a compiled function that is not compared."""
    states = []
    for compares in (True, False):
        model = network()
        model.insert(3, nn.Dropout(0.5))
        called: list[int] = []
        model[0].weight.register_post_accumulate_grad_hook(lambda parameter, called=called: called.append(1))
        model[4].bias.grad = torch.full((3,), 5.0)
        torch.manual_seed(7)
        result = tp.compile(model, check=compares)(rows())
        assert not called
        assert [name for name, each in model.named_parameters() if each.grad is not None] == ["4.bias"]
        assert torch.equal(model[4].bias.grad, torch.full((3,), 5.0))
        assert model[1].num_batches_tracked == 1
        states.append((result, torch.get_rng_state(), *model.buffers()))
        result.sum().backward()
        assert called == [1]
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_the_run_in_float64_has_the_results_of_a_model_in_float64() -> None:
    def function(x: Tensor, model: nn.Module, dtype: torch.dtype = torch.float32) -> Tensor:
        rows_of = torch.arange(len(x)) % 4
        return torch.zeros(4, 3, dtype=dtype).index_add(0, rows_of, model(x)).square().sum()

    model, x = network(), rows()
    of_float64 = copy.deepcopy(model).double()
    found = run_on_copies(function, (x, model), {}, [model], exact=True)
    expected = function(x.double(), of_float64, torch.float64)
    torch.testing.assert_close(found.outputs["result"], expected, rtol=1e-12, atol=0)
    for one, other in zip(model.parameters(), of_float64.parameters(), strict=True):
        (gradient,) = torch.autograd.grad(expected, other, retain_graph=True)
        torch.testing.assert_close(found.gradients[id(one)], gradient, rtol=1e-9, atol=1e-12)


@pytest.fixture
def _group_of_one() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_group_of_one")
def test_distributed_data_parallel_around_it_reduces_once() -> None:
    """Its hooks see one backward pass a step, also in the first one."""
    plain = network()
    step = nn.parallel.DistributedDataParallel(tp.compile(copy.deepcopy(plain)))
    for seed in range(3):
        for each in (step, plain):
            each.zero_grad()
            each(rows(seed=seed)).square().mean().backward()
        torch.testing.assert_close(*([p.grad for p in each.parameters()] for each in (step, plain)))


@pytest.mark.usefixtures("_group_of_one")
def test_distributed_data_parallel_inside_is_not_called_twice() -> None:
    model = nn.parallel.DistributedDataParallel(network())
    step = tp.compile(lambda x: model(x).square().mean(), backend="eager", fullgraph=False)
    with pytest.warns(UserWarning, match="not compared.*DistributedDataParallel.*wrap the compiled module in it"):
        step(rows()).backward()
    step(rows(seed=1)).backward()


def test_attributes_of_modules_and_arguments_stay() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.last = 0, None
            self.register_buffer("mean", torch.zeros(()))

        def forward(self, batch: Any) -> Tensor:
            batch.x = batch.x * 2
            self.calls += 1
            self.mean = 0.5 * self.mean + batch.x.mean().detach()
            self.last = batch.x
            return batch.x

    class Batch:
        def __init__(self) -> None:
            self.x = rows()

    batch, model = Batch(), Counts()
    result = tp.compile(model, backend="eager", fullgraph=False)(batch)
    assert torch.equal(result, 2 * rows())
    assert torch.equal(batch.x, 2 * rows())
    assert model.calls == 1
    assert model.mean.dtype == torch.float32
    torch.testing.assert_close(model.mean, 2 * rows().mean())


total = torch.zeros(5)
weight = nn.Parameter(torch.ones(5))


def adds_to_a_global(x: Tensor) -> Tensor:
    total.add_(x.sum(0).detach())
    return x * weight


def writes_its_argument(x: Tensor) -> Tensor:
    x[:, 0] = 1.0
    return x * weight


def writes_data(x: Tensor) -> Tensor:
    weight.data.mul_(0.5)
    return x * weight


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (writes_data, "a tensor outside of its arguments (float32 [5] on cpu)"),
        (adds_to_a_global, "a tensor outside of its arguments"),
        (writes_its_argument, "the argument x"),
    ],
)
def test_a_function_that_writes_tensors_is_refused_by_name(function: Callable[..., Any], named: str) -> None:
    x, before = rows(), (total.clone(), weight.detach().clone())
    name = function.__name__
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode(), refused(CompileError, f"{name} writes to {named}", "check=False"):
            tp.compile(function, backend="eager")(x)
    assert torch.equal(x, rows())
    assert torch.equal(total, before[0])
    assert torch.equal(weight, before[1])
    tp.compile(function, backend="eager", check=False)(x)


def test_an_optimiser_and_a_backward_pass_inside_are_refused() -> None:
    model = nn.Linear(5, 1)
    optimiser = torch.optim.Adam(model.parameters(), 0.1)
    model(rows()).sum().backward()
    before = copy.deepcopy(model.state_dict())
    with refused(CompileError, "writes to a tensor outside of its arguments (float32 [1, 5] on cpu)"):
        tp.compile(lambda x: (optimiser.step(), x)[1], backend="eager", fullgraph=False)(rows())  # type: ignore[func-returns-value]
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    model.zero_grad()

    def with_backward(x: Tensor) -> Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    with refused(CompileError, "with_backward writes to Linear."):
        tp.compile(with_backward, backend="eager", fullgraph=False)(rows())
    assert model.weight.grad is None


def test_threads_compare_at_the_same_time() -> None:
    """The mode that copies tensors belongs to one thread."""
    models = [network() for _ in range(4)]

    def run(i: int, model: Any, barrier: threading.Barrier) -> Tensor:
        step = tp.compile(model, backend="eager")
        barrier.wait()
        return step(rows(seed=i))  # type: ignore[no-any-return]

    for i, found in enumerate(at_the_same_time(run, models)):
        torch.testing.assert_close(found, network()(rows(seed=i)))
        assert models[i][1].num_batches_tracked == 1
