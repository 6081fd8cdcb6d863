"""Each thread has masks of its own: threads that train at the same time get what they would get one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError
from tests.batches.test_compiled_batches import GRAPHS, homogeneous
from tests.support.threads import Run, at_the_same_time

pytestmark = pytest.mark.usefixtures("forget")

STEPS = 6


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """Batches of two threads: of one shape, with other graphs and other numbers of graphs in every step."""
    store = tp.GraphStore.write(tmp_path_factory.mktemp("threads") / "store", homogeneous())
    view = store.padded(tp.Limits.from_components(store.sizes.totals(), graphs=GRAPHS))
    return [
        [view[list(range(step + 1))] for step in range(STEPS)],
        [view[list(range(9, 19 - step))] for step in range(STEPS)],
    ]


def norm(tracked: bool = True) -> nn.Module:
    return tp.nn.convert(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=tracked)), verbose=False)


def assert_threads_agree(make: Callable[[], Run], arguments: list[Any]) -> None:
    """Threads give what calls one after the other give; `make` gives fresh models each time."""
    run = make()
    alone = [run(number, argument, threading.Barrier(1)) for number, argument in enumerate(arguments)]
    torch.testing.assert_close(at_the_same_time(make(), arguments), alone)


def x_of(batch: Any) -> Tensor:
    x: Tensor = batch.node_features["x"].clone().requires_grad_()
    return x


def scoped(model: nn.Module) -> Callable[[Any, Tensor], Tensor]:
    """A function of a batch, or its tensors, with the scope inside."""

    def function(t: Any, x: Tensor) -> Tensor:
        with tp.nn.masked(t):
            out: Tensor = model(x)
        return out

    return function


def loss_of(out: Tensor) -> Tensor:
    return (out.square() * torch.arange(1.0, 4.0)).sum()


def test_scopes_inside_of_a_function(batches: list[list[Any]]) -> None:
    """Outputs, gradients and statistics of a model for each thread."""

    def make() -> Run:
        models = [norm(), norm()]
        calls = [scoped(model) for model in models]

        def run(number: int, steps: Any, barrier: threading.Barrier) -> Any:
            inputs, outputs = [x_of(batch) for batch in steps], []
            for batch, x in zip(steps, inputs, strict=True):
                barrier.wait()
                outputs.append(calls[number](batch.tensors, x))
            for out in outputs:
                loss_of(out).backward()
            return outputs, [x.grad for x in inputs], list(models[number].state_dict().values())

        return run

    assert_threads_agree(make, batches)


def test_a_thread_does_not_see_the_scope_of_another(batches: list[list[Any]]) -> None:
    def run(number: int, batch: Any, barrier: threading.Barrier) -> None:
        with pytest.raises(SchemaError, match="has no mask"):
            norm()(x_of(batch))

    with tp.nn.masked(batches[0][0]):
        at_the_same_time(run, [batches[0][0]])


def test_layers_that_run_again_in_the_backward_pass(batches: list[list[Any]]) -> None:
    """With the scope inside the checkpointed function, in any thread; around it, in this one, as on the CPU."""
    batch, model = batches[0][2], norm(tracked=False)
    x, again = x_of(batch), x_of(batch)
    loss_of(scoped(model)(batch, x)).backward()
    # Another thread runs the layers again.
    loss = loss_of(checkpoint(scoped(model), batch, again, use_reentrant=False))
    at_the_same_time(lambda *_: loss.backward(), [None])
    torch.testing.assert_close(again.grad, x.grad)

    with tp.nn.masked(batch):
        loss = loss_of(checkpoint(model, x_of(batch), use_reentrant=False))
        with pytest.raises(SchemaError, match="has no mask"):
            at_the_same_time(lambda *_: loss.backward(), [None])
