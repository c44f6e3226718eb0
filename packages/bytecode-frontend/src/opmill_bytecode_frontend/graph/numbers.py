"""Symbolic sizes in a capture: where each symbol is found at a call, as node of the graph, as Python text, as guard."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from opmill_fake_tensors import DataDependent
from opmill_fake_tensors.jagged import is_ragged
from opmill_fake_tensors.symbols import FloorDiv, Index, Relation, Sizes, index, index_of, sym_int
from opmill_fake_tensors.symbols.real import FUNCTIONS, Real, fraction
from opmill_fake_tensors.wrappers import Share, first_shares, takes_operators
from opmill_guards.guard import SizeRelation
from opmill_guards.source import Attr, Source, TensorProperty

from ..entry.varying import SMALLEST
from ..messages.excerpt import Span, excerpt
from ..values.floating import FloatNumber
from ..values.number import WHOLE, Sourced, SymbolicNumber, assumed_outcome, is_int
from .regions import SIZE

if TYPE_CHECKING:
    from opmill_fake_tensors.symbols.index import Atom

    from ..entry.varying import Limits
    from ..values.base import Machine, Value
    from ..values.tensor import TensorValue

_FORMS = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "truediv": "({} / {})",
    "floordiv": "({} // {})",
    "mod": "({} % {})",
    "neg": "(-{})",
    "abs": "abs({})",
    "float": "({} * 1.0)",
    **{name: f"math.{name}({{}})" for name in ("sqrt", "cos", "sin", "tanh", "log2")},
}
"""Operations of a ``Real`` as guards write them."""

EXTREMES = {"min": torch.sym_min, "max": torch.sym_max}
WORD = 62
"""Bits of the ints that are computed before a graph."""
NodeOf = Callable[["TensorValue | SymbolicNumber"], torch.fx.Node]


def size_of_tensor(source: Source, dim: int) -> Source:
    """The source of a tensor's size along a dimension."""
    return TensorProperty(source, "size", dim)


