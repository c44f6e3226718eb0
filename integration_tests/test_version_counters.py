"""Compiled writes are counted as eager's are: autograd compares the counters of what it has saved."""

import pytest
import torch

import opmill

F = torch.nn.functional
nn = torch.nn
WRITES = {
    "once": lambda x: x.add_(1),
    "twice": lambda x: x.add_(1).mul_(2),
    "and a part": lambda x: (x.add_(1), x[0].mul_(2)),
    "a part": lambda x: x[1:].zero_(),
    "a view": lambda x: x.view(-1).add_(1),
    "data": lambda x: x.data.add_(1),
    "data twice": lambda x: (x.data.add_(1), x.data[0].mul_(2)),
    "data and itself": lambda x: (x.data.add_(1), x.mul_(2)),
    "detached": lambda x: x.detach().add_(1),
    "an item": lambda x: x.__setitem__(0, 5),
    "a transpose": lambda x: x.t().add_(1),
    "out": lambda x: torch.add(x, 1, out=x),
    "filled": lambda x: x.fill_(0).add_(2),
    "in place": lambda x: F.relu(x, inplace=True),
    "nothing": lambda x: x + 1,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_counted_as_in_eager(write):
    def counts(call):
        x = torch.ones(2, 2)
        for _ in range(3):
            call(x)
            yield x._version, x.tolist()

    assert list(counts(opmill.compile(write))) == list(counts(write))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_counted_beside_a_gradient(write):
    def function(x, w):
        with torch.no_grad():
            write(x)
        return (w * w).sum()

    def counts(call):
        x, w = torch.ones(2, 2), torch.ones(2, requires_grad=True)
        for _ in range(3):
            call(x, w).backward()
            yield x._version, x.tolist(), w.grad.tolist()

    assert list(counts(opmill.compile(function))) == list(counts(function))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_was_saved_before(write):
    def outcome(call):
        x, w = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
        y = (x * w).sum()
        call(w)
        try:
            y.backward()
        except RuntimeError as exc:
            return str(exc)
        return x.grad.tolist()

    assert outcome(opmill.compile(write)) == outcome(write)


def test_parameters_of_modules():
    def counts(call, module):
        with torch.no_grad():
            call(module)
        return [p._version for p in module.parameters()]

    def average(module):
        for p in module.parameters():
            p.mul_(0.9).add_(0.1)
            p.data.add_(1)

    assert counts(opmill.compile(average), torch.nn.Linear(2, 2)) == counts(average, torch.nn.Linear(2, 2))


def test_several_inputs_that_share_memory():
    def f(a, b):
        a.add_(1).mul_(2)
        b.data.add_(1)
        return a.sum() + b.sum()

    def counts(call):
        x, y = torch.ones(4), torch.ones(4)
        call(x, y)
        call(x[:2], x[2:])
        return x._version, y._version, x.tolist()

    assert counts(opmill.compile(f)) == counts(f)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_in_inference_mode(write):
    """Where tensors are made that do not count."""
    call = opmill.compile(write, fullgraph=True)
    for made, run in ((True, True), (False, True)):
        with torch.inference_mode(made):
            x, y = torch.ones(2, 2), torch.ones(2, 2)
        with torch.inference_mode(run):
            for _ in range(2):
                call(x), write(y)
        assert x.tolist() == y.tolist()


def statistics(**options):
    return lambda x, m, v: F.batch_norm(x, m, v, training=True, **options)


SILENT = {
    "batch norm": statistics(),
    "with a momentum": statistics(momentum=0.5),
    "by name": lambda x, m, v: F.batch_norm(x, running_var=v, running_mean=m, training=True),
    "torch's own": lambda x, m, v: torch.batch_norm(x, None, None, m, v, True, 0.1, 1e-5, False),
    "an operator": lambda x, m, v: torch.native_batch_norm(x, None, None, m, v, True, 0.1, 1e-5)[0],
    "of a view": lambda x, m, v: F.batch_norm(x, m[:], v.view(-1), training=True),
    "twice": lambda x, m, v: F.batch_norm(F.batch_norm(x, m, v, training=True), m, v, training=True),
    "and a write": lambda x, m, v: (F.batch_norm(x, m, v, training=True), m.add_(1)),
    "and two writes": lambda x, m, v: (F.batch_norm(x, m, v, training=True), m.add_(1).mul_(2)),
    "instance norm": lambda x, m, v: F.instance_norm(x.t()[None], m, v),
    "evaluated": lambda x, m, v: F.batch_norm(x, m, v),
    "lists": lambda x, m, v: (torch._foreach_mul_([m, v], 2), torch._foreach_addcmul_([m], [v], [v])),
    "a list": lambda x, m, v: torch._foreach_add_([x, m, v], 1),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("write", SILENT.values(), ids=SILENT)
def test_what_eager_does_not_count(write, dynamic):
    def counts(call):
        for rows in (4, 4, 5):
            given = torch.arange(rows * 3.0).view(rows, 3), torch.zeros(3), torch.ones(3)
            call(*given)
            yield [t._version for t in given]

    assert list(counts(opmill.compile(write, dynamic=dynamic))) == list(counts(write))


MODULES = {
    "batch norm": lambda: nn.BatchNorm1d(3),
    "averages": lambda: nn.BatchNorm1d(3, momentum=None),
    "in float64": lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(True), nn.BatchNorm1d(3)).double(),
    "spectral": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5, inplace=True), nn.BatchNorm1d(3)),
    "instance norm": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 1)), nn.Flatten(), nn.Unflatten(0, (1, -1)), nn.InstanceNorm1d(4, track_running_stats=True)
    ),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_modules_in_training_count_as_in_eager(make):
    assert list(counts_of(make, True, True)) == list(counts_of(make, True, False))


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_modules_in_evaluation_count_as_in_eager(make):
    assert list(counts_of(make, False, True)) == list(counts_of(make, False, False))


