"""Symbolic sizes of torch's own tracer (``torch.compile(backend="opmill", dynamic=True)``): its symbols become ours before a capture, and
what was decided about ours is asked of torch's afterwards, which records it as its guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from opmill_fake_tensors import FakeContext, FakeTensor
from opmill_fake_tensors.symbolic import meta_tensor
from opmill_fake_tensors.symbols import Index, Sizes, floordiv, index, mod, sym_int

from ..errors import GraphError


class ForeignSizes:
    """The symbols of one graph in both environments."""

    def __init__(self) -> None:
        self.sizes = Sizes()
        self.context = FakeContext(self.sizes)
        self.theirs: dict[str, torch.SymInt] = {}

    def ours(self, values: Sequence[Any]) -> list[Any]:
        """The values with torch's symbols and fakes replaced by ours."""
        return [self._value(v) for v in values]

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return sym_int(self.sizes, self.expression(value))
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor) or not value._has_symbolic_sizes_strides:
            return value
        sizes, strides = ([self._value(n) if isinstance(n, torch.SymInt) else n for n in ns] for ns in (value.shape, value.stride()))
        offset = value.storage_offset()
        with torch._C._DisableTorchDispatch():
            meta = meta_tensor(sizes, strides, self._value(offset), value.dtype)
        return self.context.from_meta(meta, value.device, requires_grad=value.requires_grad)

    def expression(self, value: torch.SymInt) -> Index:
        """A size of torch's tracer in our symbols; assumed to be the number that it is where it cannot be said so."""
        found = self._convert(value.node.expr, value)
        return index(int(value)) if found is None else found

    def _convert(self, expr: Any, value: torch.SymInt) -> Index | None:
        rule = _RULES.get(type(expr).__name__)
        if rule is None:
            return index(int(expr)) if expr.is_Integer else None
        if rule is _symbol:
            return self._named(expr, value)
        parts = [self._convert(a, value) for a in expr.args]
        return None if None in parts else rule(*parts)

    def _named(self, symbol: Any, value: torch.SymInt) -> Index | None:
        name = str(symbol)
        if name not in self.sizes.symbols:
            environment = value.node.shape_env
            known = torch.SymInt(environment.create_symintnode(symbol, hint=None).node)
            hint = known.node.hint
            low, high = _limits(environment.var_to_range.get(symbol))
            if hint is not None and hint < max(low, 0):
                return index(int(known))  # ours are not negative
            self.theirs[name] = known
            self.sizes.new(hint, low=max(low, 0), high=high, name=name, origin=name)
            if low < 0 and not known >= 0:
                raise GraphError("GI010", f"the size {name} is negative")
        return index(name)

    def give_back(self) -> None:
        """Has torch's environment decide what ours decided. Raises GI010 where it disagrees."""
        for decision in (*self.sizes.decisions, *self.sizes.asserted):
            relation = decision.relation
            value = relation.expr.evaluate(self.theirs)  # type: ignore[arg-type]
            holds = {"==": lambda v: v == 0, "!=": lambda v: v != 0, ">=": lambda v: v >= 0}[relation.kind](value)
            if not holds:
                raise GraphError("GI010", f"sizes disagree on {relation}", hint="this is a bug of the compiler: please report it")


def _limits(known: Any) -> tuple[int, int | None]:
    """A range of torch's as numbers; -1 for all that are negative, None for no limit above."""
    if known is None:
        return 0, None
    low = int(known.lower) if known.lower.is_Integer else -1
    high = int(known.upper) if known.upper.is_Integer else None
    return max(low, -1), high if high is None or high < 1 << 48 else None


def _sum(*parts: Index) -> Index:
    return sum(parts[1:], parts[0])


def _product(*parts: Index) -> Index:
    out = parts[0]
    for part in parts[1:]:
        out = out * part
    return out


def _power(base: Index, exponent: Index) -> Index | None:
    n = exponent.constant
    return _product(*[base] * n) if n is not None and 0 < n < 8 else None


def _symbol(*_: Index) -> None:
    return None


_RULES: dict[str, Callable[..., Index | None]] = {
    "Symbol": _symbol, "Add": _sum, "Mul": _product, "Pow": _power, "PowByNatural": _power,
    "FloorDiv": floordiv, "CleanDiv": floordiv, "Mod": mod, "PythonMod": mod,
}  # fmt: skip
"""Sympy's and torch's functions by the name of their class."""


def has_foreign_sizes(values: Sequence[Any]) -> bool:
    """Whether any of these is symbolic in torch's own environment."""
    return any(
        hasattr(getattr(s, "node", None), "shape_env")
        for v in values
        for s in ((v,) if not isinstance(v, torch.Tensor) else (*v.shape, *v.stride()))
    )
