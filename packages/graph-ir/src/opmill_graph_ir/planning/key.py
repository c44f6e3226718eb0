"""The key of a whole graph: equal keys mean that the stored plan does the same as compiling anew.

Everything that compilation looks at is in it: each node with all constants, metadata and sharing of all tensors (never their
contents: plans hold tensors and read them anew at each call), options, global modes, versions and the processor. What
cannot be named soundly (a lambda, a module of the user's) makes the graph uncacheable.
"""

from __future__ import annotations

import enum
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch.utils._device import DeviceContext

from opmill_fake_tensors import FakeTensor
from opmill_fake_tensors.wrappers import Form, take_apart, takes_operators
from opmill_runtime_cache import __version__ as runtime_version
from opmill_runtime_cache.devices.registry import find, types
from opmill_runtime_cache.store import key_of, sources_of

from ..__about__ import __version__
from ..capture.places import label_of, labels_of
from ..capture.sizes import environment_of, size_of
from ..freezing.weights import held_inputs
from ..options import GraphOptions
from ..wrapped import KEY

_TRUSTED = ("torch", "_operator", "operator", "builtins", "math", "opmill_fake_tensors")
_ASKS_REPLICATION: Callable[[], bool] = getattr(torch._C, "_get_dtensor_allow_implicit_replication", bool)
"""Whether operators take plain tensors beside tensors over a mesh."""


class Uncacheable(Exception):
    """The graph holds something that has no sound name."""


def graph_key(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], options: GraphOptions, generators: Sequence[Any], portable: bool = False
) -> str | None:
    """The key, or None where there is none. ``portable``: it is the same wherever the same versions are installed."""
    try:
        encoder = _Encoder()
        named = gm.meta.get(KEY)
        nodes = [encoder.node(gm, n) for n in gm.graph.nodes] if named is None else [("inside", named)]
        inputs = [encoder.input(x) for x in example_inputs]
        makers = [_generator(g, portable) for g in generators]
        inputs += held_inputs(gm, example_inputs) if options.freeze else ()
        switches = modes()
    except Uncacheable:
        return None
    labels = repr([(labels_of(gm), [label_of(n) for n in gm.graph.nodes])]) if labels_of(gm) else ""
    return key_of(
        "graph",
        labels,
        repr(nodes),
        repr(inputs),
        repr(replace(options, verify=False, print_after=(), cache=True, cuda_graphs=False, sample=False)),
        repr(makers),
        repr(switches),
        repr(environment(portable)),
    )


def _generator(generator: Any, portable: bool) -> tuple[str, ...]:
    package = sys.modules.get(type(generator).__module__.partition(".")[0])
    target = repr(getattr(generator, "target", ""))
    return (
        generator.name,
        type(generator).__module__,
        str(getattr(package, "__version__", "")),
        target,
        sources_of(package.__name__, portable) if package else "",
    )


def modes() -> tuple[object, ...]:
    """The process-wide switches that change what torch operators mean. Raises ``Uncacheable`` where a mode of the user's is active."""
    known = [device for kind in types() if (device := find(kind)) is not None]
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        tuple(device.current() for device in known),
        torch.get_default_dtype(),
        tuple(map(_function_mode, range(torch._C._len_torch_function_stack()))),
        tuple((device.type, torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)) for device in known),
        torch._C._get_cudnn_sdp_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch._C._get_mkldnn_enabled(),
        torch._C._get_flash_sdp_enabled(),
        torch._C._get_math_sdp_enabled(),
        torch._C._get_mem_efficient_sdp_enabled(),
        _ASKS_REPLICATION(),
    )


def _function_mode(level: int) -> str:
    """A default device; what any other mode does has no name."""
    mode = torch._C._get_function_stack_at(level)
    if type(mode) is not DeviceContext:
        raise Uncacheable(type(mode).__qualname__)
    return str(mode.device)


@lru_cache
def environment(portable: bool = False) -> tuple[str, ...]:
    """Versions and processor."""
    versions = __version__, runtime_version, torch.__version__, sys.version
    return (
        *versions,
        torch.backends.cpu.get_cpu_capability(),
        torch.__config__.show(),
        *(sources_of(package, portable) for package in _PACKAGES),
    )


_PACKAGES = ("opmill_graph_ir", "opmill_fake_tensors", "opmill_runtime_cache")


