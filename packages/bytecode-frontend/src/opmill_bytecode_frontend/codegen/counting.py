"""Version counters of what a graph writes to, kept as eager counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from msgspec import Struct

from ..assumptions import asked
from ..graph.recorder import is_held
from ..graph.versions import count, kept, uncounted, versions, written
from ..values.base import Value
from ..values.tensor import TensorValue
from ..values.wrapped import is_wrapped
from .rebuild import Rebuilder

if TYPE_CHECKING:
    from ..graph.recorder import Recorder


class Counting(Struct):
    """Statements for the version counters of what a graph writes to: before its call, in place of it (``{}``), and behind it."""

    before: list[str]
    around: str
    behind: list[str]


def counting(r: Rebuilder, recorder: Recorder, loads: Sequence[object]) -> Counting:
    """Statements around the graph that keep version counters as eager counts: several writes of a tensor, and those that do not count."""
    plain = [v for v in recorder.inputs if isinstance(v, TensorValue) and is_read(v) and isinstance(v.obj, torch.Tensor)]
    named = {id(v): f"_held[{loads.index(v.source)}]" if is_held(v) else r.source(v.source) for v in plain}
    often = [v for v in plain if written(v.fake) > 1 or is_written_inside(v)]
    never = [v for v in plain if uncounted(v)]
    made = Counting([], "{}", [])
    if never:
        made.around = f"with {r.constants.name(kept)}({', '.join(named[id(v)] for v in never)}): {{}}"
    if often:
        before = r.temporary("_n")
        made.before.append(f"{before} = {r.constants.name(versions)}({', '.join(named[id(v)] for v in often)})")
        pairs = "".join(f"({named[id(v)]}, {v.fake._version}), " for v in often)
        made.behind.append(f"{r.constants.name(count)}(({pairs}), {before})")
    return made


def is_written_inside(value: TensorValue) -> bool:
    """Whether an input is a wrapper that is written to: a graph writes to what is inside, and counts that."""
    return is_wrapped(value) and not value.fake.is_inference() and value.fake._version > 0


def is_read(value: Value) -> bool:
    """Whether an input of a graph is what its source gives: others are made of it."""
    made = any(getattr(value, name, False) for name in ("below", "of_array", "aliased")) or asked.is_asked(value.source)
    return value.source is not None and not made and getattr(value, "scalar", None) is None
