"""Module trees: every change that can be made to modules is noticed, and what does not matter costs one full check only."""

from __future__ import annotations

import copy
import gc
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from opmill_guards import CompiledFunction, GuardSet, probe  # noqa: E402
from opmill_guards.guard import AllDistinct, DictKeys, Equals, Is, ModuleTree, SameObject, TensorMatch  # noqa: E402
from opmill_guards.kinds.module_tree import facts_of  # noqa: E402
from opmill_guards.kinds.tensor_match import of  # noqa: E402
from opmill_guards.source import Attr, InstanceDict, Item, Local, Source  # noqa: E402
from opmill_guards.tree import TreeBuilder  # noqa: E402


class Scaled(nn.Module):
    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.options = [1, 2]
        self.pair = (3, [4])

    def forward(self, x: Any) -> Any:
        return self.norm(self.linear(x)) * self.factor


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(Scaled(), nn.Sequential(nn.Linear(4, 3), nn.ReLU())).eval()


def walk(module: Any, source: Source) -> Iterator[tuple[Source, Any]]:
    yield source, module
    for name, child in module._modules.items():
        if child is not None:
            yield from walk(child, Item(Attr(source, "_modules"), name))


def guard_of(root: Any, by_attribute: bool = False) -> ModuleTree:
    modules = tuple(walk(root, Local("self")))
    then: list[Any] = [Equals(Attr(source, "training"), module.training) for source, module in modules]
    then += [DictKeys(Attr(source, "_modules"), tuple(module._modules)) for source, module in modules]
    tensors: list[TensorMatch] = []
    for source, module in modules:
        for table in ("_parameters", "_buffers"):
            for name, tensor in getattr(module, table).items():
                if tensor is not None:
                    tensors.append(of(Attr(source, name) if by_attribute else Item(Attr(source, table), name), tensor))
    scaled = Item(Attr(Local("self"), "_modules"), "0")
    then += [
        Equals(Attr(scaled, "factor"), 2.0),
        Equals(Item(Attr(scaled, "options"), 0), 1),
        Equals(Item(Item(Attr(scaled, "pair"), 1), 0), 4),
        DictKeys(InstanceDict(scaled), tuple(vars(root[0]))),
    ]
    return ModuleTree(tuple(facts_of(*each) for each in modules), tuple(then), tuple(tensors))


def set_class(m: Any) -> None:
    m[0].__class__ = type("Other", (Scaled,), {})


def swap_dict(m: Any) -> None:
    m[0].linear.__dict__ = {**m[0].linear.__dict__, "training": True}


def new_linear(m: Any) -> None:
    m[0].linear = nn.Linear(4, 4).eval()


def resize(m: Any) -> None:
    m[0].linear.weight = nn.Parameter(torch.zeros(8, 4))


def data(m: Any) -> None:
    m[0].linear.weight.data = torch.zeros(8, 4)


def set_data_dtype(m: Any) -> None:
    m[0].linear.bias.data = m[0].linear.bias.data.double()