class _Encoder:
    def __init__(self) -> None:
        self.nodes: dict[torch.fx.Node, int] = {}
        self.storages: dict[int, int] = {}
        self.tensors: dict[int, int] = {}

    def node(self, gm: torch.fx.GraphModule, node: torch.fx.Node) -> tuple[object, ...]:
        self.nodes[node] = len(self.nodes)
        if node.op == "placeholder":
            return ("placeholder",)
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(gm)
            if isinstance(value, torch.fx.GraphModule):  # what a higher-order operator runs
                policy = self.policy(value)
                return "graph", node.target, [self.node(value, n) for n in value.graph.nodes], *policy
            if not isinstance(value, torch.Tensor):
                raise Uncacheable
            return "get_attr", node.target, self.tensor(value)
        if node.op == "call_module":
            raise Uncacheable
        target = node.target if node.op in ("call_method", "output") else self.function(node.target)
        return node.op, target, self.value(node.args), self.value(node.kwargs)

    def policy(self, checkpoint: torch.fx.GraphModule) -> tuple[object, ...]:
        """What tells checkpoints apart that keep other values; nothing of those that have no policy."""
        if not checkpoint.meta:
            return ()
        from ..capture.policies import NOTE, Unnamed, name_of

        if NOTE not in checkpoint.meta:
            return ()
        try:
            return (name_of(checkpoint.meta[NOTE]),)
        except Unnamed:
            raise Uncacheable from None

    def tensor(self, t: torch.Tensor) -> tuple[object, ...]:
        if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout != torch.strided:
            raise Uncacheable
        storage = self.storages.setdefault(t.untyped_storage()._cdata, len(self.storages))
        same = self.tensors.setdefault(id(t), len(self.tensors))
        return (
            same, storage, str(t.dtype), tuple(t.shape), t.stride(), t.storage_offset(), str(t.device),
            type(t).__name__, t.requires_grad, t.is_conj(), t.is_neg(),
        )  # fmt: skip

    def input(self, x: Any) -> object:
        """A tensor, a constant, or what is symbolic: its expressions and the ranges of their symbols, not the sizes at hand."""
        if isinstance(x, FakeTensor):
            numbers = [size_of(n) for n in (*x.shape, *x.stride(), x.storage_offset())]
            facts = str(x.dtype), str(x.device), x.requires_grad, x.is_leaf, x.meta.is_conj(), x.meta.is_neg(), type(x).__name__
            same = self.tensors.setdefault(id(x), len(self.tensors))
            return "fake", same, *map(str, numbers), self._ranges(x), facts
        if isinstance(x, torch.SymInt):
            return "size", str(size_of(x)), self._ranges(x)
        if takes_operators(type(x)):
            form, leaves = take_apart(x)
            return "wrapper", self.form(form), [self.input(leaf) for leaf in leaves], x.requires_grad, x.is_leaf
        return self.tensor(x) if isinstance(x, torch.Tensor) else self.value(x)

    def form(self, form: Any) -> object:
        from ..wrapped.stored import Unnamed

        try:
            return self.names.form(form), self._classes(form)
        except Unnamed:
            raise Uncacheable from None

    def _classes(self, form: Any) -> list[Any]:
        from ..wrapped.stored import behaviour

        return [behaviour(form.cls), *(self._classes(part) for part in form.parts if isinstance(part, Form))]

    @cached_property
    def names(self) -> Any:
        """What meshes are called: here, by all that they say."""
        from ..wrapped.stored import Names, about_mesh, is_mesh

        class Said(Names):
            def value(self, v: Any) -> Any:
                return ["mesh", about_mesh(v)] if is_mesh(v) else super().value(v)

        return Said(())

    def _ranges(self, x: Any) -> object:
        sizes = environment_of([x])
        symbols = [] if sizes is None else sizes.symbols.values()
        return [(s.name, s.low, s.high) for s in symbols if s.hint is not None]

    def function(self, f: Any) -> str:
        if isinstance(f, torch._ops.OpOverload):
            if f.namespace not in ("aten", "prims", "_c10d_functional", "_c10d_functional_autograd", "opmill_exchange"):
                raise Uncacheable
            return str(f)
        if isinstance(f, torch._ops.HigherOrderOperator):
            return f"higher order: {f.name()}"
        module: str = getattr(f, "__module__", None) or ""
        name: str = getattr(f, "__qualname__", None) or getattr(f, "__name__", "") or ""
        if not module and (owner := getattr(f, "__objclass__", None)) is not None:
            module, name = owner.__module__, f"{owner.__qualname__}.{f.__name__}"
        if module.partition(".")[0] not in _TRUSTED:
            raise Uncacheable
        if "<" in name:  # made by a function (F.max_pool2d is): what counts is the name that its module gives it
            name = next((n for n, v in vars(sys.modules.get(module, object)).items() if v is f), "")
            if not name:
                raise Uncacheable
        return f"{module}.{name}:{type(f).__name__}"

    def value(self, v: Any) -> object:
        """A constant, exactly; nodes by number."""
        rule = _VALUES.get(type(v))
        if rule is not None:
            return rule(self, v)
        if isinstance(v, enum.Enum):
            return type(v).__qualname__, v.name
        if isinstance(v, (list, tuple)):
            return type(v).__name__, [self.value(x) for x in v]
        if isinstance(v, dict):
            return "dict", [(self.value(k), self.value(x)) for k, x in v.items()]
        if str(type(v).__module__).startswith("torch.distributed."):
            from ..wrapped.stored import Unnamed

            try:
                return "of a mesh", self.names.value(v)
            except Unnamed:
                raise Uncacheable from None
        raise Uncacheable


def _plain(encoder: _Encoder, v: object) -> object:
    return type(v).__name__, repr(v)


_VALUES: dict[type, Callable[[_Encoder, Any], object]] = {
    torch.fx.Node: lambda e, v: ("node", e.nodes[v]),
    float: lambda e, v: ("float", v.hex()),
    slice: lambda e, v: ("slice", e.value(v.start), e.value(v.stop), e.value(v.step)),
    **dict.fromkeys(
        (type(None), bool, int, str, complex, type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
        _plain,
    ),
}
