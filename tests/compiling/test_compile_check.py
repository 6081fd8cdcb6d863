"""The first call of a compiled function is compared with the uncompiled one, and leaves everything as it was."""

from __future__ import annotations

import contextlib
import copy
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

import dgl_tuplepack as tp
from dgl_tuplepack.compiling import check, torch_private
from dgl_tuplepack.compiling.reference import run_on_copies
from dgl_tuplepack.errors import CompileError
from tests.support.messages import refused
from tests.support.threads import at_the_same_time

pytestmark = pytest.mark.compile


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Miscompiles:
    """Takes the place of ``torch.compile``: the function with a mistake, a count of calls, and whether it runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[Any], Any] = lambda result: result) -> None:
        self.calls, self.is_running, self.mistake = 0, False, mistake

        def fake(function: Any, **settings: Any) -> Any:
            def compiled(*args: Any, **kwargs: Any) -> Any:
                self.calls += 1
                self.is_running = True
                try:
                    return self.mistake(function(*args, **kwargs))
                finally:
                    self.is_running = False

            return compiled

        monkeypatch.setattr(torch, "compile", fake)


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))


def rows(number: int = 40, seed: int = 0) -> Tensor:
    return torch.randn(number, 5, generator=torch.Generator().manual_seed(seed))


def scale_gradient(share: float) -> Callable[[Tensor], Tensor]:
    """Return what leaves the value and changes the gradient."""

    def mistake(result: Tensor) -> Tensor:
        if result.requires_grad:
            result.register_hook(lambda gradient: gradient * (1 + share))
        return result * 1

    return mistake


def reads_twice(with_gradients: bool) -> tuple[nn.Module, Callable[[Tensor], Any], Tensor]:
    """The smallest function that torch 2.13 compiles wrongly, as a loss or as values."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    linear, x = nn.Linear(8, 16), torch.randn(700, 8, generator=generator)
    src, dst = torch.randint(0, 700, (2, 1500), generator=generator)
    slots = torch.randint(0, 33, (700,), generator=generator)

    def sums(x: Tensor) -> tuple[Tensor, ...]:
        h = torch.relu(linear(x + torch.zeros_like(x).index_add(0, dst, x[src])))
        h2 = torch.relu(h + torch.zeros_like(h).index_add(0, dst, h[src]))
        return tuple(torch.zeros(33, y.shape[1]).index_add(0, slots, y) for y in (x, h, h2))

    return linear, (lambda x: sum(each.square().sum() for each in sums(x))) if with_gradients else sums, x


@pytest.mark.parametrize("with_gradients", [True, False])
def test_what_torch_compiles_wrongly_is_right_or_an_error(with_gradients: bool) -> None:
    linear, function, x = reads_twice(with_gradients)
    with torch.set_grad_enabled(with_gradients):
        found, expected = tp.compile(function)(x), function(x)
        torch.testing.assert_close(found, expected)
        if with_gradients:
            gradients = [torch.autograd.grad(each, linear.parameters()) for each in (found, expected)]
            torch.testing.assert_close(*gradients)
        if torch_private._version() < (2, 14):
            with refused(CompileError, "compiles ", "wrongly: the ", "compiled", "uncompiled", "check='warn'"):
                tp.compile(function, options={"max_fusion_size": 64})(x)
    assert linear.weight.grad is None


NETWORK = network()


