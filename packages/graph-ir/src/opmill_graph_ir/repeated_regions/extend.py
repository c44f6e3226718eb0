"""The schedule of a whole graph from that of the shortened one: the steps of one turn, again for each block left out.

Why this is right: in the short program the steps of one turn and of the next differ by nothing but the names of what is in the blocks. They
compute a block's values from those of the block before, whatever these are; so the same steps do that for the blocks left out. Only values
of the graph go from one turn to the next, so that their names say what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..loops.index import Index
from ..lowered import BufferArg, BufferInfo, TensorOutput
from ..schedule.steps import ExternStep, KernelStep, Schedule, Step
from .shorten import HEAD, Shortened

Renaming = Callable[[str], str]


@dataclass(frozen=True)
class _Turn:
    """Steps ``[start, end)`` of the short program, which ``[end, end + (end - start))`` do again for the next block. ``own``: buffers of
    these steps that no value of the graph has given its name."""

    start: int
    end: int
    own: frozenset[str]


def extend(short: Schedule, names: Shortened) -> Schedule | None:
    """None where the short program does not show one turn twice, or an output's buffer is not part of it."""
    turn = _turn(short, names)
    outputs = None if turn is None else _outputs(short, names, turn)
    if turn is None or outputs is None:
        return None
    head, tail = short.steps[: turn.end], short.steps[turn.end :]
    steps = [renamed(s, lambda n: names.moved(n, 0)) for s in head]
    for distance in range(1, names.left_out + 1):
        steps += [renamed(s, _copy(names, turn, distance)) for s in head[turn.start :]]
    steps += [renamed(s, lambda n: names.moved(n, names.left_out)) for s in tail]
    buffers = dict(short.buffers)
    for old, new in zip(_before(head, tail, turn, names), (n for s in steps for n in names_in(s)), strict=True):
        if new not in buffers:
            buffers[new] = replace(buffers[old], name=new)
    whole = Schedule(replace(short.lowered, outputs=outputs), steps, buffers)
    return whole if _is_complete(whole) else None


def _before(head: list[Step], tail: list[Step], turn: _Turn, names: Shortened) -> Iterator[str]:
    """The names of all steps of the extended program, as the short one has them."""
    for step in (*head, *(head[turn.start :] * names.left_out), *tail):
        yield from names_in(step)


def _copy(names: Shortened, turn: _Turn, distance: int) -> Renaming:
    return lambda name: f"{name}_{distance}" if name in turn.own else names.moved(name, distance)


# ---- names of a step -------------------------------------------------------------------------------------------------------


def names_in(step: Step) -> Iterator[str]:
    """The buffers of a step in a fixed order, as often as they occur."""
    if isinstance(step, KernelStep):
        yield from step.arguments
    else:
        yield from _of((step.node.args, tuple(step.node.kwargs.values())))
        yield from step.node.mutates
        yield from (r for r in step.node.results if r is not None)


def _of(value: object) -> Iterator[str]:
    if type(value) is BufferArg:
        yield value.buffer
    elif type(value) is tuple or type(value) is list:
        for item in value:
            yield from _of(item)


def renamed(step: Step, new: Renaming) -> Step:
    """The step on other buffers."""
    if isinstance(step, KernelStep):
        return replace(step, arguments=tuple(map(new, step.arguments)), sources=tuple(_source(s, new) for s in step.sources))
    node = step.node
    return ExternStep(
        replace(
            node,
            args=tuple(_with(a, new) for a in node.args),
            kwargs={k: _with(a, new) for k, a in node.kwargs.items()},
            results=tuple(None if r is None else new(r) for r in node.results),
            mutates=tuple(map(new, node.mutates)),
            source=_source(node.source, new),
        )
    )


def _source(name: str, new: Renaming) -> str:
    """The node that a step computes in another turn; itself where that turn has no counterpart of it."""
    try:
        return new(name)
    except (IndexError, KeyError):
        return name


def _with(value: object, new: Renaming) -> object:
    if type(value) is BufferArg:
        return replace(value, buffer=new(value.buffer))
    if type(value) is tuple:
        return tuple(_with(v, new) for v in value)
    return [_with(v, new) for v in value] if type(value) is list else value


# ---- one turn --------------------------------------------------------------------------------------------------------------