class Numbers:
    """Size symbols of one capture and their sources."""

    def __init__(self, graph: torch.fx.Graph, where: Callable[[], str] | None, spans: Mapping[str, tuple[str, Span]]) -> None:
        self.graph, self.spans = graph, spans
        self.sizes = Sizes(where)
        self.sources: dict[str, Source] = {}
        self.computed: dict[str, tuple[str, dict[Source, object]]] = {}
        """Symbols that have no source but an expression over others, which are no ints, and the values of these."""
        self.owners: dict[str, TensorValue | SymbolicNumber] = {}
        """Symbol -> the tensor whose size it is, or the number argument itself."""
        self.read: dict[str, tuple[str, int]] = {}
        """Symbol -> whether it is the size or the stride of its owner's dimension, and of which."""
        self.inside: dict[str, str] = {}
        """Symbol -> the attribute of its owner that has the size."""
        self.by_source: dict[Source, SymbolicNumber] = {}
        self.by_text: dict[object, SymbolicNumber] = {}
        self.strides: list[SizeRelation] = []
        self.asked: list[Index] = []
        """Symbols of dimensions that the program itself marked as changing."""
        self.late: dict[str, torch.fx.Node] = {}
        """Symbols that only data tell, and the node that reads each: an item, a size of what an operator gave."""
        self._nodes: dict[object, Any] = {}

    def name(self, symbol: Index, source: Source, *read: Any) -> None:
        """Where the symbol is found at a call. ``read``: what it is of its owner."""
        [name] = symbol.symbols
        self.sources[name] = source
        self.read |= {name: read} if read else {}

    def new_sizes(
        self, obj: torch.Tensor, source: Source, limits: Mapping[int, Limits], size_of: Callable[[Source, int], Source]
    ) -> dict[int, Index]:
        """Symbols for the dimensions of an input in ``limits``. Of a wrapper that has a part of the whole inside, where other devices have
        the others, they are the sizes of this part; of one that no part tells of, there are none."""
        shares: Mapping[int, Share] = dict.fromkeys(limits, Share(1, 0))
        inside = ""
        if takes_operators(type(obj)) and limits:
            if (found := first_shares(obj, limits)) is None:
                return {}
            inside, shares = found
        sizes = {}
        for d, own in limits.items():
            often, rest = shares[d]
            low, high = -((rest - own.low) // often), None if own.high is None else (own.high - rest) // often
            symbol = self.sizes.new((obj.size(d) - rest) // often, low=max(low, SMALLEST), high=high, origin=f"{source}.size({d})")
            self.name(symbol, size_of(source if often == 1 else Attr(source, inside), d), "size", d)
            self.inside |= dict.fromkeys(symbol.symbols, inside) if often > 1 else {}
            self.asked += [symbol] if own.asked else []
            sizes[d] = symbol * often + rest
        return sizes

    def computed_number(self, value: int, text: str, sources: dict[Source, object]) -> SymbolicNumber:
        """The number for an expression over sources, which is an input."""
        key = (text, *sources)
        found = self.by_text.get(key)
        if found is None:
            symbol = self.sizes.new(value, origin=text.format(*map(str, sources)))
            found = self.by_text[key] = SymbolicNumber(sym_int(self.sizes, symbol), None, value)
            found.computed = value, text, sources
            self.computed.update(dict.fromkeys(symbol.symbols, (text, dict(sources))))
            self.owners.update(dict.fromkeys(symbol.symbols, found))
        return found

    # ---- sizes that only data tell ---------------------------------------------------------------------------------

    def unbound(self) -> set[str]:
        """Symbols of that kind which nothing reads yet."""
        return {name for name in self.sizes.data() if name not in self.late}

    def is_of_inputs(self, number: torch.SymInt) -> bool:
        """Whether a number is computed from what is known before the graph."""
        return all(name in self.sources or name in self.computed for name in self.sizes.simplify(index_of(number)).symbols)

    def bind_number(self, number: torch.SymInt, node: torch.fx.Node) -> None:
        """A number that ``node`` reads from a tensor."""
        self.late.setdefault(str(index_of(number)), node)

    def bind_sizes(self, shape: Iterable[int | torch.SymInt], node: torch.fx.Node, node_of: NodeOf) -> None:
        """Symbols that the sizes of what ``node`` gives tell."""
        unbound = self.unbound()
        for d, size in enumerate(shape if unbound else ()):
            if is_ragged(size):
                continue
            expr = index_of(size)
            names = expr.symbols & unbound
            if len(names) != 1:
                continue
            [name] = names
            stride = expr.stride_of(name)
            if stride is not None and (sign := stride.constant) in (1, -1):
                number = self._after(torch.ops.aten.sym_size.int, (node, d))
                rest = self._index(expr - index(name) * sign, node_of)
                if not isinstance(rest, int) or rest:
                    number = self._after(operator.sub, (number, rest))
                self.late[name] = number if sign == 1 else self._after(operator.neg, (number,))
                unbound.discard(name)

    def _after(self, function: Callable[..., object], args: tuple[Any, ...]) -> torch.fx.Node:
        node = self.graph.call_function(function, args)
        node.meta["late number"] = True
        return node

    # ---- nodes of the graph ----------------------------------------------------------------------------------------

    def node(self, number: object, node_of: NodeOf) -> object:
        """A symbolic number as argument of a node: made of the inputs' sizes by Python's operators. ``node_of`` gives the input's node."""
        if type(number) is torch.SymFloat:
            return self._real(number.node.value, node_of)
        return self._index(index_of(number), node_of)

    def condition(self, relation: Relation, node_of: NodeOf) -> Any:
        """A relation as argument of a node."""
        compare = {"==": operator.eq, "!=": operator.ne, ">=": operator.ge}[relation.kind]
        return self._call(compare, self._index(relation.expr, node_of), 0)

    def _index(self, expr: Index, node_of: NodeOf) -> object:
        expr = self.sizes.simplify(expr)
        if (constant := expr.constant) is not None:
            return constant
        if expr in self._nodes:
            return self._nodes[expr]
        total: object = None
        for monomial, coefficient in expr.terms:
            product = coefficient if not monomial else None
            for atom in monomial:
                factor = self._atom(atom, node_of)
                product = factor if product is None else self._call(operator.mul, product, factor)
            if monomial and coefficient != 1:
                product = self._call(operator.mul, product, coefficient)
            total = product if total is None else self._call(operator.add, total, product)
        self._nodes[expr] = total
        return total

    def _atom(self, atom: Atom, node_of: NodeOf) -> Any:
        if isinstance(atom, str):
            return self._symbol(atom, node_of)
        function = operator.floordiv if isinstance(atom, FloorDiv) else operator.mod
        return self._call(function, self._index(atom.numerator, node_of), self._index(atom.denominator, node_of))

    def _symbol(self, name: str, node_of: NodeOf) -> object:
        known = self.late.get(name) or self._nodes.get(name)
        if known is None and name in self.sizes.divided:
            number, by, rest = self.sizes.divided[name]
            known = self.late[name] = self._after(operator.mod if rest else operator.floordiv, (self._index(number, node_of), by))
        if known is None and name in self.sizes.extremes:
            which, *pair = self.sizes.extremes[name]
            known = self.late[name] = self._after(EXTREMES[which], tuple(self._index(each, node_of) for each in pair))
        if known is None and not self.is_given(name):
            raise DataDependent("size", f"{name} is {self.sizes.symbols[name].origin}, which no result shows")
        if known is None:
            known = node_of(self.owners[name])
            if name in self.read:
                what, dim = self.read[name]
                if name in self.inside:
                    known = self._made(getattr, (known, self.inside[name]))
                known = self._made(torch.ops.aten.sym_size.int if what == "size" else torch.ops.aten.sym_stride.int, (known, dim))
            self._nodes[name] = known
            known.meta.setdefault(SIZE, name)
        return known

    def _real(self, value: object, node_of: NodeOf) -> object:
        if isinstance(value, Index):
            return self._index(value, node_of)
        if not isinstance(value, Real):
            return value
        return self._call(FUNCTIONS[value.op], *(self._real(a, node_of) for a in value.args))

    def _call(self, function: Callable[..., object], *args: object) -> Any:
        if not any(isinstance(a, torch.fx.Node) for a in args):
            return function(*args)
        return self._made(function, args)

    def _made(self, function: Callable[..., object], args: tuple[Any, ...]) -> torch.fx.Node:
        """Numbers stand right behind the inputs: they are those of the call, whatever is written to the inputs later."""
        key = function, args
        if key not in self._nodes and any(
            isinstance(a, torch.fx.Node) and (a in self.late.values() or "late number" in a.meta) for a in args
        ):
            self._nodes[key] = self._after(function, args)
        if key not in self._nodes:
            inputs = [n for n in self.graph.nodes if n.op == "placeholder" or n.meta.get("number")]
            with self.graph.inserting_after(inputs[-1]):
                node = self.graph.call_function(function, args)
            node.meta["number"] = True
            self._nodes[key] = node
        return self._nodes[key]

    # ---- Python text -----------------------------------------------------------------------------------------------

    def text(self, number: object, read: Callable[[str], str], name_of: Callable[[object], object]) -> str:
        """Python that computes the number, or the truth, from its symbols, which ``read`` turns into text; ``name_of`` names other
        objects."""
        if type(number) is torch.SymFloat:
            return self._real_text(
                number.node.value,
                read,
                lambda other: str(name_of(other)),
                lambda op, parts: f"{name_of(FUNCTIONS[op])}({', '.join(parts)})",
            )
        if type(number) is torch.SymBool:
            relation = number.node.condition
            return f"({self._index_text(relation.expr, read)} {relation.kind} 0)"
        return self._index_text(index_of(number), read)

    def _index_text(self, expr: Index, read: Callable[[str], str]) -> str:
        expr = self.sizes.simplify(expr)
        return "(" + re.sub(r"\b[su]\d+\b", lambda found: read(found.group()), str(expr)) + ")"

    def _real_text(
        self, value: object, read: Callable[[str], str], written: Callable[[object], str], called: Callable[[str, list[str]], str]
    ) -> str:
        """``written`` turns other objects into text, ``called`` operations of texts."""
        if isinstance(value, Index):
            return self._index_text(value, read)
        if not isinstance(value, Real):
            return written(value)
        return called(value.op, [self._real_text(a, read, written, called) for a in value.args])

    def float_of(self, number: torch.SymFloat) -> torch.SymInt | None:
        """The integer that a float is the nearest to; None for one that is computed otherwise."""
        match number.node.value:
            case Real("float", (Index() as whole,)):
                return sym_int(self.sizes, whole)
        return None

    def sourced(self, number: object) -> Sourced | None:
        """A number by its sources; None where only data tell, and for what has no text."""
        sources: dict[Source, object] = {}

        def place(source: Source, value: object) -> str:
            sources.setdefault(source, value)
            return f"{{{list(sources).index(source)}}}"

        def read(name: str) -> str:
            if name in self.computed:
                text, theirs = self.computed[name]
                return text.format(*(place(source, value) for source, value in theirs.items()))
            return place(self.sources[name], self.sizes.symbols[name].hint)  # what only data tell has no source

        if isinstance(number, (int, float)):
            return (number, repr(number), sources) if math.isfinite(number) else None
        value = number.node.value if type(number) is torch.SymFloat else index_of(number)
        try:
            text = self._real_text(value, read, repr, lambda op, parts: _FORMS[op].format(*parts))
        except KeyError:
            return None
        return value.evaluate({name: s.hint for name, s in self.sizes.symbols.items() if s.hint is not None}), text, sources

    def power(self, vm: Machine, base: object, exponent: object) -> Value | None:
        """A power that is a float, computed before the graph; None for one of ints, and where it cannot be."""
        left, right = (self.sourced(number) for number in (base, exponent))
        if left is None or right is None or (is_int(base) and is_int(exponent) and right[0] >= 0):
            return None
        first, second = (FloatNumber(vm, *found) if found[2] else found[0] for found in (left, right))
        if isinstance(first, FloatNumber):
            return first.power(second)
        return second.power(first, swapped=True) if isinstance(second, FloatNumber) else None

    def rounded(self, vm: Machine, name: str, number: object) -> Value | None:
        """A float that is computed from ints, rounded before the graph; None for what sizes have an expression of."""
        if type(number) is not torch.SymFloat or (
            isinstance(number.node.value, Real) and fraction(number.node.value) is not None and name != "__round__"
        ):
            return None
        found = self.sourced(number)
        return None if found is None else FloatNumber(vm, *found).special(vm, name, [])

    def whole(self, vm: Machine, name: str, left: object, right: object) -> Value | None:
        """An operation of two ints, computed before the graph where it is one of 64 bits; None for others, and where it cannot be."""
        if not (is_int(left) and is_int(right)) or (name == "__pow__" and not isinstance(right, torch.SymInt)):
            return None
        second = self.sourced(right)
        if second is not None and name in ("__pow__", "__lshift__", "__rshift__"):
            if not 0 <= second[0] < WORD:
                return None
            for comparison, bound in (("__ge__", 0), ("__lt__", WORD)):
                assumed_outcome(vm, comparison, second, (bound, str(bound), {}))
        return self.applied(vm, getattr(operator, name), f"({{}} {WHOLE[name]} {{}})", [left, right])

    def applied(
        self, vm: Machine, function: Callable[..., int], template: str, numbers: list[object], limits: Iterable[tuple[int, int]] = ()
    ) -> Value | None:
        """A function of ints that gives an int, computed before the graph where that is one of 64 bits; None where it cannot be.
        ``template``: Python of it; ``limits``: in which range each int has to be, ends included, which is assumed."""
        found = [self.sourced(number) for number in numbers]
        known = [each for each in found if each is not None]
        ranges = list(zip(known, limits, strict=False))
        if len(known) < len(found) or not all(low <= each[0] <= high for each, (low, high) in ranges):
            return None
        value = function(*(each[0] for each in known))
        if abs(value) >= 1 << WORD:
            return None
        for each, (low, high) in ranges:
            assumed_outcome(vm, "__ge__", each, (low, str(low), {}))
            assumed_outcome(vm, "__le__", each, (high, str(high), {}))
        sources = {source: number for each in known for source, number in each[2].items()}
        texts = [f"({text})".format(*(f"{{{list(sources).index(source)}}}" for source in own)) for _, text, own in known]
        text = template.format(*texts)
        assumed_outcome(vm, "__lt__", (abs(value), f"abs({text})", sources), (1 << WORD, str(1 << WORD), {}))
        return vm.recorder.computed_input(value, text, sources)

    def is_given(self, name: str) -> bool:
        """Whether a symbol is known when the function is called."""
        return name in self.sources or name in self.computed

    # ---- guards ----------------------------------------------------------------------------------------------------

    def guards(self) -> list[SizeRelation]:
        """What was assumed of the sizes, by the capture and by the backend."""
        out = [self._guard(f"{name} >= {symbol.low}") for name, symbol in self.sizes.symbols.items() if self.is_given(name)]
        out += [
            self._guard(f"{name} <= {symbol.high}")
            for name, symbol in self.sizes.symbols.items()
            if symbol.high is not None and self.is_given(name)
        ]
        decided = [self._guard(str(d.relation), " at ".join(part for part in (d.operator, d.where) if part)) for d in self.sizes.decisions]
        return [*out, *decided, *self.strides]

    def fixed(self) -> list[tuple[str, list[str]]]:
        """Dimensions marked as changing whose size had to be assumed all the same, and why; the lines of source where, as a traceback shows
        them."""
        out = []
        for symbol in self.asked:
            if self.sizes.simplify(symbol).constant is not None:
                reason = next(d for d in self.sizes.decisions if d.relation.kind == "==" and symbol.symbols <= d.relation.expr.symbols)
                [name] = symbol.symbols
                out.append((f"{self.sources.get(name, name)} is assumed: {reason}", self._shown(reason.where)))
        return out

    def _shown(self, where: str) -> list[str]:
        file, _, line = where.rpartition(":")
        function, span = self.spans.get(where, ("", None))
        return excerpt([(file, int(line), function)], [span]) if function else []

    def assume_stride(self, source: Source, dim: int, stride: object) -> None:
        """The stride is this expression of the sizes."""
        expr = self.sizes.simplify(index_of(stride))
        self.strides.append(self._guard(f"stride == {expr}", stride=TensorProperty(source, "stride", dim)))

    def _guard(self, text: str, reason: str = "", **others: Source) -> SizeRelation:
        names: dict[str, str] = {}
        sources: list[Source] = []

        def number(source: Source) -> str:
            sources.append(source)
            return f"s{len(sources) - 1}"

        def rename(found: re.Match[str]) -> str:
            name = found.group()
            if name not in names and name in self.computed:
                made, theirs = self.computed[name]
                names[name] = made.format(*map(number, theirs))
            elif name not in names:
                names[name] = number(others[name] if name in others else self.sources[name])
            return names[name]

        return SizeRelation(re.sub(r"\b(?:[su]\d+|stride)\b", rename, text), tuple(sources), reason)


__all__ = ["Numbers", "size_of_tensor"]