@pytest.mark.parametrize(
    ("mistake", "function", "parts"),
    [
        (
            lambda result: result * 1.001,
            lambda x: NETWORK(x).square().mean() + 1,
            ("<lambda> wrongly: the output result is ", " compiled and ", " uncompiled"),
        ),
        (scale_gradient(1e-3), network(), ("the gradient of Sequential.", "of norm ")),
        (scale_gradient(1e-3), lambda x: x.sin(), ("the gradient of the argument x ",)),
        (
            lambda result: result[:-1],
            lambda x: x * 2,
            ("returns result float32 [39, 5] with ", "and uncompiled code result float32 [40, 5]"),
        ),
        (lambda result: result * 1.01, lambda x: torch.complex(x, 2 * x), ("wrongly",)),
        # A large number hides no other one.
        (
            lambda result: torch.where(torch.arange(5) < 2, result, result * 1.5),
            lambda x: x.detach().sin().masked_fill(torch.arange(5) < 2, -1e9),
            ("wrongly",),
        ),
        (
            lambda result: (result[0] * 1.5, result[1]),
            lambda x: (x.sin().mean(), torch.full((9,), 2**60)),
            ("wrongly",),
        ),
        # Nor does a large tensor with rounding errors.
        (
            lambda result: (result[0].nextafter(torch.tensor(torch.inf)), result[1] * 1.005),
            lambda x: (500 + x[:1].sin(), 1 + x[:1].sin().mean()),
            ("the output result[1] is ",),
        ),
    ],
)
def test_a_mistake_is_an_error_that_names_it(
    mistake: Any, function: Any, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    Miscompiles(monkeypatch, mistake)
    with refused(CompileError, *parts):
        tp.compile(function)(rows().requires_grad_())
    Miscompiles(monkeypatch)
    tp.compile(function)(rows().requires_grad_())


def test_a_wrong_gradient_of_one_small_parameter_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error would vanish next to the norm of all gradients."""
    big, small = nn.Parameter(torch.ones(50)), nn.Parameter(torch.full((3,), 0.5))
    fake = Miscompiles(monkeypatch)

    def loss_of(x: Tensor) -> Tensor:
        factor = small * 1
        if fake.is_running:
            factor.register_hook(lambda gradient: gradient * 1.1)
        return (big * x.sum() * 20).sum() + factor.sum()

    with refused(CompileError, "the gradient of a tensor outside of its arguments (float32 [3] on cpu)"):
        tp.compile(loss_of)(rows())


def test_a_wrong_buffer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()

    def mistake(result: Tensor) -> Tensor:
        with torch.no_grad():
            model[1].running_var.mul_(1.01)  # type: ignore[operator, union-attr]
        return result

    Miscompiles(monkeypatch, mistake)
    with torch.no_grad(), refused(CompileError, "wrongly: Sequential.1.running_var is of norm "):
        tp.compile(model)(rows())


def test_entries_that_are_not_finite_must_stand_at_the_same_places(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows().clone()
    x[3, 2] = torch.nan
    Miscompiles(monkeypatch)
    assert tp.compile(lambda x: x * 2)(x).isnan().sum() == 1
    Miscompiles(monkeypatch, lambda result: result.nan_to_num(nan=0.0))
    with refused(CompileError, "the output result is "):
        tp.compile(lambda x: x * 2)(x)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rounding_is_no_difference(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums in another order differ by what float64 tells, also where digits cancel."""
    fake, weight = Miscompiles(monkeypatch), nn.Parameter(torch.ones(5, dtype=dtype))

    def function(x: Tensor) -> Tensor:
        x = x.flip(0) if fake.is_running else x
        return (sum(x * weight) - 1e5 * weight).square().sum()

    x = (1e3 * rows(30) + 1e4).to(dtype) / 3
    assert tp.compile(function)(x) != function(x)


def test_a_rounding_error_that_crosses_a_kink_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float64 is on the side of float32; only inputs with imitated rounding errors reach the other one."""
    fake, weight = Miscompiles(monkeypatch), nn.Parameter(torch.ones(2))

    def loss_of(x: Tensor) -> Tensor:
        return torch.relu((x * weight).sum() - (1e-6 if fake.is_running else 0.0))

    assert tp.compile(loss_of)(torch.tensor([1.0, -1.0 + 5e-7])) == 0


def test_a_rounding_error_beside_a_kink_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the entries changes its side, so a gradient changes by 1/40; twice a gradient stays an error."""
    x = torch.linspace(-1, 1, 40)
    x[20] = 1e-9
    fake, weight = Miscompiles(monkeypatch), nn.Parameter(torch.ones(()))

    def loss_of(x: Tensor) -> Tensor:
        error = 1e-8 if fake.is_running and wrong else 0.0
        return (torch.relu((1.0 + x * weight) - 1.0 - error) * (1 + 1e6 * error)).sum()

    wrong = False
    tp.compile(loss_of)(x)
    wrong = True
    with refused(CompileError, "wrongly"):
        tp.compile(loss_of)(x)


class WrongFrom:
    """A backend of torch's compiler that is wrong from its n-th graph on."""

    def __init__(self, first: int) -> None:
        self.first, self.graphs = first, 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        if self.graphs < self.first:
            return graph
        return lambda *values: [each * 1.5 for each in graph(*values)]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "evaluation": lambda model: model.eval(),
    "frozen": lambda model: model[0].requires_grad_(False),
    "a module replaced": lambda model: model.__setitem__(2, nn.Tanh()),
    "precision": lambda model: model.double(),
    "threads": lambda model: torch.set_num_threads(torch.get_num_threads() + 1),
}


