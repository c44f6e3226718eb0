"""What is kept of a graph with wrappers beside its plan: how gradients of its inputs look, and how its outputs are put together.

All of it is data: constants, and classes by name. Reading runs no code of any class but ``Enum``'s look-up, and finds classes only among
those that are imported already. Meshes of devices are those that the graph at hand has, by number. Classes are of torch or of an installed
package that has a version, which is a part of the key: what other classes do has no name."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import torch

from opmill_fake_tensors.wrappers import Form, Thing, is_wrapper

from .nodes import Bound, Looks, Out

KIND = "wrapped"
_DECODER = msgspec.msgpack.Decoder()
_TORCH = {torch.Tensor, torch._C.TensorBase, object}
_TABLES = ("_ATEN_OP_TABLE", "_TORCH_FN_TABLE")
"""Where torchao keeps what implements operators on a class, which programs may add to."""


class Unnamed(Exception):
    """Something that has no sound name."""


def package_of(cls: type) -> tuple[str, str]:
    """The installed package that a class belongs to, and its version. Raises Unnamed."""
    top = str(cls.__module__).partition(".")[0]
    package = sys.modules.get(top)
    version, file = getattr(package, "__version__", None), getattr(package, "__file__", None) or ""
    if not isinstance(version, str) or (top != "torch" and "-packages" not in file.replace("\\", "/")):
        raise Unnamed(cls.__qualname__)
    return top, str(version)


def class_name(cls: type) -> list[str]:
    """Module and name of a class, under which it is found. Raises Unnamed."""
    if cls.__module__ != "builtins":
        package_of(cls)
    name = [cls.__module__, cls.__qualname__]
    if find_class(name) is not cls:
        raise Unnamed(cls.__qualname__)
    return name


def find_class(name: Sequence[str]) -> type:
    """The class of a module's and a qualified name. Raises Unnamed where an imported module has none of that name."""
    module, qualname = name
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    if not isinstance(found, type) or found.__module__ != module:
        raise Unnamed(qualname)
    return found