def counts_of(make, train, compiled):
    """Of what a module has and is given, behind calls and their gradients."""
    torch.manual_seed(0)
    module = make().train(train)
    call = opmill.compile(module) if compiled else module
    for _ in range(3):
        x = torch.randn(4, 3, dtype=next(iter(module.state_dict().values())).dtype)
        result = call(x).sum()
        yield [t._version for t in (*module.parameters(), *module.buffers(), x)]
        if result.requires_grad:
            result.backward()
            yield [t._version for t in (*module.parameters(), *module.buffers())]


def test_statistics_that_an_eager_graph_has_saved():
    module = nn.BatchNorm1d(3)
    x = torch.randn(4, 3, requires_grad=True)
    loss = module(x).sum()
    opmill.compile(module)(x)
    loss.backward()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p),
    "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9),
    "centered": lambda p: torch.optim.RMSprop(p, centered=True),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "adamax": lambda p: torch.optim.Adamax(p),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_steps_count_as_in_eager(make):
    pytest.importorskip("opmill_kernel_gen_cpp")

    def counts(compiled):
        parameters = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 2))]
        optimizer = make(parameters)
        step = opmill.compile(optimizer.step) if compiled else optimizer.step
        for k in range(3):
            for p in parameters:
                p.grad = torch.full_like(p, k + 1.0)
            step()
            state = [optimizer.state[p] for p in parameters]
            yield [p._version for p in parameters], [{n: t._version for n, t in each.items() if torch.is_tensor(t)} for each in state]

    assert list(counts(True)) == list(counts(False))


def broken(tensors):
    torch._dynamo.graph_break()
    return written(tensors)


def written(tensors):
    with torch.no_grad():
        tensors[-1][0] += 1
        tensors[-1].mul_(2)
    return tensors


OWNERS = {
    "given": lambda x: x,
    "computed": lambda x: x + 1,
    "a leaf": lambda x: torch.ones(3).requires_grad_(),
    "a copy": lambda x: x.detach().clone().requires_grad_(),
    "plain": lambda x: torch.zeros(3),
}
TAKEN = {
    "data": lambda t: (t, t.data),
    "detached": lambda t: (t, t.detach()),
    "a view": lambda t: (t, t.view(3)),
    "a view of data": lambda t: (t, t.data.view(3)),
    "data of a view": lambda t: (t, t.view(3).data),
    "a part of data": lambda t: (t, t.data[:2]),
    "data of what is detached": lambda t: (t, t.detach().data),
    "data and a part of it": lambda t: (d := t.data, d[1:], t, d[:2]),
    "data before itself": lambda t: (t.data, t),
    "data twice": lambda t: (t, t.data, t.data),
    "detached alone": lambda t: (t.detach(),),
    "detached twice": lambda t: (t, t.detach(), t.detach()[1:]),
    "itself": lambda t: (t, t),
    "one of several": lambda t: (t, t.chunk(2)[0]),
    "a copy": lambda t: (t, t.clone()),
}


@pytest.mark.parametrize("where", [lambda tensors: tensors, written, broken], ids=["outside", "inside", "behind a break"])
@pytest.mark.parametrize("taken", TAKEN.values(), ids=TAKEN)
@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS)
def test_results_that_share_memory_share_their_counts_as_in_eager(owner, taken, where):
    def function(x):
        return where(taken(owner(x)))

    def outcome(call):
        x = torch.arange(3.0).requires_grad_()
        try:
            tensors = (*call(x), x)
            for each in tensors:
                before = [t._version for t in tensors]
                with torch.no_grad():
                    each += 1
                yield [t._version - then for t, then in zip(tensors, before, strict=True)], [t.tolist() for t in tensors]
        except RuntimeError as exc:
            yield str(exc).split(" is a view")[0]

    assert list(outcome(opmill.compile(function))) == list(outcome(function))


def test_perturbing_a_tensor_through_its_data_spoils_no_backward():
    def function(x):
        y, found = (x * x).sum(), []
        for k in range(3):
            entry = x.data[k]
            before = entry.clone()
            entry.copy_(before + 1)
            torch._dynamo.graph_break()
            found.append((x * x).sum().item())
            entry.copy_(before)
        return y, found

    def outcome(call):
        x = torch.ones(3, requires_grad=True)
        y, found = call(x)
        return found, x._version, x.tolist()

    assert outcome(opmill.compile(function)) == outcome(function)
