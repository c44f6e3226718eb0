"""Records of operators: each is of an operator that there is, and each fact in it is what the operator does."""

import contextlib
import math
import textwrap
from dataclasses import replace

import pytest
import torch

import opmill_graph_ir.ops as families
from opmill_graph_ir.capture.functionalize import functionalize
from opmill_graph_ir.capture.joint import capture_joint
from opmill_graph_ir.capture.partition import partition
from opmill_graph_ir.errors import GraphError
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower
from opmill_graph_ir.ops.pairs import PAIR_ROWS
from opmill_graph_ir.ops.records import CHEAP, OperatorRecord, Rows, all_records, joined, record_of
from opmill_graph_ir.schedule.cost import cost

F = torch.nn.functional
INTEGERS_ONLY = ("bitwise", "__")
POINTWISE = sorted(name for name, record in all_records().items() if record.kind == "pointwise")


def _family(*names: str) -> Rows:
    rows = Rows()
    rows.lowers(*names)(lambda ctx, node: NotImplemented)
    return rows


def test_families_are_joined():
    first, second = _family("relu", "neg"), _family("exp")
    assert joined({"first": first, "second": second}).keys() == {"aten::relu", "aten::neg", "aten::exp"}
    assert joined({"first": first})["aten::relu"].family == "first"


def test_an_operator_in_two_families_is_an_error():
    with pytest.raises(GraphError, match="GI041: aten::neg has rows in first and in second"):
        joined({"first": _family("relu", "neg"), "second": _family("neg")})


def test_an_operator_twice_in_a_family_is_an_error():
    with pytest.raises(GraphError, match="GI041: aten::neg has two rows"):
        _family("neg", "neg")


def test_an_unknown_operator_is_torchs_own():
    record = record_of("mylib::op")
    assert record == OperatorRecord("mylib::op")
    assert record.lower is None and record.recompute == "never" and not record.any_layout and not record.own_memory


#: Operators of the aten graph that torch has not.
OWN = {"opmill::attention", "opmill::attention_backward"}


def _overload(name: str):
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), base, None), overload or "default", None)


@pytest.mark.parametrize("table", [all_records(), PAIR_ROWS], ids=["records", "pairs"])
def test_each_record_is_of_an_operator_that_there_is(table):
    assert [name for name in table if _overload(name) is None and name not in OWN] == []
    named = {r.out for r in table.values() if r.out} | {f"aten::{r.gradient}" for r in table.values() if r.gradient}
    assert [name for name in named if _overload(name) is None] == []


# ---- what the records of pointwise operators say ---------------------------------------------------------------------------

SIZES = (2, 4, 3, 5)


def _number(name: str, argument) -> object:
    """A number for a parameter that is no tensor."""
    name = name.removeprefix("aten::")
    if argument.has_default_value() and argument.name not in ("min", "max"):
        return argument.default_value
    kind = str(argument.type).removeprefix("Optional[").rstrip("]")
    if argument.name == "limit" or name.startswith(INTEGERS_ONLY) or kind in ("int", "SymInt"):
        return 2
    return {"bool": False, "str": "floor"}.get(kind, 0.25)


def _arguments(name: str, make):
    """Arguments of the operator: ``make(k)`` for its k-th tensor, of [2, 4, 3, 5]; numbers in the range that most functions have."""
    func, args, kwargs, tensors = _overload(name), [], {}, 0
    for argument in func._schema.arguments:
        if "Tensor" in str(argument.type):
            value = make(tensors)
            tensors += 1
        else:
            value = _number(name, argument)
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return func, args, kwargs


