"""The text of attention kernels.

A program has some rows (queries, or keys for the gradients of keys and values) and walks over their partners. Exponentials are to base 2:
logarithms of sums are kept so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from opmill_graph_ir.loops.index import index
from opmill_graph_ir.loops.ir import Attention, Axis, Const, Expr, LoopKernel, Placed, Ref

from ..budget import Budget
from ..emit import helpers
from ..emit.body import Body, Lines
from ..emit.space import Group, Text
from ..emit.types import ARCH, TYPES
from ..nest import HEADER, WAIT, Function, Param
from .bounds import Band, band_of
from .places import with_places_apart
from .shape import shape_of

_LOG2E = 1 / math.log(2)
_LARGE = (1 << 31) - (1 << 22)
"""Elements of a buffer, from which on its indices take 64 bits."""


def attention_text(kernel: LoopKernel, budget: Budget, *, precise: bool) -> Function:
    """The function of a kernel of attention."""
    assert kernel.attention is not None
    return _Writer(kernel, kernel.attention, budget, precise).write()


class _Writer:
    def __init__(self, kernel: LoopKernel, found: Attention, budget: Budget, precise: bool) -> None:
        extents = {"i": found.queries, "j": found.keys, "h": found.heads, "b": found.batch}
        slope = None if found.slope is None else with_places_apart(found.slope, extents)
        self.kernel, self.precise = kernel, precise
        self.found = replace(found, score=with_places_apart(found.score, extents), slope=slope)
        self.shape = shape_of(found, budget)
        self.wide = any((b.numel.constant or 0) >= _LARGE for b in kernel.buffers)
        self.operands = dict(found.operands)
        self.by_keys = found.part == "keys"
        self.rows, self.others = (found.keys, found.queries) if self.by_keys else (found.queries, found.keys)
        self.row, self.other = ("j", "i") if self.by_keys else ("i", "j")
        self.band = band_of(found.kept, self.row, self.other)
        self.needs: dict[str, None] = {}
        self.tl = TYPES[found.dtype].tl
        self.lines = Lines(1)
        self.tiles = -(-self.rows // self.shape.rows)
        self.masked = bool(self.rows % self.shape.rows)
        self.blocks = self._blocks()
        self.ragged = bool(self.others % (self.blocks[1] if self.blocks else self.shape.steps))
        self.ahead = self.shape.ahead and self.blocks is None and found.part != "forward"

    def _blocks(self) -> tuple[int, int] | None:
        """How many rows and partners of these the blocks have of which the program is told; None where places say it all."""
        sizes = (self.found.query_block, self.found.key_block)
        if "count" not in self.operands or self.band.whole:
            return None
        return sizes[::-1] if self.by_keys else sizes

    def write(self) -> Function:
        self.lines.lines += [f"    {line}" for line in WAIT]
        self.start()
        {"forward": self.forward, "keys": self.keys, "queries": self.queries}[self.found.part]()
        params = tuple(Param("buffer", f"{b.name}_ptr", TYPES[b.dtype].pointer, b.name) for b in self.kernel.buffers)
        constants = (("YBLOCK", self.shape.rows), ("RBLOCK", self.shape.steps), (ARCH, 0))
        signature = ", ".join([*(p.name for p in params), *(f"{n}: tl.constexpr" for n, _ in constants)])
        name, code = f"k_{self.kernel.name}", "\n".join(self.lines.lines)
        text = f"{HEADER}{helpers.texts(self.needs)}@triton.jit\ndef {name}({signature}):\n{code}\n"
        heads = self.found.heads // self.found.shared if self.by_keys else self.found.heads
        grid = index(self.tiles * self.found.batch * heads)
        return Function(name, text, params, constants, grid, self.shape.warps, self.wide, self.shape.stages)

    # ---- places ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Which rows the program has: those that have most to do first."""
        add, found = self.lines.add, self.found
        add("pid = tl.program_id(0)" + (".to(tl.int64)" if self.wide else ""))
        tile = f"pid % {self.tiles}"
        late = self.band.high is not None and self.band.low is None
        add(f"ystart = ({self.tiles - 1} - {tile}) * YBLOCK" if late else f"ystart = {tile} * YBLOCK")
        if self.by_keys:
            own = found.heads // found.shared
            add(f"group = pid // {self.tiles} % {own}")
            add(f"batch = pid // {self.tiles * own}")
        else:
            add(f"head = pid // {self.tiles} % {found.heads}")
            add(f"batch = pid // {self.tiles * found.heads}")
            add("group = head" if found.shared == 1 else f"group = head // {found.shared}")
        add("yindex = ystart + tl.arange(0, YBLOCK)[:, None]")
        if self.masked:
            add(f"ymask = yindex < {self.rows}")

    def place(self, name: str, row: str, column: str = "") -> str:
        """Pointers to elements of an operand."""
        placed: Placed = self.operands[name]
        shared = name in ("key", "value", "key_gradient", "value_gradient")
        at = [("batch", placed.strides[0]), ("group" if shared else "head", placed.strides[1]), (row, placed.strides[2])]
        at += [(column, placed.strides[3])] if column else []
        sizes = (self.found.batch, self.found.heads)
        terms = [f"{what} * {stride}" if stride != 1 else what for k, (what, stride) in enumerate(at) if k > 1 or (stride and sizes[k] > 1)]
        terms += [str(placed.offset)] if placed.offset else []
        return f"{placed.buffer}_ptr + {' + '.join(terms)}"

    def tile(self, lines: Lines, name: str, variable: str, along: str, *, outer: bool, row: str = "rplace") -> str:
        """A tile of an operand: ``along`` names its columns. Rows are the program's own where ``outer``, else those of the loop."""
        row, mask = ("yindex", self.masked) if outer else (row, self.ragged)
        masks = f", mask={'ymask' if outer else f'{row}_mask'}, other=0.0" if mask else ""
        lines.add(f"{variable} = tl.load({self.place(name, row, along)}{masks})")
        return variable

    def columns(self) -> None:
        self.lines.add(f"cindex = tl.arange(0, {self.found.width})[None, :]")
        self.lines.add(f"eindex = tl.arange(0, {self.found.depth})[None, :]")

    # ---- the loop ----------------------------------------------------------------------------------------------------------

    def ends(self) -> tuple[str, str]:
        """Between what the partners of a program's rows lie."""
        low, high = "0", str(self.others)
        if self.band.low is not None:
            low = f"tl.maximum(ystart + {self.band.low}, 0) // RBLOCK * RBLOCK"
        if self.band.high is not None:
            high = f"tl.minimum(ystart + YBLOCK + {self.band.high}, {self.others})"
        return low, high

    def spans(self, lines: Lines) -> list[tuple[str, str, bool]]:
        """Stretches of the loop, and whether the mask matters there."""
        low, high = self.ends()
        band: Band = self.band
        if not band.whole or (band.low is None and band.high is None):
            always = not band.whole
            if self.ragged and not always:
                return [("0", f"{self.others} // RBLOCK * RBLOCK", False), (f"{self.others} // RBLOCK * RBLOCK", str(self.others), True)]
            lines.add(f"low = {low}")
            lines.add(f"high = {high}")
            return [("low", "high", always)]
        lines.add(f"low = {low}")
        lines.add(f"high = tl.maximum({high}, low)")
        first = "low" if band.low is None else f"(ystart + YBLOCK - 1 + {band.low} + RBLOCK - 1) // RBLOCK * RBLOCK"
        last = f"{self.others // self.shape.steps * self.shape.steps}"
        if band.high is not None:
            last = f"tl.minimum((ystart + {band.high} + 1) // RBLOCK * RBLOCK, {last})"
        lines.add(f"whole = tl.minimum(tl.maximum({first}, low), (high + RBLOCK - 1) // RBLOCK * RBLOCK)")
        lines.add(f"most = tl.maximum({last}, whole)")
        before = [("low", "whole", True)] if band.low is not None else []
        after = [("most", "high", True)] if band.high is not None or self.ragged else []
        return [*before, ("whole", "most", False), *after]

    def loop(self, depth: int, step: Callable[[Lines, bool], None], lines: Lines | None = None) -> None:
        outer = lines or self.lines
        if self.blocks is not None:
            self.listed(depth, step, outer, *self.blocks)
            return
        spans = self.spans(outer)
        if self.ahead:
            self.scored(outer, spans[0][0], "score")
        for low, high, masked in spans:
            inner = Lines(depth + 1)
            self.step(inner, step, masked)
            outer.add(f"for rstart in tl.range({low}, {high}, RBLOCK, num_stages={self.shape.stages}):")
            outer.lines += inner.lines

    def step(self, inner: Lines, step: Callable[[Lines, bool], None], masked: bool) -> None:
        inner.add(f"rindex = rstart + tl.arange(0, RBLOCK){'.to(tl.int64)' if self.wide else ''}[None, :]")
        inner.add(f"rplace = rstart + tl.arange(0, RBLOCK){'.to(tl.int64)' if self.wide else ''}[:, None]")
        if self.ragged:
            inner.add(f"rmask = rindex < {self.others}")
            inner.add(f"rplace_mask = rplace < {self.others}")
        step(inner, masked)

    def scored(self, lines: Lines, start: str, variable: str) -> None:
        """Writes the product of the program's rows with their partners from ``start`` on. Beyond the last of these nobody reads it."""
        own, partner = ("key", "query") if self.by_keys else ("query", "key")
        places = f"tl.arange(0, RBLOCK){'.to(tl.int64)' if self.wide else ''}[:, None]"
        if self.ragged:
            lines.add(f"rafter = {start} + {places}")
            lines.add(f"rafter_mask = rafter < {self.others}")
        else:
            lines.add(f"rafter = tl.minimum({start}, {self.others - self.shape.steps}) + {places}")
        self.tile(lines, partner, "following", "cindex", outer=False, row="rafter")
        lines.add(f"{variable} = {self.dot(own, 'tl.trans(following)')}")

    def listed(self, depth: int, step: Callable[[Lines, bool], None], outer: Lines, own: int, others: int) -> None:
        """Loops over the blocks that the mask lists, then over full ones. The number of the next block is loaded a step before it is used,
        so that loads ahead do not wait for it. What lists say is kept inside of the tensors."""
        steps, last = others // self.shape.steps, -(-self.others // others) - 1
        outer.add(f"own = ystart // {own}")
        for count, listed in (("count", "listed"), ("full_count", "full")):
            if count not in self.operands:
                continue
            outer.add(f"count = tl.minimum(tl.load({self.place(count, 'own')}), {last + 1}) * {steps}")
            outer.add(f"block = tl.load({self.place(listed, 'own')})")
            inner = Lines(depth + 1)
            inner.add(f"rstart = tl.minimum(block, {last}) * {others}" + (f" + turn % {steps} * RBLOCK" if steps > 1 else ""))
            after = f"(turn + 1) // {steps}" if steps > 1 else "turn + 1"
            inner.add(f"block = tl.load({self.place(listed, 'own', f'({after})')}, mask=turn + 1 < count, other=0)")
            self.step(inner, step, count == "count")
            outer.add(f"for turn in tl.range(0, count, num_stages={self.shape.stages}):")
            outer.lines += inner.lines

    def changed(self, lines: Lines, masked: bool) -> Body:
        """Writes ``scaled``, the changed score times log2(e) (minus infinity for pairs that do not count), of the product ``score``."""
        found = self.found
        body = self.body(lines)
        if found.score == Ref("score", "float32"):
            lines.add(f"scaled = score * {found.scale * _LOG2E!r}")
        else:
            lines.add(f"score = score * {found.scale!r}")
            lines.add(f"scaled = {self.spread(body, found.score)} * {_LOG2E!r}")
        kept = [] if found.kept == Const(True, "bool") or not masked else [self.spread(body, found.kept)]
        if self.ragged and (masked or not self.band.whole):
            kept.append("rmask")
        if kept:
            lines.add(f"scaled = tl.where({' & '.join(kept)}, scaled, float('-inf'))")
        return body

    def body(self, lines: Lines) -> Body:
        scores = frozenset({"y", "r"})
        names = {"score": Text("score", scores, True), "gradient": Text("weighted", scores, True)}
        names |= {"b": Text("batch", frozenset(), True), "h": Text("head", frozenset(), True)}
        quick = not self.precise and TYPES[self.found.dtype].kind == "half"
        body = Body(2, lines, frozenset(), self.needs, names, frozenset(), self.precise, quick, zeros=True, rounds=self.precise)

        def define(variable: str, text: str) -> str:
            lines.add(f"{variable} = {text}")
            return variable

        own, partner = (Axis(name, index(n)) for name, n in ((self.row, self.rows), (self.other, self.others)))
        body.groups = [
            Group("y", (own,), self.shape.rows, self.masked, define, "ystart", "[:, None]"),
            Group("r", (partner,), self.shape.steps, self.ragged, define, "rstart", "[None, :]"),
        ]
        return body

    def spread(self, body: Body, function: Expr) -> str:
        return f"({body.spread(body.value(function), frozenset({'y', 'r'}))})"

    def dot(self, a: str, b: str, total: str = "") -> str:
        exact = f', input_precision="{"ieee" if self.precise else "tf32x3"}"' if self.found.dtype == "float32" else ""
        return f"tl.dot({a}, {b}{', ' + total if total else ''}{exact})"

    def half(self, value: str) -> str:
        return value if self.found.dtype == "float32" else f"{value}.to({self.tl})"

    # ---- parts -------------------------------------------------------------------------------------------------------------

    def forward(self) -> None:
        add = self.lines.add
        self.columns()
        self.tile(self.lines, "query", "query", "cindex", outer=True)
        add("largest = tl.full([YBLOCK, 1], float('-inf'), tl.float32)")
        add("sums = tl.zeros([YBLOCK, 1], tl.float32)")
        add(f"total = tl.zeros([YBLOCK, {self.found.depth}], tl.float32)")

        def step(lines: Lines, masked: bool) -> None:
            self.tile(lines, "key", "key", "cindex", outer=False)
            lines.add(f"score = {self.dot('query', 'tl.trans(key)')}")
            self.changed(lines, masked)
            lines.add("larger = tl.maximum(largest, tl.max(scaled, 1)[:, None])")
            lines.add("beside = tl.where(larger == float('-inf'), 0.0, larger)")
            lines.add("weight = tl.exp2(scaled - beside)")
            lines.add("shrunk = tl.exp2(largest - beside)")
            lines.add("sums = sums * shrunk + tl.sum(weight, 1)[:, None]")
            self.tile(lines, "value", "value", "eindex", outer=False)
            lines.add(f"total = {self.dot(self.half('weight'), 'value', 'total * shrunk')}")
            lines.add("largest = larger")

        self.loop(1, step)
        self.store("output", "total / tl.where(sums == 0.0, 1.0, sums)", "eindex")
        if "sums" in self.operands:
            self.store("sums", "tl.where(sums == 0.0, float('-inf'), largest + tl.log2(sums))")
        if "largest" in self.operands:
            self.store("largest", "largest")

    def pair(self, lines: Lines, own: str, partner: str, first: str, second: str) -> None:
        """Writes ``score``; where the next step's is computed meanwhile, ``products`` and that. A program waits for ``products``, and so
        for all before it; what comes then runs beside the exponentials."""
        if self.ahead:
            self.tile(lines, second, second, "eindex", outer=False)
            lines.add(f"products = {self.dot(first, f'tl.trans({second})')}")
            self.scored(lines, "rstart + RBLOCK", "further")
        self.tile(lines, partner, partner, "cindex", outer=False)
        if not self.ahead:
            lines.add(f"score = {self.dot(own, f'tl.trans({partner})')}")

    def products(self, lines: Lines, first: str, second: str, between: str = "") -> None:
        """Writes ``products``, and ``between`` as soon as its operands are there."""
        if not self.ahead:
            self.tile(lines, second, second, "eindex", outer=False)
        if between:
            lines.add(between)
        if not self.ahead:
            lines.add(f"products = {self.dot(first, f'tl.trans({second})')}")

    def go_on(self, lines: Lines) -> None:
        if self.ahead:
            lines.add("score = further")

    def weights(self, lines: Lines, masked: bool) -> Body:
        """Writes ``weight`` of the pairs."""
        body = self.changed(lines, masked)
        lines.add("weight = tl.exp2(scaled - sums)")
        return body

    def sloped(self, lines: Lines, body: Body) -> None:
        """Writes ``slope`` of ``products``, which the output's gradient and the values make."""
        lines.add("weighted = weight * (products - row)")
        assert self.found.slope is not None
        lines.add(f"slope = {self.spread(body, self.found.slope)}")
        valid = [name for name, needed in (("ymask", self.masked), ("rmask", self.ragged)) if needed]
        if valid:
            lines.add(f"slope = tl.where({' & '.join(valid)}, slope, 0.0)")

    def row_values(self, lines: Lines, place: str, mask: str) -> None:
        """Logarithms of sums, infinite for rows without any, and the number of each row."""
        for name, other in (("sums", "float('inf')"), ("rows", "0.0")):
            masks = f", mask={mask}, other={other}" if mask else ""
            lines.add(f"{'row' if name == 'rows' else name} = tl.load({self.place(name, place)}{masks})")
        lines.add("sums = tl.where(sums == float('-inf'), float('inf'), sums)")

    def queries(self) -> None:
        self.columns()
        self.tile(self.lines, "query", "query", "cindex", outer=True)
        self.tile(self.lines, "gradient", "gradient", "eindex", outer=True)
        self.row_values(self.lines, "yindex", "ymask" if self.masked else "")
        self.lines.add(f"total = tl.zeros([YBLOCK, {self.found.width}], tl.float32)")

        def step(lines: Lines, masked: bool) -> None:
            self.pair(lines, "query", "key", "gradient", "value")
            body = self.weights(lines, masked)
            self.products(lines, "gradient", "value")
            self.sloped(lines, body)
            lines.add(f"total = {self.dot(self.half('slope'), 'key', 'total')}")
            self.go_on(lines)

        self.loop(1, step)
        self.store("query_gradient", f"total * {self.found.scale!r}", "cindex")

    def keys(self) -> None:
        self.columns()
        self.tile(self.lines, "key", "key", "cindex", outer=True)
        self.tile(self.lines, "value", "value", "eindex", outer=True)
        self.lines.add(f"keys = tl.zeros([YBLOCK, {self.found.width}], tl.float32)")
        self.lines.add(f"values = tl.zeros([YBLOCK, {self.found.depth}], tl.float32)")

        def step(lines: Lines, masked: bool) -> None:
            self.pair(lines, "key", "query", "value", "gradient")
            self.row_values(lines, "rindex", "rmask" if self.ragged else "")
            body = self.weights(lines, masked)
            values = f"values = {self.dot(self.half('weight'), 'gradient', 'values')}"
            self.products(lines, "value", "gradient", values)
            self.sloped(lines, body)
            lines.add(f"keys = {self.dot(self.half('slope'), 'query', 'keys')}")
            self.go_on(lines)

        inner = Lines(2)
        inner.add(f"head = group * {self.found.shared} + member" if self.found.shared > 1 else "head = group + member")
        self.loop(2, step, inner)
        self.lines.add(f"for member in range({self.found.shared}):")
        self.lines.lines += inner.lines
        for name, value in (("key_gradient", f"keys * {self.found.scale!r}"), ("value_gradient", "values")):
            if name in self.operands:
                self.store(name, value, "cindex" if name == "key_gradient" else "eindex")

    def store(self, name: str, value: str, column: str = "") -> None:
        mask = ", mask=ymask" if self.masked else ""
        self.lines.add(f"tl.store({self.place(name, 'yindex', column)}, {value}{mask})")


__all__ = ["attention_text"]
