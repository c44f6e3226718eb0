"""``opmill.check(f)(*args)``: eager, float64 and compiled side by side, in units of eager's own error."""

from __future__ import annotations

import contextlib
import math
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch.utils import _pytree as pytree

from opmill_runtime_cache.devices.host import HOST

from ..compile import arguments_of, compiling_anew, running_uncompiled
from ..shown import InNotebooks
from .copies import Program, kept, modules_of, tensors_of, uncompiled

TOLERANCE = 8.0
"""How many times eager's own error a compiled result may be off before it counts as wrong."""
SEED = 0


class Compared(Struct, frozen=True):
    """One tensor or value of a call. ``eager_error`` and ``compiled_error``: the largest distance from the float64 result, divided by the
    largest number in it (nan where there is no float64 result). ``ratio``: the compiled error in units of eager's, or of one rounding of
    the element type where eager is more exact than that. ``problem``: what is wrong; empty where it is right."""

    name: str
    eager_error: float = math.nan
    compiled_error: float = math.nan
    ratio: float = 0.0
    problem: str = ""


class Checked(InNotebooks, Struct, frozen=True):
    """What ``opmill.check`` saw. True as a condition where everything agrees.

    ``rows``: outputs, gradients, and what the call changed (arguments, parameters, buffers). ``reference``: why there is no float64 result
    to compare with, if so; errors are then distances from eager's."""

    rows: tuple[Compared, ...]
    reference: str = ""
    tolerance: float = TOLERANCE

    @property
    def wrong(self) -> tuple[Compared, ...]:
        """The rows that differ by more than the tolerance."""
        return tuple(row for row in self.rows if row.problem)

    def __bool__(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=120, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return captured.get()

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table

        worst = max((row.ratio for row in self.rows), default=0.0)
        verdict = f"[red]{len(self.wrong)} of {len(self.rows)} wrong[/]" if self.wrong else f"[green]all {len(self.rows)} agree[/]"
        head = f"{verdict}: at most {worst:.2f} times eager's own error (up to {self.tolerance:g} is right)"
        table = Table(box=None, pad_edge=False)
        for column in ("what", "eager's error", "compiled", "ratio", ""):
            table.add_column(column, justify="left" if column in ("what", "") else "right")
        for row in sorted(self.rows, key=lambda row: (not row.problem, -row.ratio))[:_SHOWN]:
            numbers = ("" if math.isnan(n) else f"{n:.2e}" for n in (row.eager_error, row.compiled_error))
            table.add_row(escape(row.name), *numbers, f"{row.ratio:.2f}", f"[red]{escape(row.problem)}[/]")
        parts: list[Any] = [head, table]
        if len(self.rows) > _SHOWN:
            parts.append(f"... and {len(self.rows) - _SHOWN} that are nearer")
        if self.reference:
            parts.append(f"no float64 result: {escape(self.reference)}; distances are from eager's")
        return Group(*parts)


_SHOWN = 20


def check(model: Any, *, tolerance: float = TOLERANCE, **arguments: Any) -> Callable[..., Checked]:
    """``check(f, **compile_arguments)(*args)`` runs ``f`` in eager, in float64 and compiled, each from the same state, and compares.

    Outputs, gradients (where an output requires grad: of a weighted sum of the outputs, with respect to parameters and arguments), and what
    the call writes are compared value by value; element types, shapes, strides, aliases of arguments and exceptions have to be the same.
    ``f`` and its arguments are left as they are: copies are called. Random numbers begin at the same seed in each run.

    What was compiled and called before is called as it is then, with the specialisations that it has, unless it is a function over modules
    or tensors: a result of before that is given again (a stale one) is found as well.

    Args:
        model: a function, method or module, compiled or not.
        tolerance: how many times eager's own error counts as right.
        arguments: of ``opmill.compile``.
    """

    def call(*args: Any, **kwargs: Any) -> Checked:
        program = Program(uncompiled(model), args, kwargs)
        eager = observe_eager(program.fresh())
        own = None if arguments else kept(model)
        compiled = _observe_anew(program, arguments_of(model, arguments)) if own is None else observe_kept(own, program)
        return compare(eager, compiled, reference_of(program), tolerance)

    return call


def observe_kept(own: Callable[[Any], Any], program: Program) -> Observed:
    """What the specialisations that a compiled callable has by now do with a copy of the program (see ``copies.kept``)."""
    fresh = program.fresh()
    return observe(Program(own(fresh.model), fresh.args, fresh.kwargs), fresh.model)


def _observe_anew(program: Program, arguments: Mapping[str, Any]) -> Observed:
    """What the program does compiled anew, in memory that holds other results of its own by then: what nobody wrote is not right by
    luck."""
    fresh, compile = program.fresh(), compiling_anew(arguments)
    compiled = compile(fresh.model)
    stateless = isinstance(fresh.model, types.FunctionType) and fresh.model is program.model
    if stateless or isinstance(fresh.model, torch.nn.Module):
        other = program.shuffled()
        with contextlib.suppress(Exception):
            (compiled if stateless else compile(other.model))(*other.args, **other.kwargs)
    return observe(Program(compiled, fresh.args, fresh.kwargs), fresh.model)


def reference_of(program: Program) -> Observed | str:
    """The float64 run; why there is none where the program does not run in float64."""
    try:
        wide = program.widened()
    except Exception as error:
        return f"{type(error).__name__} while converting: {error}"
    seen = observe_eager(wide)
    return seen if seen.error is None else f"it raises {type(seen.error).__name__}: {str(seen.error).splitlines()[0]}"


class Observed(Struct, frozen=True):
    """What one run did: the values of its outputs, gradients and state by name, aliases as pairs (output, argument), or what it raised."""

    values: Mapping[str, Any]
    aliases: frozenset[tuple[str, str]] = frozenset()
    error: BaseException | None = None


def observe_eager(program: Program) -> Observed:
    """Runs the program as it is, also where it calls what is compiled."""
    with running_uncompiled():
        return observe(program)


def observe(program: Program, model: Any = None) -> Observed:
    """Runs the program, and its backward where there is one. ``model``: whose state is looked at, where it is not what is called."""
    model = program.model if model is None else model
    torch.manual_seed(SEED)
    given = _named_tensors("argument", (list(program.args), dict(program.kwargs)))
    state = dict(_state_of(model))
    gradients = {name: None if tensor.grad is None else _kept(tensor.grad) for name, tensor in _sources(given, state)}
    before = {name: _kept(tensor) for name, tensor in {**given, **state}.items()}
    try:
        with warnings.catch_warnings():  # schedulers know the optimizer that they were made for, not that it was copied with them
            warnings.filterwarnings("ignore", "Seems like `optimizer.step", UserWarning)
            result = program.call()
    except Exception as error:
        return Observed({}, error=error)
    outputs = dict(_named("output", result))
    values: dict[str, Any] = {name: _kept(value) for name, value in outputs.items()}
    changed = {**_named_tensors("argument", (list(program.args), dict(program.kwargs))), **dict(_state_of(model))}
    for name, tensor in changed.items():
        if name in before and not _unchanged(before[name], tensor):  # not by version: some operators write without counting
            values[f"{name} after the call"] = _kept(tensor)
    aliases = frozenset(
        (out, name) for out, value in outputs.items() if isinstance(value, torch.Tensor) for name, t in changed.items() if _share(value, t)
    )
    try:
        if taken := dict(_taken(gradients, given, state)):
            values.update(taken)
        else:
            values.update(_gradients(outputs, dict(_sources(given, state))))
    except Exception as error:
        return Observed(values, aliases, error)
    return Observed(values, aliases)


def _sources(*named: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """What has gradients."""
    for each in named:
        yield from ((name, tensor) for name, tensor in each.items() if tensor.requires_grad and tensor.is_leaf)


def _taken(before: Mapping[str, Any], *named: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, Any]]:
    """Gradients that the program has taken itself, as a training step does."""
    for name, tensor in _sources(*named):
        then = before.get(name)
        if tensor.grad is not None and (then is None or not _unchanged(then, tensor.grad)):
            yield f"gradient of {name}", _kept(tensor.grad)


def backward_of(tensors: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> bool:
    """Runs the backward of what a program returned; False where it has run one itself, and there is none left."""
    try:
        torch.autograd.backward(tensors, weights)
    except RuntimeError as error:
        if "backward through the graph a second time" not in str(error):
            raise
        return False
    return True


def _gradients(outputs: Mapping[str, Any], wanted: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, Any]]:
    """Gradients of a weighted sum of the outputs: weights are the same numbers in every run, whatever the element type."""
    tensors = [t for t in outputs.values() if isinstance(t, torch.Tensor) and t.requires_grad]
    if not tensors or not torch.is_grad_enabled():
        return
    generator = torch.Generator().manual_seed(SEED)
    weights = [torch.rand(t.shape, generator=generator, dtype=torch.float32).add(0.5).to(t.device, t.dtype) for t in tensors]
    if not backward_of(tensors, weights):
        return
    for name, tensor in wanted.items():
        yield f"gradient of {name}", None if tensor.grad is None else _kept(tensor.grad)


def _state_of(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    modules = modules_of(model)
    for number, module in enumerate(modules):
        prefix = "" if len(modules) == 1 else f"{type(module).__name__}{number}."
        yield from ((prefix + name, p) for name, p in module.named_parameters())
        yield from ((prefix + name, b) for name, b in module.named_buffers())
    yield from ((f"captured tensor {number}", t) for number, t in enumerate(tensors_of(model)))


def _named(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    for path, leaf in pytree.tree_flatten_with_path(value)[0]:
        yield prefix + pytree.keystr(path), leaf


def _named_tensors(prefix: str, value: tuple[list[Any], dict[str, Any]]) -> dict[str, torch.Tensor]:
    args, kwargs = value
    named = [*_named(prefix, args), *((f"{prefix} {name.removeprefix(prefix)}", leaf) for name, leaf in _named(prefix, kwargs))]
    return {name: leaf for name, leaf in named if isinstance(leaf, torch.Tensor)}


def _kept(value: Any) -> Any:
    """A tensor as it is now, with its strides: later writes and the backward do not change it."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value.detach().clone() if isinstance(value, torch.Tensor) else value
    with torch.no_grad():
        kept = value.detach()
        return torch.empty_strided(kept.shape, kept.stride(), dtype=kept.dtype, device=kept.device).copy_(kept)


def _unchanged(before: torch.Tensor, now: torch.Tensor) -> bool:
    if before.shape != now.shape or before.dtype != now.dtype:
        return False
    return bool((_flat(before) == _flat(now)).logical_or(_flat(before).isnan() & _flat(now).isnan()).all())


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    try:
        return a.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0
    except (NotImplementedError, RuntimeError):
        return False


# --- comparing ------------------------------------------------------------------------------------------------------------------------


def compare(eager: Observed, compiled: Observed, wide: Observed | str, tolerance: float = TOLERANCE) -> Checked:
    """The verdict over what two runs and the float64 run did."""
    reference = wide if isinstance(wide, str) else ""
    wide_values = {} if isinstance(wide, str) else wide.values
    rows = [*_exceptions(eager.error, compiled.error)]
    if eager.error is None or compiled.error is None or eager.values:
        names = [*eager.values, *(name for name in compiled.values if name not in eager.values)]
        missing = object()
        for name in names:
            theirs, ours = eager.values.get(name, missing), compiled.values.get(name, missing)
            if theirs is missing or ours is missing:
                if eager.error is None and compiled.error is None:
                    rows.append(Compared(name, problem=f"only {'compiled' if theirs is missing else 'eager'} has it"))
                continue
            rows.append(compare_values(name, theirs, ours, wide_values.get(name), tolerance))
    for output, source in sorted(eager.aliases ^ compiled.aliases):
        who = "eager" if (output, source) in eager.aliases else "compiled"
        rows.append(Compared(output, problem=f"shares memory with {source} in {who} only"))
    return Checked(tuple(rows), reference, tolerance)


def _exceptions(eager: BaseException | None, compiled: BaseException | None) -> Iterator[Compared]:
    if eager is None and compiled is None:
        return
    told = [f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}" if e is not None else "nothing" for e in (eager, compiled)]
    same = type(eager) is type(compiled) and str(eager) == str(compiled)
    yield Compared("exception", problem="" if same else f"eager raises {told[0]}; compiled raises {told[1]}")


def compare_values(name: str, eager: Any, compiled: Any, wide: Any, tolerance: float = TOLERANCE) -> Compared:
    """Two values of the same name; ``wide``: the float64 one, if there is one."""
    if not (isinstance(eager, torch.Tensor) and isinstance(compiled, torch.Tensor)):
        same = type(eager) is type(compiled) and _same(eager, compiled)
        return Compared(name, problem="" if same else f"eager: {_short(eager)}, compiled: {_short(compiled)}")
    for what in ("dtype", "shape", "device", "layout"):
        a, b = getattr(eager, what), getattr(compiled, what)
        if a != b:
            return Compared(name, problem=f"{what}: eager {_short(a)}, compiled {_short(b)}")
    if eager.layout is torch.strided and eager.numel() > 0 and _strides(eager) != _strides(compiled):
        return Compared(name, problem=f"strides: eager {eager.stride()}, compiled {compiled.stride()}")
    if not (eager.is_floating_point() or eager.is_complex()):
        count = int((eager != compiled).sum())
        return Compared(name, problem=f"{count} of {eager.numel()} elements differ" if count else "")
    usable = isinstance(wide, torch.Tensor) and wide.shape == eager.shape
    return _compare_floats(name, eager, compiled, wide if usable else eager, tolerance, exact=usable)


def _compare_floats(
    name: str, eager: torch.Tensor, compiled: torch.Tensor, wide: torch.Tensor, tolerance: float, *, exact: bool
) -> Compared:
    rounding = torch.finfo(eager.dtype).eps
    a, b, reference = (_flat(t) for t in (eager, compiled, wide))
    unequal = (a.isnan() != b.isnan()) | ((a.isinf() | b.isinf()) & (a != b) & ~(a.isnan() & b.isnan()))
    if count := int(unequal.sum()):
        return Compared(name, problem=f"{count} of {len(a)} elements are nan or infinite in one of the two only")
    finite = a.isfinite() & reference.isfinite()
    a, b, reference = a[finite], b[finite], reference[finite]
    if not len(a):
        return Compared(name, 0.0, 0.0)
    scale = float(reference.abs().max()) or 1.0
    eager_error, compiled_error = (float((t - reference).abs().max()) / scale for t in (a, b))
    unit = max(eager_error, rounding if exact else 4 * rounding)
    ratio = compiled_error / unit
    at = int((b - reference).abs().argmax())
    problem = "" if ratio <= tolerance else f"element {at}: {float(b[at]):.9g}, not {float(reference[at]):.9g}"
    return Compared(name, eager_error if exact else math.nan, compiled_error, ratio, problem)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    real = torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense
    return real.to(HOST, torch.float64).reshape(-1)


def _strides(tensor: torch.Tensor) -> Sequence[int]:
    """Strides that matter: those of dimensions with more than one element."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _same(a: Any, b: Any) -> bool:
    try:
        return bool(a == b) or (a != a and b != b)
    except Exception:
        return repr(a) == repr(b)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