def behaviour(cls: type) -> list[Any]:
    """What the operators of a class of wrappers do, as far as it may differ among processes. Raises Unnamed where a program has a say."""
    if not is_wrapper(cls):
        raise Unnamed(cls.__qualname__)
    versions = [package_of(base) for base in cls.__mro__ if base not in _TORCH]
    for name in _TABLES:
        of_classes = getattr(cls, name, {})
        for implemented in (of_classes.get(base, {}) for base in cls.__mro__):
            _check_functions(implemented)
    said: list[Any] = []
    dispatcher = getattr(cls, "_op_dispatcher", None)
    if dispatcher is not None:  # of DTensor
        propagator = dispatcher.sharding_propagator
        tables = [getattr(propagator, name, {}) for name in ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs")]
        handlers = getattr(dispatcher, "_custom_op_handlers", {})  # some come and go with blocks, such as that of ``loss_parallel``
        for table in (*tables, handlers):
            _check_functions(table)
        named = sorted([str(op), getattr(handler, "__qualname__", "")] for op, handler in handlers.items())
        said = [bool(getattr(dispatcher, "_allow_implicit_replication", False)), [len(table) for table in tables], named]
    return [class_name(cls), [list(v) for v in versions], said]


def _check_functions(table: Any) -> None:
    for function in table.values() if isinstance(table, dict) else ():
        module = getattr(function, "__module__", None) or type(function).__module__
        package = sys.modules.get(module.partition(".")[0])
        if not isinstance(getattr(package, "__version__", None), str):
            raise Unnamed(str(function))


def about_mesh(mesh: Any) -> list[Any]:
    """All that a mesh of devices says here: another process of the same mesh has another place in it."""
    names = list(mesh.mesh_dim_names or ())
    try:
        groups = [mesh.get_group(k).group_name for k in range(mesh.ndim)]
    except (RuntimeError, ValueError, KeyError):  # this process is in none of them
        raise Unnamed("DeviceMesh") from None
    return [mesh.device_type, mesh.mesh.tolist(), names, list(mesh.get_coordinate() or ()), groups, torch.distributed.get_rank()]


def is_mesh(value: Any) -> bool:
    """Whether a value is a mesh of devices."""
    module = sys.modules.get("torch.distributed.device_mesh")
    cls = getattr(module, "DeviceMesh", None)
    return cls is not None and type(value) is cls


def _of_torch(kind: type, text: str) -> Any:
    found = vars(torch).get(text.removeprefix("torch."))
    if type(found) is not kind:
        raise Unnamed(text)
    return found


_NAMED: dict[type, tuple[str, Callable[[str], Any]]] = {
    kind: (kind.__name__, partial(_of_torch, kind)) for kind in (torch.dtype, torch.layout, torch.memory_format)
}
_NAMED[torch.device] = "device", torch.device
_READ_NAMED = dict(_NAMED.values())
_PLACEMENTS = {"Shard": ("dim",), "Replicate": (), "Partial": ("reduce_op",), "_StridedShard": ("dim", "split_factor")}


class Names:
    """Values as data, and back. ``meshes``: those that the graph has."""

    def __init__(self, meshes: Sequence[Any]) -> None:
        self.meshes = list(meshes)

    def value(self, v: Any) -> Any:
        """Raises Unnamed."""
        kind = type(v)
        if v is None or kind in (bool, int, float, str):
            return v
        if kind in _NAMED:
            return [_NAMED[kind][0], str(v)]
        if kind in (tuple, list, torch.Size):
            return [kind.__name__, *map(self.value, v)]
        if kind is dict:
            return ["dict", *([self.value(k), self.value(x)] for k, x in v.items())]
        if is_mesh(v):
            return ["mesh", next((k for k, mesh in enumerate(self.meshes) if mesh is v), None) if self._has(v) else _unnamed(v)]
        if isinstance(v, type):
            return ["type", class_name(v)]
        if isinstance(v, enum.Enum):
            return ["enum", class_name(kind), v.name]
        return self._instance(v, kind)

    def _has(self, mesh: Any) -> bool:
        return any(known is mesh for known in self.meshes)

    def _instance(self, v: Any, kind: type) -> Any:
        if kind.__module__ == "torch.distributed.tensor.placement_types" and kind.__name__ in _PLACEMENTS:
            return ["placement", kind.__name__, *(self.value(getattr(v, name)) for name in _PLACEMENTS[kind.__name__])]
        if isinstance(v, tuple) and hasattr(kind, "_fields"):
            return ["named", class_name(kind), *map(self.value, v)]
        if dataclasses.is_dataclass(kind) and not isinstance(v, torch.Tensor) and hasattr(v, "__dict__") and kind.__new__ is object.__new__:
            return ["object", class_name(kind), [[name, self.value(x)] for name, x in vars(v).items()]]
        return _unnamed(v)

    def read(self, data: Any) -> Any:
        """The value. Raises Unnamed where it is not what `value` gives, or something is not there."""
        if not isinstance(data, list):
            return data
        tag, *rest = data
        if tag in _READ_NAMED:
            return _READ_NAMED[tag](rest[0])
        if tag in ("tuple", "list", "Size"):
            return {"tuple": tuple, "list": list, "Size": torch.Size}[tag](map(self.read, rest))
        if tag == "dict":
            return {self.read(k): self.read(x) for k, x in rest}
        if tag == "mesh":
            return self.meshes[rest[0]]
        if tag == "placement":
            made = getattr(sys.modules["torch.distributed.tensor.placement_types"], rest[0]) if rest[0] in _PLACEMENTS else _unnamed(tag)
            return made(**dict(zip(_PLACEMENTS[rest[0]], map(self.read, rest[1:]), strict=True)))
        return self._read_instance(tag, rest)

    def _read_instance(self, tag: str, rest: Sequence[Any]) -> Any:
        cls: Any = find_class(rest[0])
        if tag == "type":
            return cls
        package_of(cls)
        if tag == "enum" and issubclass(cls, enum.Enum):
            return cls.__members__[rest[1]]
        if tag == "named" and issubclass(cls, tuple) and len(rest) - 1 == len(cls._fields):
            return tuple.__new__(cls, map(self.read, rest[1:]))
        if tag == "object" and dataclasses.is_dataclass(cls) and cls.__new__ is object.__new__:
            made: Any = object.__new__(cls)  # type: ignore[arg-type]
            vars(made).update({name: self.read(x) for name, x in rest[1]})
            return made
        return _unnamed(tag)

    def form(self, form: Any) -> Any:
        """A form, a thing inside of one, or None."""
        if form is None:
            return None
        if type(form) is Thing:
            return ["thing", self.value(form.value)]
        parts = [self.form(part) for part in form.parts]
        sizes, strides = self.numbers(form.sizes), self.numbers(form.strides)
        return ["form", class_name(form.cls), list(form.names), self.value(form.context), sizes, strides, parts, form.is_parameter]

    def numbers(self, numbers: Sequence[Any]) -> list[int]:
        if any(type(n) is not int for n in numbers):
            raise Unnamed("a size that is symbolic")
        return list(numbers)

    def read_form(self, data: Any) -> Any:
        if data is None:
            return None
        if data[0] == "thing":
            return Thing(self.read(data[1]))
        _, name, names, context, sizes, strides, parts, is_parameter = data
        cls = find_class(name)
        if not is_wrapper(cls):
            raise Unnamed(cls.__qualname__)
        inside = tuple(map(self.read_form, parts))
        return Form(cls, tuple(names), self.read(context), torch.Size(sizes), tuple(strides), inside, is_parameter)

    def looks(self, looks: Looks) -> Any:
        return [self.form(looks.form), [self.numbers(n) for n in looks.sizes], [self.value(dtype) for dtype in looks.dtypes]]

    def read_looks(self, data: Any) -> Looks:
        form, sizes, dtypes = data
        return Looks(self.read_form(form), tuple(map(tuple, sizes)), tuple(map(self.read, dtypes)))


def _unnamed(v: Any) -> Any:
    raise Unnamed(type(v).__qualname__)


def meshes_of(gm: torch.fx.GraphModule, forms: Sequence[Form | None]) -> list[Any]:
    """The meshes of devices among the constants of a graph and in its inputs, in order."""
    found: list[Any] = []

    def take(value: Any) -> Any:
        if is_mesh(value) and not any(mesh is value for mesh in found):
            found.append(value)
        return value

    def things(form: Any) -> Iterator[Any]:
        for part in form.parts:
            yield from [part.value] if type(part) is Thing else things(part) if part is not None else []

    for form in forms:
        for thing in things(form) if form is not None else ():
            take(thing)
    for node in gm.graph.nodes:
        torch.utils._pytree.tree_map(take, (node.args, node.kwargs))
    return found


@dataclasses.dataclass(frozen=True)
class Ends:
    """What stands at both ends of a graph of plain tensors; see ``boundary.WrappedGraph``."""

    gradients: dict[int, Looks]
    outs: Sequence[Out]
    bound: Sequence[Bound]

    def encoded(self, names: Names) -> bytes:
        """Raises Unnamed."""
        outs = [
            [names.form(out.form), out.count, out.given, list(out.numbers), names.form(out.tangent), out.same, list(out.kept)]
            for out in self.outs
        ]
        bound = [[b.position, list(b.path), b.source] for b in self.bound]
        return msgspec.msgpack.encode([[[k, names.looks(looks)] for k, looks in self.gradients.items()], outs, bound])

    @classmethod
    def decoded(cls, data: Any, names: Names) -> Ends | None:
        """None where the data is no such thing, or a class in it is not there."""
        try:
            gradients, outs, bound = _DECODER.decode(data)
            return cls(
                {k: names.read_looks(looks) for k, looks in gradients},
                [
                    Out(names.read_form(f), count, given, tuple(numbers), names.read_form(t), same, tuple(kept))
                    for f, count, given, numbers, t, same, kept in outs
                ],
                [Bound(position, tuple(path), source) for position, path, source in bound],
            )
        except (Unnamed, msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError, RuntimeError):
            return None


__all__ = ["KIND", "Ends", "Names", "Unnamed", "about_mesh", "behaviour", "is_mesh", "meshes_of"]