@pytest.mark.parametrize("change", [*CHANGES, "shape", "no gradients", "autocast", "inference"])
def test_a_call_for_which_torch_compiles_again_is_compared_again(change: str) -> None:
    model, x, threads, wrong = network(), rows(), torch.get_num_threads(), WrongFrom(2)
    step = tp.compile(lambda x: model(x), shapes=3, backend=wrong)
    step(x)
    step(rows(seed=1))
    assert wrong.graphs == 1
    modes = {"no gradients": torch.no_grad(), "autocast": torch.autocast("cpu"), "inference": torch.inference_mode()}
    try:
        if change in CHANGES:
            CHANGES[change](model)
        x = rows(41) if change == "shape" else x.double() if change == "precision" else x
        with modes.get(change, contextlib.nullcontext()), refused(CompileError, "wrongly"):
            step(x)
    finally:
        torch.set_num_threads(threads)


def test_other_contents_of_an_object_are_compared_again() -> None:
    """Its tensors are not part of the signature."""

    class Batch:
        def __init__(self, number: int) -> None:
            self.x = rows(number)

    step = tp.compile(lambda batch: batch.x.sin(), backend=WrongFrom(2))
    step(Batch(40))
    with refused(CompileError, "wrongly"):
        step(Batch(41))


def test_with_dynamic_shapes_each_code_is_compared() -> None:
    wrong = WrongFrom(2)
    step = tp.compile(lambda x: x.sin(), dynamic=True, backend=wrong)
    for number in (6, 7, 8):
        step(rows(number))
    assert wrong.graphs == 1
    with refused(CompileError, "wrongly"):
        step(rows(1))