def swap_tensors(m: Any) -> None:
    torch.utils.swap_tensors(m[0].linear.weight, nn.Parameter(torch.zeros(8, 4)))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "train": lambda m: m.train(),
    "train of one": lambda m: m[0].norm.train(),
    "attribute": lambda m: setattr(m[0], "factor", 3.0),
    "attribute in the dict": lambda m: m[0].__dict__.update(factor=3.0),
    "list item": lambda m: m[0].options.__setitem__(0, 5),
    "list in a tuple": lambda m: m[0].pair[1].__setitem__(0, 5),
    "tuple replaced": lambda m: setattr(m[0], "pair", (3, [5])),
    "new attribute": lambda m: setattr(m[0], "fresh", 1),
    "attribute deleted": lambda m: delattr(m[0], "options"),
    "parameter resized": resize,
    "parameter's data": data,
    "parameter's data to another dtype": set_data_dtype,
    "parameters swapped": swap_tensors,
    "parameter to None": lambda m: setattr(m[0].linear, "bias", None),
    "parameter deleted": lambda m: delattr(m[0].linear, "bias"),
    "parameter frozen": lambda m: m[0].linear.weight.requires_grad_(False),
    "parameters table": lambda m: m[0].linear._parameters.pop("bias"),
    "parameters table replaced": lambda m: setattr(m[0].linear, "_parameters", {}),
    "double": lambda m: m.double(),
    "meta": lambda m: m.to("meta"),
    "buffer replaced": lambda m: setattr(m[0].norm, "running_mean", torch.zeros(5)),
    "buffer to None": lambda m: setattr(m[0].norm, "running_mean", None),
    "module replaced by one without bias": lambda m: setattr(m[0], "linear", nn.Linear(4, 4, bias=False)),
    "module added": lambda m: m.append(nn.ReLU()),
    "module deleted": lambda m: m.__delitem__(1),
    "module inside replaced": lambda m: m[1].__setitem__(1, nn.GELU()),
    "forward hook": lambda m: m[0].linear.register_forward_hook(lambda *a: None),
    "forward pre-hook": lambda m: m[1][1].register_forward_pre_hook(lambda *a: None),
    "backward hook": lambda m: m[0].register_full_backward_hook(lambda *a: None),
    "backward pre-hook": lambda m: m[0].register_full_backward_pre_hook(lambda *a: None),
    "class": set_class,
    "dict swapped": swap_dict,
    "root's dict swapped": lambda m: setattr(m, "__dict__", {**m.__dict__, "training": True}),
}


def tree_of(m: Any, by_attribute: bool = False) -> tuple[GuardSet, Any]:
    guards = GuardSet([guard_of(m, by_attribute)])
    return guards, guards.native(("self",))


