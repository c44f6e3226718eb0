"""What tensors have under a name: methods, attributes, what a class adds; and which numbers methods refuse."""

from __future__ import annotations

import types

import torch

from .base import Machine, Value


def of_instances(cls: type, name: str) -> bool:
    """Whether instances of a class have the attribute: ``hasattr`` of the class finds what its metaclass gives it (``__name__``), too."""
    return any(name in vars(base) for base in cls.__mro__)


def attribute_of_tensors(name: str) -> types.GetSetDescriptorType | property | None:
    """What gives an attribute of tensors that a torch function mode is told of; None for methods, and for what the class says."""
    raw = getattr(torch.Tensor, name, None)
    return raw if isinstance(raw, (types.GetSetDescriptorType, property)) and name != "__dict__" else None


#: Methods that refuse numbers of NumPy's -> (which argument, its name, names of the classes).
REFUSED_NUMBERS = {
    "__setitem__": (1, "", "float32 float16 longdouble bool bool_"),
    "split": (0, "split_size", "int8 int16 int32 int64 uint8 uint16 uint32 uint64"),
}


def refuse_number(vm: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Leaves to torch a method that refuses a number of NumPy's, which a graph has as a plain one."""
    place, keyword, kinds = REFUSED_NUMBERS.get(name, (0, "", ""))
    given = args[place] if len(args) > place else kwargs.get(keyword)
    kind = object if given is None else given.python_type()
    if kind.__module__ == "numpy" and kind.__name__ in kinds.split():
        what = f"a {kind.__name__} given to method {name} of a tensor"
        vm.unsupported("FE034", what, "torch refuses it", "give Python's own number, int(...) or float(...) of it, or a tensor")


__all__ = ["attribute_of_tensors", "of_instances", "refuse_number"]
