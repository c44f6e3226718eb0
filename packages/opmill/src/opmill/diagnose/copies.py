"""Independent copies of a program and its arguments, so that it can be run several times from the same state, and in float64."""

from __future__ import annotations

import contextlib
import copy
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from msgspec import Struct
from torch.utils import _pytree as pytree

from ..compile import record_of
from ..module import optimizer_behind, original_of

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


class Program(Struct, frozen=True):
    """What is called and with what: ``model(*args, **kwargs)``."""

    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def fresh(self) -> Program:
        """The same program with state of its own: modules, tensors and containers are copied, what they share stays shared."""
        memo: dict[int, Any] = {}
        return Program(
            _copied_callable(self.model, memo),
            tuple(_copied(value, memo) for value in self.args),
            {name: _copied(value, memo) for name, value in self.kwargs.items()},
        )

    def widened(self) -> Program:
        """A fresh copy whose floating-point tensors are float64 (complex ones complex128)."""
        fresh = self.fresh()
        for module in modules_of(fresh.model):
            _widen_module(module)
        for optimizer in {id(found): found for found in _reached(fresh.model) if isinstance(found, torch.optim.Optimizer)}.values():
            _widen_optimizer(optimizer)
        wide: dict[int, torch.Tensor] = {}
        args, kwargs = pytree.tree_map(functools.partial(_widen, wide=wide), (fresh.args, dict(fresh.kwargs)))
        for module in (v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.nn.Module)):
            _widen_module(module)
        return Program(_with_wide_tensors(fresh.model, wide), args, kwargs)

    def shuffled(self) -> Program:
        """A fresh copy whose arguments hold the same floating-point numbers in another order."""
        fresh = self.fresh()
        with torch.no_grad():
            for value in pytree.tree_leaves((fresh.args, dict(fresh.kwargs))):
                if type(value) is torch.Tensor and value.layout is torch.strided and value.is_floating_point():
                    _reverse(value)
        return fresh

    def call(self) -> Any:
        return self.model(*self.args, **self.kwargs)


def _reverse(tensor: torch.Tensor) -> None:
    with contextlib.suppress(RuntimeError):  # elements that share memory cannot be written one by one
        tensor.copy_(tensor.flatten().flip(0).reshape(tensor.shape))


def uncompiled(model: Any) -> Any:
    """The program behind what ``opmill.compile`` gave; anything else as it is."""
    if isinstance(model, torch.nn.Module):
        return original_of(model)
    found = record_of(model)
    if found is None:
        return model
    function = found[0].__wrapped__
    owner = getattr(model, "__self__", None)
    return types.MethodType(function, owner) if isinstance(model, types.MethodType) else function


def kept(compiled: Any) -> Callable[[Any], Any] | None:
    """What calls a copy of the program behind ``compiled`` by the specialisations that this has; None where it has none, or where copies
    of the program cannot be called so: those of a function that holds state are other functions."""
    found = record_of(compiled)
    if found is None or not found[0].entries:
        return None
    dispatcher, program = found[0], uncompiled(compiled)
    if isinstance(program, torch.nn.Module):
        return lambda fresh: types.MethodType(dispatcher, fresh)
    if isinstance(program, types.MethodType):
        return lambda fresh: types.MethodType(dispatcher, fresh.__self__)
    stateless = isinstance(program, types.FunctionType) and not any(map(_is_state, _captured_by(program).values()))
    return (lambda _: dispatcher) if stateless else None


def modules_of(model: Any) -> list[torch.nn.Module]:
    """Modules that a callable is, is bound to, closes over, or reads from its globals, each once."""
    return list({id(m): m for m in _reached(model) if isinstance(m, torch.nn.Module)}.values())


