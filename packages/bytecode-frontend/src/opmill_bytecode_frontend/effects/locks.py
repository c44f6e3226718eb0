"""Locks of before the call that captured code takes.

A graph runs before what the program changes, and guards have looked at its objects before that. So the function holds the locks from its
beginning on: they are taken before anything is read, the guards are asked again under them, and they are given back when all is written.
None is waited for: where one is not free, or a guard does not hold any more, all are given back and the function runs as it is, and waits
where the program does. Held longer than the program holds it, a lock must not be wanted by what runs meanwhile: where that is code of the
program which does not run under the lock by itself, the graph ends before the lock (FE020)."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from opmill_guards.guard import Predicate
from opmill_guards.source import Pinned
from opmill_guards.tree import GuardSet

from ..breaks.continuation import indent
from ..codegen.sources import expression
from ..errors import Unsupported

if TYPE_CHECKING:
    from opmill_guards.guard import Guard
    from opmill_guards.source import Source

    from ..codegen.rebuild import Rebuilder
    from ..interpretation.machine import Interpreter

OWN = ("torch", "opmill_fake_tensors", "math", "builtins", operator.add.__module__)
"""Modules whose functions do not call the program's."""
MOST_WAITED = 4
"""So often a function that finds a lock held runs as it is; then it is captured anew, and the graph ends before the lock."""


class Lock(Protocol):
    """What ``threading.Lock`` and ``RLock`` give."""

    def acquire(self, blocking: bool = ...) -> bool: ...
    def release(self) -> None: ...


class Locks:
    """What takes the locks of one captured function. ``kept``: by their place, those that the program holds where its graph ends, and how
    often; ``contended``: is told of those that were not free too often; ``check``: what has to hold when they are taken, known when the
    capture ends."""

    def __init__(self, kept: Mapping[int, int], contended: weakref.WeakSet[Lock]) -> None:
        self.kept, self.contended = kept, contended
        self.waited = 0
        self.check: Checked | None = None

    def __call__(self, locks: tuple[Lock, ...], *values: object) -> Taking:
        return Taking(self, locks, values)

    def free(self) -> bool:
        """Whether the captured function may be used: a guard asks."""
        return self.waited < MOST_WAITED

    def wait(self, lock: Lock) -> None:
        """One was not free."""
        self.waited += 1
        if not self.free():
            self.contended.add(lock)


class Checked(Protocol):
    """What the guards' tree loads, or None."""

    def __call__(self, *values: object) -> tuple[object, ...] | None: ...


class Taking:
    """One call: a block in which the locks are held. It is entered as what the guards load, or as None: the function is to run as it is."""

    __slots__ = ("held", "locks", "owner", "values")

    def __init__(self, owner: Locks, locks: tuple[Lock, ...], values: tuple[object, ...]) -> None:
        self.owner, self.locks, self.values = owner, locks, values
        self.held = 0
        """How many of them, from the first on."""

    def __enter__(self) -> tuple[object, ...] | None:
        try:
            for lock in self.locks:
                if not lock.acquire(False):
                    self.owner.wait(lock)
                    return None
                self.held += 1
            assert self.owner.check is not None
            return self.owner.check(*self.values)
        except BaseException:
            self.__exit__()
            raise
        finally:
            self.values = ()

    def settle(self) -> None:
        """All is written: each lock is held as often as the program holds it here."""
        kept = self.owner.kept
        while self.held:
            self.held -= 1
            lock, times = self.locks[self.held], kept.get(self.held, 0)
            if not times:
                lock.release()
            for _ in range(times - 1):
                lock.acquire()

    def __exit__(self, *error: object) -> None:
        while self.held:
            self.held -= 1
            self.locks[self.held].release()


def refuse_wanted(vm: Interpreter) -> None:
    """The end of a capture that takes locks: nothing of the program's runs under them that does not do so by itself."""
    effects = vm.effects
    for lock in effects.locks:
        what, place = "a lock that is held", lock.place
        if effects.asked or (not lock.depth and effects.last() is not lock.last):
            raise Unsupported("FE020", what, "what is called before or behind it may want it", place=place)
        if any(map(calls_program, vm.recorder.graph.nodes)):
            raise Unsupported("FE020", what, "an operator of the program may want it", place=place)


def blame(vm: Interpreter, refusal: Unsupported) -> None:
    """What a function of a package cannot be captured for while it holds a lock: all of it runs as it is."""
    for lock in vm.effects.locks:
        if lock.depth and lock.taker is not None:
            refusal.place, refusal.whole = lock.taker.get("place", refusal.place), bool(lock.taker.get("whole", refusal.whole))
            return


def calls_program(node: torch.fx.Node) -> bool:
    """Whether a step of a graph may run code of the program."""
    target = node.target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        name = target.namespace if isinstance(target, torch._ops.OpOverload) else target._qualified_op_name.partition("::")[0]
        return name not in ("aten", "prims", "opmill_numpy")
    if node.op != "call_function":
        return node.op == "call_module"
    module = getattr(target, "__module__", None) or getattr(getattr(target, "__objclass__", None), "__module__", None) or "torch"
    return isinstance(target, torch._ops.HigherOrderOperator) or module.partition(".")[0] not in OWN


class Held:
    """The block of one generated function in which its locks are held. ``call``: the expression of the block; ``otherwise``:
    the statement that calls the function as it is."""

    def __init__(self, locks: Locks, call: str, otherwise: str) -> None:
        self.locks, self.call, self.otherwise = locks, call, otherwise

    def around(self, block: list[str], loads: bool) -> list[str]:
        """The statements, with the locks held. ``loads``: they read what the guards load, which may be another thing by now."""
        first = [f"if _now is None: {self.otherwise}", *(["_held = _now"] if loads else [])]
        return [f"_taking = {self.call}", "with _taking as _now:", *indent([*first, *block])]

    def complete(self, guards: list[Guard], loads: Sequence[Source], names: list[str]) -> None:
        """The guards of the function are known; one more is added to them."""
        self.locks.check = GuardSet(guards, loads).native(names).load
        guards.append(Predicate(Pinned(self.locks, "locks"), Locks.free, "are seldom held by others"))


def hold(r: Rebuilder, names: Sequence[str], otherwise: str) -> Held:
    """The locks that were taken are held while the generated function runs. They are given back behind what was rebuilt so far."""
    refuse_wanted(r.vm)
    taken = r.vm.effects.locks
    locks = Locks({place: lock.depth for place, lock in enumerate(taken) if lock.depth}, r.vm.effects.contended)
    r.body.append("_taking.settle()")
    read = "".join(f"{expression(lock.source, r.constants, r.vm.overridden)}, " for lock in taken)
    return Held(locks, f"{r.constants.name(locks)}(({read}), {', '.join(names)})", otherwise)


__all__ = ["Held", "blame", "hold"]