@pytest.mark.parametrize("by_attribute", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_noticed(change: str, by_attribute: bool) -> None:
    m = model()
    guards, tree = tree_of(m, by_attribute)
    assert tree.check(m) and tree.check(m)
    CHANGES[change](m)
    assert not tree.check(m)
    assert not tree.check(m), "a failed check must not be remembered as success"
    assert not guards.check({"self": m})
    assert guards.explain({"self": m}) is not None


def test_another_module_of_the_same_make() -> None:
    m = model()
    guards, tree = tree_of(m)
    other = copy.deepcopy(m)
    for each in (other, m, other):
        assert tree.check(each) and guards.check({"self": each})
    other[0].linear.eval().train()
    assert not tree.check(other) and not guards.check({"self": other})
    assert tree.check(m)


HARMLESS: dict[str, Callable[[Any], Any]] = {
    "weights in place": lambda m: m[0].linear.weight.data.fill_(3),
    "weights by load_state_dict": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
    "new attribute elsewhere": lambda m: setattr(m[1][0], "calls", 1),
    "same value again": lambda m: m.eval(),
    "parameter of the same facts": lambda m: setattr(m[0].linear, "weight", nn.Parameter(torch.ones(4, 4))),
    "module replaced by one of its kind": new_linear,
    "gradient": lambda m: setattr(m[0].linear.weight, "grad", torch.ones(4, 4)),
}


@pytest.mark.parametrize("change", HARMLESS)
def test_harmless_changes_cost_one_full_check(change: str) -> None:
    m = model()
    guards, tree = tree_of(m)
    HARMLESS[change](m)
    assert guards.check({"self": m})
    assert tree.check(m)
    assert tree.check(m)
    m.train()
    assert not tree.check(m)


def structures_of(guards: GuardSet) -> tuple[Any, list[Any]]:
    """The native tree, and the structures of modules in it."""
    from opmill_guards import _native

    real = _native.ModuleStructure
    made: list[Any] = []
    builder = TreeBuilder(("self",))
    for guard in guards.guards:
        builder.add(guard)
    made += [structure for structure, _ in builder._watches]
    assert all(type(each) is real for each in made)
    return builder.build(guards.loads), made


def test_evidence_is_remembered() -> None:
    m, other = model(), model()
    tree, [structure] = structures_of(GuardSet([guard_of(m)]))
    assert not structure.knows(m)
    assert tree.check(m) and structure.knows(m)
    m[1][0].calls = 1
    assert not structure.knows(m)
    assert tree.check(m) and tree.check(other)
    assert structure.knows(m) and structure.knows(other)
    m.train()
    assert not tree.check(m)
    assert not structure.knows(m) and structure.knows(other)
    m.eval()
    assert tree.check(m)
    assert structure.knows(m)


def test_trees_that_are_gone_are_forgotten() -> None:
    m = model()
    tree, [structure] = structures_of(GuardSet([guard_of(m)]))
    for _ in range(500):
        other = model()
        gone = weakref.ref(other)
        assert tree.check(other)
        del other
        assert gone() is None, "nothing keeps a module alive"
    assert structure.bound <= 65
    kept = [model() for _ in range(200)]
    assert all(tree.check(each) for each in kept)
    assert all(structure.knows(each) for each in kept)


def test_a_module_in_a_cycle_is_let_go() -> None:
    m = model()
    _, tree = tree_of(m)
    m[0].linear.__dict__["owner"] = m
    assert tree.check(m)
    gone = weakref.ref(m)
    del m
    gc.collect()
    assert gone() is None


def test_a_child_that_is_gone_is_not_touched() -> None:
    """Evidence lies in dictionaries of modules that a change let go of."""
    m = model()
    _, tree = tree_of(m)
    for _ in range(50):
        assert tree.check(m)
        m[0].linear = nn.Linear(4, 4).eval()
        m[1] = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
        gc.collect()
        assert tree.check(m)
        m[1].__dict__ = dict(m[1].__dict__)
        assert tree.check(m)


def test_a_root_at_the_place_of_another() -> None:
    tree: Any = None
    for k in range(300):
        m = model()
        if tree is None:
            _, tree = tree_of(m)
        if k % 3 == 2:
            m.train()
        assert tree.check(m) is (k % 3 != 2)
        del m


def test_tensors_are_loaded() -> None:
    m, other = model(), model()
    guard = guard_of(m)
    sources = [match.source for match in guard.tensors]
    tree = GuardSet([guard], loads=sources).native(("self",))
    for each in (m, other):
        loaded = tree.load(each)
        wanted = [*each.parameters(), *each.buffers()]
        assert len(loaded) == len(wanted) and {id(t) for t in loaded} == {id(t) for t in wanted}
    backwards = GuardSet([guard], loads=[*reversed(sources), Local("self")]).native(("self",))
    assert [id(t) for t in backwards.load(m)] == [*reversed([id(t) for t in tree.load(m)]), id(m)]
    m[0].linear.weight = fresh = nn.Parameter(torch.ones(4, 4))
    assert any(t is fresh for t in tree.load(m))
    m.train()
    assert tree.load(m) is None


def test_loaded_tensors_are_given_to_the_target() -> None:
    def f(self: Any, x: Any, *more: Any, key: int = 1) -> Any:
        return "uncompiled"

    def target(loaded: Any, /, self: Any, x: Any, *more: Any, key: int = 1) -> Any:
        return loaded, self, x, more, key

    def on_miss(compiled: Any, args: Any, kwargs: Any) -> Any:
        m = args[0]
        match = of(Item(Attr(Local("self"), "_parameters"), "weight"), m.weight)
        return compiled.insert(GuardSet([ModuleTree((facts_of(Local("self"), m),), (), (match,))], loads=[match.source]), target)

    class Holder:
        pass

    compiled = CompiledFunction(f, on_miss)
    Holder.f = compiled  # type: ignore[attr-defined]
    m, other = nn.Linear(2, 3), nn.Linear(2, 3)
    for each in (m, other, m):
        assert compiled(each, 1) == ((each.weight,), each, 1, (), 1)
        assert compiled(each, 1, 2, 3, key=4) == ((each.weight,), each, 1, (2, 3), 4)
        assert types.MethodType(compiled, each)(5, key=6) == ((each.weight,), each, 5, (), 6)
        assert compiled(*(each, 7), **{"key": 8}) == ((each.weight,), each, 7, (), 8)
    assert len(compiled.entries) == 1


def test_what_an_entry_loaded_that_does_not_fit_is_not_given() -> None:
    """The tensors are at hand when a tensor turns out to be another one than assumed."""

    def f(self: Any) -> Any:
        return "uncompiled"

    def load(m: Any) -> Any:
        match = of(Item(Attr(Local("self"), "_parameters"), "weight"), m.weight)
        return GuardSet([ModuleTree((facts_of(Local("self"), m),), (), (match,))], loads=[match.source])

    compiled = CompiledFunction(f, lambda compiled, args, kwargs: f)
    compiled.insert(load(nn.Linear(2, 3)), lambda loaded, self: loaded[0])
    assert compiled(nn.Linear(4, 5)) == "uncompiled"
    assert load(nn.Linear(2, 3)).native(("self",)).load(nn.Linear(4, 5)) is None


def test_tied_tensors_are_part_of_the_structure() -> None:
    class Pair(nn.Module):
        def __init__(self, tied: bool) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2)
            self.b = nn.Linear(2, 2)
            if tied:
                self.b.weight = self.a.weight

    def weight(name: str) -> Source:
        return Item(Attr(Item(Attr(Local("self"), "_modules"), name), "_parameters"), "weight")

    for tied in (True, False):
        m = Pair(tied)
        pair = SameObject(weight("a"), weight("b")) if tied else AllDistinct((weight("a"), weight("b")))
        modules = tuple(facts_of(*each) for each in walk(m, Local("self")))
        guards = GuardSet([ModuleTree(modules, (pair,))])
        tree, [structure] = structures_of(guards)
        assert tree.check(m) and structure.knows(m)
        for other in (Pair(tied), Pair(not tied)):
            same = other.a.weight is other.b.weight
            assert tree.check(other) is guards.check({"self": other}) is (same is tied)
        m.b.weight = nn.Parameter(torch.ones(2, 2)) if tied else m.a.weight
        assert not tree.check(m)