def named_modules_of(model: Any, given: Iterable[torch.nn.Module] = ()) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules that run when a callable does, ``given`` among them, each once: by path, behind the variable that holds the outermost one
    unless that is what is called, or what has the method."""
    if isinstance(model, functools.partial):
        yield from named_modules_of(model.func, given)
        return
    owner = model if isinstance(model, torch.nn.Module) else getattr(model, "__self__", None)
    function = getattr(model, "__func__", model)
    roots = {"": owner} if isinstance(owner, torch.nn.Module) else {}
    if isinstance(function, types.FunctionType):
        roots |= {name: value for name, value in _captured_by(function).items() if isinstance(value, torch.nn.Module)}
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        roots |= dict(zip((name for name in names if name not in ("self", *roots)), given, strict=False))
    seen: set[int] = set()
    for name, root in roots.items():
        for path, module in root.named_modules():
            if id(module) not in seen:
                seen.add(id(module))
                yield ".".join(filter(None, (name, path))), module


def tensors_of(model: Any) -> list[torch.Tensor]:
    """Tensors that a callable closes over or reads from its globals, outside of modules, each once."""
    return list({id(t): t for t in _reached(model) if isinstance(t, torch.Tensor)}.values())


def _reached(model: Any) -> Iterator[Any]:
    if isinstance(model, torch.nn.Module):
        yield model
    elif isinstance(model, types.MethodType):
        yield from pytree.tree_leaves(model.__self__)
        yield from _reached(model.__func__)
    elif isinstance(model, functools.partial):
        yield from _reached(model.func)
        yield from pytree.tree_leaves((model.args, model.keywords))
    elif isinstance(model, types.FunctionType):
        for value in _captured_by(model).values():
            yield from pytree.tree_leaves(value)


def _captured_by(function: types.FunctionType) -> dict[str, Any]:
    """Values of a function's closure and of the globals that its code names, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {name: cell.cell_contents for name, cell in cells if _is_full(cell)}
    return {**{n: function.__globals__[n] for n in _names(function.__code__) if n in function.__globals__}, **found}


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (an empty cell raises)
    except ValueError:
        return False
    return True


def _copied_callable(model: Any, memo: dict[int, Any]) -> Any:
    if isinstance(model, torch.nn.Module):
        return _copied(model, memo)
    if isinstance(model, types.MethodType):
        return types.MethodType(_copied_callable(model.__func__, memo), _copied(model.__self__, memo))
    if isinstance(model, functools.partial):
        kwargs = {name: _copied(value, memo) for name, value in model.keywords.items()}
        return functools.partial(_copied_callable(model.func, memo), *(_copied(value, memo) for value in model.args), **kwargs)
    if isinstance(model, types.FunctionType):
        return _copied_function(model, lambda value: _copied(value, memo))
    return model


def _copied_function(function: types.FunctionType, change: Callable[[Any], Any]) -> types.FunctionType:
    """The function over changed copies of the state that it captures: modules, tensors and containers of them. All else is shared."""
    captured = {name: change(value) for name, value in _captured_by(function).items() if _is_state(value)}
    if not captured:
        return function
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closure = tuple(types.CellType(captured[name]) if name in captured else cell for name, cell in cells)
    made = types.FunctionType(function.__code__, {**function.__globals__, **captured}, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made


def _is_state(value: Any) -> bool:
    if isinstance(value, types.ModuleType | type):
        return False
    return any(isinstance(leaf, _STATE) or optimizer_behind(leaf) is not None for leaf in pytree.tree_leaves(value))


_STATE = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor) and not leaf.is_leaf:  # results cannot be copied deeply: a leaf of the same numbers stands in
            memo.setdefault(id(leaf), leaf.detach().clone().requires_grad_(leaf.requires_grad))
    if (optimizer := optimizer_behind(value)) is not None:
        return copy.deepcopy(optimizer, memo).step
    return copy.deepcopy(original_of(value), memo)


def _widen_module(module: torch.nn.Module) -> None:
    module._apply(_wide)


def _widen_optimizer(optimizer: torch.optim.Optimizer) -> None:
    for state in optimizer.state.values():
        state.update({name: _wide(value) for name, value in state.items() if isinstance(value, torch.Tensor)})


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(_WIDER.get(tensor.dtype, tensor.dtype))


def _widen(value: Any, wide: dict[int, torch.Tensor]) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype not in _WIDER:
        return value
    if id(value) not in wide:
        with torch.no_grad():
            made = torch.empty_strided(value.shape, value.stride(), dtype=_WIDER[value.dtype], device=value.device).copy_(value)
        wide[id(value)] = made.requires_grad_(value.requires_grad)
    return wide[id(value)]


def _with_wide_tensors(model: Any, wide: dict[int, torch.Tensor]) -> Any:
    change = functools.partial(pytree.tree_map, functools.partial(_widen, wide=wide))
    if isinstance(model, types.FunctionType):
        return _copied_function(model, change)
    if isinstance(model, functools.partial):
        return functools.partial(_with_wide_tensors(model.func, wide), *change(model.args), **change(model.keywords))
    return model
