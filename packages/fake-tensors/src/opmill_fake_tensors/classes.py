"""Classes of tensors on which torch's operators mean what they mean on plain ones."""

from __future__ import annotations

import torch

from .lazily import once_for_each_class

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


@once_for_each_class
def computes_as_plain(cls: type) -> bool:
    """Whether tensors of this class take part in operators as plain ones do, and give plain ones: torch's own classes, and those derived
    from them that turn ``__torch_function__`` off, as parameters do, and give none of a tensor's attributes another meaning."""
    if cls in PLAIN:
        return True
    functions, dispatch = getattr(cls, "__torch_function__", None), getattr(cls, "__torch_dispatch__", None)
    if functions is not torch._C._disabled_torch_function_impl or dispatch is not torch._C._disabled_torch_dispatch_impl:
        return False
    own = [c for c in cls.__mro__ if not issubclass(torch.nn.Parameter, c) and c is not torch.nn.Buffer]
    return not any(name in _MEANING or (hasattr(torch.Tensor, name) and not name.startswith("__")) for c in own for name in c.__dict__)


class _Empty:
    """Its dictionary holds what every class statement writes."""


_MEANING = frozenset(
    name
    for name in dir(torch.Tensor)
    if name.startswith("__")
    and name not in dir(object)
    and name not in vars(_Empty)
    and name
    not in (
        "__deepcopy__",
        "__setstate__",
        "__torch_function__",
        "__torch_dispatch__",
        "__annotations__",
    )
) | {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__getattribute__", "__getattr__", "__setattr__", "__class__"}