def test_hooks_are_part_of_the_structure() -> None:
    def hook(*args: Any) -> None:
        pass

    m, other = nn.Linear(2, 2), nn.Linear(2, 2)
    handle = m.register_forward_hook(hook)
    guards = GuardSet([ModuleTree((facts_of(Local("self"), m),), ())])
    tree = guards.native(("self",))
    assert tree.check(m) and not tree.check(other)
    other.register_forward_hook(hook)
    assert tree.check(other) and guards.check({"self": other})
    other.register_forward_hook(lambda *args: None)
    assert not tree.check(other) and not guards.check({"self": other})
    handle.remove()
    assert not tree.check(m)
    m.register_forward_pre_hook(hook)
    assert not tree.check(m)


def test_none_is_a_value_like_others() -> None:
    m = nn.Linear(2, 2, bias=False)
    bias = Item(Item(InstanceDict(Local("self")), "_parameters"), "bias")
    guards = GuardSet([ModuleTree((facts_of(Local("self"), m),), (Is(bias, None),))])
    tree = guards.native(("self",))
    assert tree.check(m) and tree.check(nn.Linear(3, 3, bias=False)) and not tree.check(nn.Linear(2, 2))


def test_a_replaced_parameter_is_followed() -> None:
    m = model()
    _, tree = tree_of(m)
    m[0].linear.weight = nn.Parameter(torch.ones(4, 4))
    assert tree.check(m)
    m[0].linear.weight.data = torch.zeros(8, 4)
    assert not tree.check(m)


def test_patched_class() -> None:
    m = model()
    _, tree = tree_of(m)
    before = Scaled.forward
    try:
        Scaled.forward = lambda self, x: x  # type: ignore[method-assign,assignment]
        assert not tree.check(m)
        assert not tree.check(m)
    finally:
        Scaled.forward = before  # type: ignore[method-assign]
    assert tree.check(m)


def test_patched_base_class() -> None:
    m = model()
    _, tree = tree_of(m)
    before = nn.Module.__call__
    try:
        nn.Module.__call__ = lambda self, *a: None  # type: ignore[method-assign]
        assert not tree.check(m)
    finally:
        nn.Module.__call__ = before  # type: ignore[method-assign]
    assert tree.check(m)