def test_a_batch_that_shows_nothing_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of padding alone has gradients of 0, however wrong the code is."""
    weight = nn.Parameter(torch.ones(5))
    Miscompiles(monkeypatch, lambda result: result * 2)
    step = tp.compile(lambda x: (x * weight).sum())
    assert step(torch.zeros(4, 5)) == 0
    with refused(CompileError, "wrongly"):
        step(torch.ones(4, 5))


@pytest.mark.parametrize(("compares", "uncompiled", "compiled"), [(True, 2, 2), (False, 0, 1)])
def test_what_a_first_call_costs(
    compares: bool, uncompiled: int, compiled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    fake = Miscompiles(monkeypatch, lambda result: result if compares else 2 * result)
    step = tp.compile(lambda x: (calls.append(1), x * 1)[1], check=compares)  # type: ignore[func-returns-value]
    assert torch.equal(step(rows()), rows() if compares else 2 * rows())
    # The compiled function of this test calls the uncompiled one.
    assert (len(calls) - fake.calls, fake.calls) == (uncompiled, compiled)


def test_check_warn_leaves_the_function_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    Miscompiles(monkeypatch, lambda result: result * 2)
    step = tp.compile(lambda x: x * 1, check="warn", shapes=2)
    with pytest.warns(UserWarning, match="wrongly.*it stays uncompiled"):
        assert torch.equal(step(rows()), rows())
    assert not step.is_compiled
    assert torch.equal(step(rows(9)), rows(9))
    for value in (None, "error", 2):
        with refused(CompileError, "check must be True or False"):
            tp.compile(network(), check=value)  # type: ignore[arg-type]


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


def trains(x: Tensor) -> Tensor:
    with torch.no_grad():
        weight.sub_(0.1)
    return x * weight


def writes_data(x: Tensor) -> Tensor:
    weight.data.mul_(0.5)
    return x * weight


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (writes_data, "a tensor outside of its arguments (float32 [5] on cpu)"),
        (adds_to_a_global, "a tensor outside of its arguments (float32 [5] on cpu)"),
        (writes_its_argument, "the argument x"),
        (trains, "a tensor outside of its arguments (float32 [5] on cpu)"),
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


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_arguments_with_a_history_are_compared_and_keep_it() -> None:
    """The graph behind an argument belongs to the caller, also where it leads to a parameter that is read again."""
    cell, other = nn.GRUCell(5, 5), nn.GRUCell(5, 5)
    other.load_state_dict(cell.state_dict())
    step = tp.compile(lambda x, h: cell(x, h), backend="aot_eager")
    found, expected = torch.zeros(40, 5), torch.zeros(40, 5)
    for seed in range(3):
        found, expected = step(rows(seed=seed), found), other(rows(seed=seed), expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(*([p.grad for p in each.parameters()] for each in (cell, other)))


def test_hooks_that_change_gradients_are_no_difference() -> None:
    model = network()
    model[0].weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    tp.compile(model, backend="aot_eager")(rows()).sum().backward()
    assert model[0].weight.grad.abs().max() <= 1e-3


def test_sparse_gradients_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    table, ids = nn.Embedding(9, 3, sparse=True), torch.arange(5)
    Miscompiles(monkeypatch)
    tp.compile(lambda ids: table(ids).square().sum())(ids)
    Miscompiles(monkeypatch, lambda result: result * 1.01)
    with refused(CompileError, "wrongly"):
        tp.compile(lambda ids: table(ids))(ids)


def test_tensors_in_returned_objects_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    class Out:
        def __init__(self, value: Any) -> None:
            self.value = value

    wrong = [False]
    Miscompiles(monkeypatch, lambda result: Out({"here": result.value["here"] * 2}) if wrong[0] else result)
    tp.compile(lambda x: Out({"here": x.sin()}))(rows())
    wrong[0] = True
    with refused(CompileError, "the output result.value['here'] is "):
        tp.compile(lambda x: Out({"here": x.sin()}))(rows())
    wrong[0] = False
    with pytest.warns(UserWarning, match="not compared.*it returns no tensors"):
        tp.compile(lambda x: Out(3))(rows())


def test_gradients_that_are_not_finite_are_said_once() -> None:
    """Compiled and uncompiled code agree on them, so nothing else would say so."""
    labels = torch.tensor([1.0, torch.nan, 3.0])
    mask, head = ~labels.isnan(), nn.Linear(1, 1)

    def loss_of(x: Tensor) -> Tensor:
        return tp.nn.masked_mean((head(x)[:, 0] - labels).square(), mask)

    step = tp.compile(loss_of, backend="aot_eager")
    with pytest.warns(UserWarning, match=r"result of loss_of is finite.*gradient of Linear.weight is not.*masked_loss"):
        assert step(torch.ones(3, 1)).isfinite()
    step(torch.zeros(3, 1))


def test_other_random_numbers_are_not_compared_and_said_once() -> None:
    step = tp.compile(lambda x: x + torch.randn_like(x), shapes=2)
    warning = "not compared with uncompiled code .randn_like draws different random numbers"
    with pytest.warns(UserWarning, match=warning):
        step(rows())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(rows(9))


def test_masks_of_dropout_are_the_same_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """So dropout is compared like anything else, and a mistake next to it is found."""
    model = nn.Sequential(nn.Linear(5, 30), nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(30, 30))
    seen = []
    real = check.difference_of
    monkeypatch.setattr(check, "difference_of", lambda *args: seen.append(real(*args)) or seen[-1])
    tp.compile(lambda x: functional.dropout(model(x), 0.2).square().mean())(rows(200))
    assert seen == [""]

    last = model[4].weight
    real_compile = torch.compile

    def tampered(function: Any, **settings: Any) -> Any:
        return real_compile(lambda x: function(x) + 1e-3 * last.square().sum(), **settings)

    monkeypatch.setattr(torch, "compile", tampered)
    with refused(CompileError, "wrongly"):
        tp.compile(lambda x: functional.dropout(model(x), 0.2).square().mean())(rows(200))


def test_dropout_whose_result_is_not_used_is_not_compared() -> None:
    """Compiled code does not draw its mask, so that all later masks are others."""

    def function(x: Tensor) -> Tensor:
        functional.dropout(x, 0.5)
        return functional.dropout(x, 0.5)

    with pytest.warns(UserWarning, match="not compared.*compiled code draws different random numbers"):
        tp.compile(function)(rows())


def test_a_function_that_fails_on_copies_only_is_compiled_and_said() -> None:
    x = rows()
    address = x.data_ptr()

    def only_there(y: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and y.data_ptr() != address:
            raise ValueError("elsewhere")
        return y * 2

    with pytest.warns(UserWarning, match="on copies of its tensors, it raises ValueError: elsewhere"):
        tp.compile(only_there, backend="eager")(x)


def test_lazy_modules_are_not_compared_before_they_have_parameters() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2))
    step = tp.compile(model, backend="eager")
    with pytest.warns(UserWarning, match="not compared.*LazyLinear has no parameters yet: call the model once first"):
        assert torch.equal(step(rows()), model(rows()))
    assert model[0].weight.shape == (4, 5)


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