def _turn(short: Schedule, names: Shortened) -> _Turn | None:
    """The steps between the first that writes to block ``HEAD`` and the first that writes to the next are the second turn."""
    firsts = [min((k for k, s in enumerate(short.steps) if _writes_to(s, block, names)), default=-1) for block in (HEAD, HEAD + 1)]
    start, end = 2 * firsts[0] - firsts[1], firsts[0]
    if start < 0 or not start < end < firsts[1]:
        return None
    pairs = list(zip(short.steps[start:end], short.steps[end : firsts[1]], strict=True))
    written = {n for step, _ in pairs for n in step.writes()}
    matched: dict[str, str] = {}
    for first, second in pairs:
        if not _alike(first, second, written, matched, names, short.buffers):
            return None
    own = frozenset(written - names.places.keys())
    right = _crosses_by_value(short, end, written - own, names) and _needs_no_more(short, end, firsts[1], names)
    return _Turn(start, end, own) if right else None


def _writes_to(step: Step, block: int, names: Shortened) -> bool:
    return any(n in names.places and names.places[n][0] >= block for n in step.writes())


def _alike(first: Step, second: Step, written: set[str], matched: dict[str, str], names: Shortened, buffers: dict[str, BufferInfo]) -> bool:
    """Whether the second step is the first on the next block's buffers. ``matched`` is what buffers without a value of the graph correspond
    to."""
    ours, theirs = list(names_in(first)), list(names_in(second))
    if type(first) is not type(second) or len(ours) != len(theirs):
        return False
    for here, there in zip(ours, theirs, strict=True):
        if here in names.places:
            if names.next(here) != there:
                return False
        elif here in written:
            if there in names.places or matched.setdefault(here, there) != there:
                return False
        elif here != there:
            return False
        if replace(buffers[here], name="", origin="") != replace(buffers[there], name="", origin=""):
            return False
    if len(set(matched.values())) != len(matched):
        return False
    exchange = dict(zip(ours, theirs, strict=True))
    return without_origin(renamed(first, lambda n: exchange[n])) == without_origin(second)


def without_origin(step: Step) -> Step:
    """What it does, wherever it comes from. Copies for other blocks keep the origins of the steps that they are copies of."""
    if isinstance(step, KernelStep):
        return replace(step, origin="", sources=())
    return ExternStep(replace(step.node, origin="", source=""))


def _crosses_by_value(short: Schedule, end: int, values: set[str], names: Shortened) -> bool:
    """Whether the steps from ``end`` on read, of what the steps before made of blocks, ``values`` alone."""
    ours: set[str] = set()
    for step in short.steps[:end]:
        if not ours.isdisjoint(reads := step.reads()) or not reads.isdisjoint(names.places):
            ours |= step.writes() - names.graph.metas.keys()
        ours |= step.writes() & names.places.keys()
    return not any(n in ours and n not in values for step in short.steps[end:] for n in step.reads())


def _needs_no_more(short: Schedule, end: int, following: int, names: Shortened) -> bool:
    """Whether what is read behind the third turn of blocks before it are the counterparts of what is behind the second. A sum over all
    blocks that was put off until their end reads one more for each."""
    return _crossing(short, following, names) <= {names.next(n) for n in _crossing(short, end, names)}


def _crossing(short: Schedule, at: int, names: Shortened) -> set[str]:
    """Values of blocks that the steps before ``at`` write and later ones read."""
    written = {n for step in short.steps[:at] for n in step.writes()}
    return written & names.places.keys() & {n for step in short.steps[at:] for n in step.reads()}


# ---- what leaves -----------------------------------------------------------------------------------------------------------


def _outputs(short: Schedule, names: Shortened, turn: _Turn) -> tuple[TensorOutput | Index | None, ...] | None:
    """The outputs of the whole graph; None where a block that was left out returns what its turn does not write."""
    outputs = list(short.lowered.outputs)
    for position, (block, heads) in names.outputs.items():
        found = (_output(outputs[known], block - head, names, turn) for head, known in heads)  # type: ignore[arg-type]
        outputs[position] = next(filter(None, found), None)
        if outputs[position] is None:
            return None
    return tuple(outputs)


def _output(out: TensorOutput, distance: int, names: Shortened, turn: _Turn) -> TensorOutput | None:
    if out.buffer in turn.own:
        return replace(out, buffer=f"{out.buffer}_{distance}") if distance <= names.left_out else None
    place = names.places.get(out.buffer)
    return None if place is None else replace(out, buffer=names.names[place[0] + distance][place[1]])


def _is_complete(program: Schedule) -> bool:
    """Whether everything is written before it is read or returned."""
    known = {n for n, b in program.lowered.buffers.items() if b.role != "temporary"}
    for step in program.steps:
        if not step.reads() - step.writes() <= known:
            return False
        known |= step.writes()
    return all(o.buffer in known for o in program.lowered.outputs if type(o) is TensorOutput)