def _tensor(name: str, k: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(k)
    if name == "aten::masked_fill.Tensor" and k == 2:
        return torch.tensor(0.25, dtype=dtype)
    if name.startswith(("aten::where", "aten::masked_fill")) and k == int("masked_fill" in name):
        return torch.rand(SIZES, generator=generator) < 0.5
    if name.removeprefix("aten::").startswith(INTEGERS_ONLY):
        return torch.randint(1, 7, SIZES, generator=generator)
    return (torch.rand(SIZES, generator=generator) * 0.6 + 0.2).to(dtype)


def _captured(name: str, tensors: list[torch.Tensor]):
    """The aten graph of a call of the operator, and the tensors that it takes."""
    graph = torch.fx.Graph()
    nodes = {}

    def make(k):
        nodes[k] = graph.placeholder(f"x{k}")
        return nodes[k]

    func, args, kwargs = _arguments(name, make)
    graph.output((graph.call_function(func, tuple(args), kwargs),))
    with torch.no_grad():
        return functionalize(torch.fx.GraphModule(torch.nn.Module(), graph), tensors[: len(nodes)])


def _inputs(name: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [_tensor(name, k, dtype) for k in range(sum("Tensor" in str(a.type) for a in _overload(name)._schema.arguments))]


@pytest.mark.parametrize("name", POINTWISE)
def test_recompute_is_cheap_where_the_loops_are(name):
    """Every pointwise operator that becomes loops says whether it may run again, and says so by what its loops cost."""
    lowered = lower(_captured(name, _inputs(name)))
    made = [n for n in lowered.nodes if not isinstance(n, Extern)]
    assert made or name == "aten::positive", "no loops"
    total = sum(cost(*(x.value for x in n.lets), n.value) for n in made)
    assert all_records()[name].recompute == ("cheap" if total <= CHEAP else "dear"), total


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_operators_are_as_their_fakes_say(name):
    """Sizes, strides and types that capture promises are those of eager, for operands that lie in different orders."""
    tensors = _inputs(name)
    if tensors[1:]:
        tensors[0] = tensors[0].to(memory_format=torch.channels_last)
    given = iter(tensors)
    func, args, kwargs = _arguments(name, lambda k: next(given))
    want = func(*args, **kwargs)
    graph = _captured(name, tensors)
    meta = graph.metas[graph.outputs[0].value]
    assert (meta.sizes, meta.strides, meta.dtype) == (tuple(want.shape), want.stride(), str(want.dtype).removeprefix("torch."))


@pytest.mark.parametrize("name", sorted(n for n, r in all_records().items() if r.any_layout and r.kind == "pointwise"))
def test_any_layout_becomes_loops_in_half_precision_on_a_gpu(name):
    """What is said of layouts holds if no operator of torch is called: that one would give the layout that it likes."""
    try:
        graph = _captured(name, _inputs(name, torch.float16))
    except GraphError as error:
        assert "not implemented for 'Half'" in str(error)
        pytest.skip("processors have no such kernel, and eager's refusal is kept")
    last = (60, 1, 20, 4)
    for value, meta in graph.metas.items():
        graph.metas[value] = replace(meta, device="cuda:0", strides=last if meta.sizes == SIZES and value != "x0" else meta.strides)
    called = [n.op for n in lower(graph).nodes if isinstance(n, Extern) and not n.op.startswith("aten::empty")]
    assert called == []


DIFFERENTIATED = sorted(n for n in POINTWISE if all_records()[n].gradient)


@pytest.mark.parametrize("name", sorted(set(POINTWISE) - {"aten::_to_copy"}))
def test_gradients_are_the_operators_that_autograd_calls(name):
    """The record names the operator of torch that is there for this derivative; and that one has a record, so it becomes loops, too."""
    tensors = [t.requires_grad_() if t.is_floating_point() else t for t in _inputs(name)]
    given = iter(tensors)
    func, args, kwargs = _arguments(name, lambda k: next(given))
    out = func(*args, **kwargs)
    if not out.requires_grad or name.endswith("_backward"):
        assert not all_records()[name].gradient
        return

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        names: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(func.name())
            return func(*args, **(kwargs or {}))

    with Seen() as seen:
        seen.names = []
        with contextlib.suppress(RuntimeError):  # not differentiable, although the result says so
            torch.autograd.backward(out, torch.ones_like(out), inputs=[t for t in tensors[:1] if t.requires_grad] or None)
    own = [n for n in seen.names if n.endswith("_backward")]
    assert own == [f"aten::{g}" for g in [all_records()[name].gradient] if g]
    assert all(n in all_records() for n in own)


# ---- what follows from them ------------------------------------------------------------------------------------------------


def _saved_bytes(function) -> int:
    """What the forward of ``function(x @ w) @ w`` keeps for its backward and had not been given."""

    class Module(torch.nn.Module):
        def forward(self, x, w):
            return (function(x @ w) @ w,)

    x, w = (torch.randn(256, 256, generator=torch.Generator().manual_seed(k), requires_grad=True) for k in range(2))
    joint = capture_joint(torch.fx.symbolic_trace(Module()), [x, w])
    halves = partition(joint)
    metas = [joint.graph.metas[name] for name in halves.saved if name not in joint.graph.inputs]
    return sum(math.prod(m.sizes) * getattr(torch, m.dtype).itemsize for m in metas)


@pytest.mark.parametrize("function", [F.mish, F.softplus, F.elu, torch.sin, torch.atan, lambda x: torch.fmax(x, x.exp())])
def test_activations_save_no_more_than_gelu(function):
    assert _saved_bytes(function) <= _saved_bytes(F.gelu)


def test_adding_an_operator_is_one_file(monkeypatch, tmp_path):
    """A family file in the folder is all it takes for an operator to become loops, to be run again in a backward, and to keep layouts."""
    with torch.library._scoped_library("opmill_records", "DEF") as library:
        library.define("softsquare(Tensor x) -> Tensor")
        library.define("softsquare_backward(Tensor grad, Tensor x) -> Tensor")
        library.impl("softsquare", lambda x: x * x / (1 + x.abs()), "CompositeExplicitAutograd")
        library.impl("softsquare_backward", lambda g, x: g * x * (2 + x.abs()) / (1 + x.abs()) ** 2, "CompositeExplicitAutograd")
        ops = torch.ops.opmill_records
        torch.library.register_autograd(
            "opmill_records::softsquare",
            lambda ctx, g: ops.softsquare_backward(g, *ctx.saved_tensors),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
            lib=library,
        )
        calls = _operators_called(ops.softsquare)
        assert {"opmill_records::softsquare", "opmill_records::softsquare_backward"} <= calls
        (tmp_path / "softsquare.py").write_text(
            textwrap.dedent('''
            """x squared where it is small, its magnitude where it is large."""

            from opmill_graph_ir.loops.ir import Const
            from opmill_graph_ir.ops.exprs import FLOATS, op
            from opmill_graph_ir.ops.pointwise import row
            from opmill_graph_ir.ops.records import Rows

            ROWS = Rows(space="opmill_records")


            def _more(x, number):
                return op("add", op("abs", x), Const(number, x.dtype))


            @row(ROWS, "softsquare", gradient="softsquare_backward", dtypes=FLOATS)
            def _softsquare(x):
                return op("div", op("mul", x, x), _more(x, 1.0))


            @row(ROWS, "softsquare_backward", dtypes=FLOATS)
            def _gradient(g, x):
                below = _more(x, 1.0)
                return op("div", op("mul", op("mul", g, x), _more(x, 2.0)), op("mul", below, below))
            ''')
        )
        monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
        all_records.cache_clear()
        try:
            assert record_of("opmill_records::softsquare").family == "softsquare"
            assert _operators_called(ops.softsquare) == calls - {"opmill_records::softsquare", "opmill_records::softsquare_backward"}
            assert _saved_bytes(ops.softsquare) == _saved_bytes(F.gelu)
        finally:
            all_records.cache_clear()


def _operators_called(function) -> set[str]:
    """The operators of torch that forward and backward of ``function(x) @ w`` call."""

    class Module(torch.nn.Module):
        def forward(self, x, w):
            return (function(x) @ w,)

    inputs = [torch.randn(8, 8, generator=torch.Generator().manual_seed(k), requires_grad=True) for k in range(2)]
    halves = partition(capture_joint(torch.fx.symbolic_trace(Module()), inputs))
    return {node.op for graph in halves.graphs for node in lower(graph).nodes if isinstance(node, Extern)}