def test_hooks_that_do_not_matter() -> None:
    def hook(*args: Any) -> None:
        pass

    m, other = nn.Linear(2, 2), nn.Linear(2, 2)
    m.register_forward_hook(hook)
    guards = GuardSet([ModuleTree((facts_of(Local("self"), m, False),), ())])
    tree = guards.native(("self",))
    for each in (m, other):
        for _ in range(2):
            assert tree.check(each) and guards.check({"self": each})
            each.register_forward_pre_hook(lambda *args: None)
    assert not tree.check(nn.ReLU()) and not guards.check({"self": nn.ReLU()})


def test_global_hooks() -> None:
    m = model()
    guards, tree = tree_of(m)
    for register in ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"):
        handle = getattr(nn.modules.module, f"register_module_{register}")(lambda *a: None)
        try:
            assert not tree.check(m)
            assert "global module hooks" in str(guards.explain({"self": m}))
        finally:
            handle.remove()
        assert tree.check(m)


def test_shared_and_repeated_modules() -> None:
    shared = nn.Linear(4, 4)
    m = nn.Sequential(shared, nn.ReLU(), shared)
    modules = tuple(facts_of(*each) for each in walk(m, Local("self")))
    first, _, third = (facts.source for facts in modules[1:])
    tree = GuardSet([ModuleTree(modules, (SameObject(first, third),))]).native(("self",))
    assert tree.check(m)
    m[2] = nn.Linear(4, 4)
    assert not tree.check(m)


def test_module_in_a_list_is_looked_at_each_time() -> None:
    holder = nn.Module()
    holder.parts = [nn.Linear(2, 2)]
    part = Item(Attr(Local("self"), "parts"), 0)
    guards = GuardSet(
        [
            ModuleTree(
                (facts_of(Local("self"), holder), facts_of(part, holder.parts[0])),
                (DictKeys(InstanceDict(part), tuple(vars(holder.parts[0]))),),
            )
        ]
    )
    tree = guards.native(("self",))
    assert tree.check(holder)
    holder.parts[0] = nn.Linear(2, 2)
    assert tree.check(holder)
    holder.parts[0].calls = 1
    assert not tree.check(holder)
    holder.parts[0] = nn.Bilinear(2, 2, 2)
    assert not tree.check(holder)


def test_instance_without_a_dict_yet() -> None:
    """Objects whose attributes are kept inline until their dict is asked for."""

    class Small:
        def __init__(self) -> None:
            self._modules: dict[str, Any] = {}
            self.value = 1

    small = Small()
    guards = GuardSet([ModuleTree((facts_of(Local("self"), small),), (Equals(Attr(Local("self"), "value"), 1),))])
    tree = guards.native(("self",))
    assert tree.check(small)
    small.value = 2
    assert not tree.check(small)
    small.value = 1
    assert tree.check(small)


def test_lazy_version_of_a_class_that_changed_twice() -> None:
    class Leaf(nn.Module):
        value = 1

    m = Leaf()
    guards = GuardSet([ModuleTree((facts_of(Local("self"), m),), (Equals(Attr(Local("self"), "value"), 1),))])
    tree = guards.native(("self",))
    Leaf.value = 2
    assert not tree.check(m)
    Leaf.value = 1
    assert tree.check(m)
    Leaf.value = 3
    assert not tree.check(m)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*sorted(CHANGES), *sorted(HARMLESS), "eval", "check"]), max_size=6))
def test_sequences_of_changes(names: list[str]) -> None:
    m = model()
    guards, tree = tree_of(m)
    for name in names:
        change = {**CHANGES, **HARMLESS, "eval": lambda m: m.eval(), "check": tree.check}[name]
        try:
            change(m)
        except (AttributeError, KeyError, IndexError, RuntimeError, TypeError, NotImplementedError, ValueError):
            continue
        assert tree.check(m) is guards.check({"self": m}), names


def test_layout_is_known_for_this_torch() -> None:
    assert probe.configure()
