"""Plans replayed as CUDA graphs: what the host does in a call shrinks to copying the inputs that moved and one launch.

A graph is recorded once a call has run plainly a few times, for each set of sizes. Inputs that lay where they had lain before, as
parameters that a backward reads and caches that each call changes, those that the program promised to leave where they are
(``torch._dynamo.mark_static_address``), and those that another graph keeps its results in are read and written where they are; the others
in memory of the graph's own, which a call fills first, and copies back from where it is written. Whatever is used in place must lie there
at each replay: where it has moved, a new graph is recorded, which copies it from then on. Held tensors are read where they are, and where
one has moved a new graph is recorded. Results lie in memory of the graph, too (those of torch's operators where these have put them, so
that such graphs share their memory with no other), and are given out as new tensors over it; a graph is replayed only when nobody holds
such a tensor any more. Until then another recording takes its place, and when there are several of these the call runs plainly, so that no
tensor that was given out ever changes.

Parameters stay where they are, and one plan may serve many modules: graphs are kept apart by where the parameters lie, and read them there.
"""

from __future__ import annotations

import contextlib
import ctypes
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch.profiler import record_function

from ... import _native
from ...errors import ExecutorWarning
from ...forking import ForkLock
from ...plan.model import Call, Item, Plan, SizeInput, SizeOfStep, SlotOutput, TensorInput, View
from ..protocol import Executable, devices_of
from .capturing import capturing

WARM_UP = 2
"""Calls that run plainly before one is recorded: libraries of the device set themselves up in them."""
RECORDINGS = 4
"""Graphs for one set of sizes, each with results of its own."""
MOST = 16
"""Graphs recorded for one set of sizes without one replayed in between: recording costs as much as many calls."""
SIZES = 16
"""Sets of sizes that are recorded; calls with further ones run plainly."""
MODULES = 128
"""Sets of places of parameters that graphs are kept for; with more, the oldest that is not in use goes."""

_UNSEEN = contextlib.nullcontext()
_shared: set[int] = set()
"""Storages of graphs' results, by address."""
_first: dict[int, Any] = {}
"""One graph of each device that is never dropped: torch forgets the memory that graphs share with the last of them, and then refuses its
name."""
_replaying = ForkLock()
"""Graphs work in the same memory, and results are handed out by looking at who holds them: one thread at a time."""
_stream: dict[int, torch.cuda.Stream] = {}
"""By device, where the last graph runs: the next one waits for it, on whatever stream it is."""


def recorded(plan: Plan, held: Sequence[torch.Tensor], executable: Executable) -> Executable:
    """``executable``, replayed as CUDA graphs where the plan allows it. One that cannot be recorded stays as it is, with a warning that
    says why (RC071-RC073)."""
    if not isinstance(executable, _native.Executable):
        return executable
    reason = not_recordable(plan)
    if reason is not None:
        _warn("RC071", f"plan {plan.name!r} is not recorded as a CUDA graph: {reason}")
        return executable
    return GraphedExecutable(plan, held, executable)


def not_recordable(plan: Plan) -> str | None:
    """Why a plan cannot be a CUDA graph; None where it can."""
    devices = sorted(devices_of(plan))
    if len(devices) > 1:
        return f"it uses {' and '.join(devices)}"
    step = next((s for s in plan.steps if type(s) in (Item, SizeOfStep)), None)
    if step is not None:
        return "sizes in it depend on data"
    if any(type(s) is Call and s.op.startswith(("_c10d_functional", "opmill_exchange")) for s in plan.steps):
        return "it exchanges tensors with other processes"
    if plan.bodies:
        return "which of its steps run depends on data"
    return None


@dataclass(eq=False)
class _Recording:
    """A recorded graph. ``copied``: positions of the inputs that are copied, and the tensors that they are copied to; ``fixed``: of those
    that are read in place, and where and how they lay."""

    graph: Any
    copied: list[tuple[int, torch.Tensor]]
    fixed: dict[int, bytes]
    outputs: list[Any]
    held_at: int
    storages: list[tuple[int, int]] = field(default_factory=list)
    """The storages of the outputs by address, and how many hold each while nobody else does."""

    def __post_init__(self) -> None:
        self.places = b"".join(self.fixed.values())

    def idle(self) -> bool:
        """Whether nobody holds its results."""
        return all(_users(s) <= own for s, own in self.storages)

    def takes(self, inputs: Sequence[Any], held_at: int) -> bool:
        """Whether it may run for these inputs."""
        return (
            self.held_at == held_at
            and all(t.shape == inputs[k].shape and t.dtype is inputs[k].dtype for k, t in self.copied)
            and not self.moved(inputs)
        )

    def moved(self, inputs: Sequence[Any]) -> list[int]:
        """Inputs that the graph reads in place, and that lie elsewhere or otherwise now."""
        if self.places == _native.places(tuple([inputs[k] for k in self.fixed])):
            return []
        return [k for k, place in self.fixed.items() if place != _place(inputs[k])]


@dataclass(eq=False)
class _Sizes:
    """What is known of calls with one set of sizes. ``seen``: where and how each input lay in the last call that ran plainly; ``moving``:
    inputs that are copied, because they have moved once; ``recorded``: graphs since the last
    replay."""

    calls: int = 0
    seen: list[bytes] = field(default_factory=list)
    moving: set[int] = field(default_factory=set)
    recordings: list[_Recording] = field(default_factory=list)
    recorded: int = 0


class GraphedExecutable:
    """Calls ``executable``, and replays what it did where that is safe."""

    def __init__(self, plan: Plan, held: Sequence[torch.Tensor], executable: _native.Executable) -> None:
        self.plan, self.held, self.executable = plan, tuple(held), executable
        given = [item for item in plan.inputs if not (isinstance(item, TensorInput) and item.held)]
        written = set(plan.exclusive)
        self.written = [k for k, item in enumerate(given) if isinstance(item, TensorInput) and item.slot in written]
        self.sized = [k for k, item in enumerate(given) if isinstance(item, SizeInput) or any(isinstance(n, str) for n in item.spec.sizes)]
        self.numbers = [k for k, item in enumerate(given) if isinstance(item, SizeInput)]
        self.device = next((torch.device(d).index or 0 for d in sorted(devices_of(plan)) if d.startswith("cuda")), -1)
        self.apart = _made_by_operators(plan)
        self.known: dict[bytes, dict[tuple[Any, ...], _Sizes]] = {}
        """By the places of the parameters, then by sizes."""
        self.parameters: list[int] | None = None
        """Which inputs are parameters, from the first call on."""
        self.refused = False
        self.region = f"opmill::{plan.name} (CUDA graph)"
        """What profilers are shown around a replay, in which they see no steps."""

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        if self.refused or _capturing():
            return self.executable(*inputs)
        key = tuple(inputs[k] if k in self.numbers else inputs[k].shape for k in self.sized)
        with _replaying, torch.no_grad():
            sizes = self._of_module(inputs)
            known = sizes.get(key)
            if known is None or known.calls < WARM_UP:
                return self._first_calls(sizes, key, inputs)
            held_at = self.executable.held_at()
            recordings = known.recordings
            for recording in recordings:
                if recording.takes(inputs, held_at) and recording.idle():
                    with record_function(self.region) if torch.autograd._profiler_enabled() else _UNSEEN:
                        return self._replay(known, recording, inputs)
            known.moving.update(k for r in recordings for k in r.moved(inputs) if _storage_of(inputs[k]) not in _shared)
            recordings[:] = [r for r in recordings if (r.held_at == held_at and known.moving.isdisjoint(r.fixed)) or not r.idle()]
            if len(recordings) >= RECORDINGS and (stale := next((r for r in recordings if r.idle()), None)) is not None:
                recordings.remove(stale)  # it reads where nothing lies any more
            if len(recordings) >= RECORDINGS or known.recorded >= MOST:
                _warn("RC073", f"results of plan {self.plan.name!r} are kept from call to call, so that it runs without a CUDA graph")
                return self.executable(*inputs)
            return self._record(known, inputs, held_at)

    def take(self, inputs: list[Any]) -> tuple[Any, ...]:
        """A call that empties the list of its inputs."""
        given = tuple(inputs)
        inputs.clear()
        return self(*given)

    def _of_module(self, inputs: Sequence[Any]) -> dict[tuple[Any, ...], _Sizes]:
        """What is known of calls whose parameters lie where these do."""
        if self.parameters is None:
            self.parameters = [k for k, x in enumerate(inputs) if isinstance(x, torch.nn.Parameter) and k not in self.written]
        places = _native.places(tuple([inputs[k] for k in self.parameters]))
        found = self.known.get(places)
        if found is None:
            if len(self.known) >= MODULES:
                unused = (at for at, own in self.known.items() if all(r.idle() for known in own.values() for r in known.recordings))
                if (oldest := next(unused, None)) is not None:
                    del self.known[oldest]
            found = self.known[places] = {}
        return found

    def _first_calls(self, sizes: dict[tuple[Any, ...], _Sizes], key: tuple[Any, ...], inputs: Sequence[Any]) -> tuple[Any, ...]:
        known = sizes.get(key)
        if known is None:
            if len(sizes) >= SIZES:
                _warn(
                    "RC072",
                    f"plan {self.plan.name!r} was called with more than {SIZES} sets of sizes; further ones run without a CUDA graph",
                )
                return self.executable(*inputs)
            known = sizes[key] = _Sizes()
        known.calls += 1
        known.seen = [_place(x) for x in inputs]
        return self.executable(*inputs)

    def _replay(self, known: _Sizes, recording: _Recording, inputs: Sequence[Any]) -> tuple[Any, ...]:
        _in_order(self.device)
        known.recorded = 0
        for k, tensor in recording.copied:
            tensor.copy_(inputs[k])
        recording.graph.replay()
        if self.written:
            own = dict(recording.copied)
            _note_writes([inputs[k] for k in self.written if k not in own])
            for k in self.written:
                if k in own:
                    inputs[k].copy_(own[k])
        self.executable.touch_held()
        return _native.aliases(recording.outputs)

    def _record(self, known: _Sizes, inputs: Sequence[Any], held_at: int) -> tuple[Any, ...]:
        """Runs plainly, and records the same with the results where this run has put them."""
        results = self.executable(*inputs)
        try:
            self._refuse_shared(inputs, results)
            recording = self._recorded(known, inputs, results, held_at)
        except RuntimeError as error:
            self.refused = True
            _warn("RC071", f"plan {self.plan.name!r} is not recorded as a CUDA graph: {str(error).splitlines()[0]}")
            return results
        known.recordings.append(recording)
        known.recorded += 1
        return _native.aliases(recording.outputs)

    def _recorded(self, known: _Sizes, inputs: Sequence[Any], results: Sequence[Any], held_at: int) -> _Recording:
        own, fixed = self._own_inputs(known, inputs)
        read, wanted = tuple(own), tuple(results)
        made: dict[int, torch.Tensor] = {}

        def run() -> None:
            made.clear()
            for k, (given, tensor) in enumerate(zip(wanted, self.executable.into(read, wanted), strict=True)):
                if isinstance(given, torch.Tensor) and given.data_ptr() != tensor.data_ptr():
                    if self.apart:
                        made[k] = tensor  # an operator made it, in memory of this graph alone
                    else:
                        given.copy_(tensor)

        _in_order(self.device)
        graph = capture(run, self.device, self.apart)
        for k, tensor in made.items():
            results = (*results[:k], tensor.copy_(results[k]), *results[k + 1 :])
        stay = fixed.keys() | set(self.parameters or ())
        copied = [(k, t) for k, t in enumerate(own) if isinstance(t, torch.Tensor) and k not in stay]
        tensors = [t for t in results if isinstance(t, torch.Tensor)]
        storages = {_storage_of(t) for t in tensors}
        recording = _Recording(graph, copied, fixed, list(results), held_at, [(s, _users(s)) for s in storages])
        _shared.update(storages)
        weakref.finalize(recording, _shared.difference_update, storages)
        return recording

    def _own_inputs(self, known: _Sizes, inputs: Sequence[Any]) -> tuple[list[Any], dict[int, bytes]]:
        """What the graph reads: memory of its own, or the inputs themselves where a graph keeps them or they stay where they are; these by
        place."""
        own: list[Any] = list(inputs)
        fixed: dict[int, bytes] = {}
        for k, tensor in enumerate(inputs):
            if not isinstance(tensor, torch.Tensor) or k in (self.parameters or ()):
                continue
            place = _place(tensor)
            stays = known.seen[k] == place or hasattr(tensor, "_dynamo_static_input_type") or _storage_of(tensor) in _shared
            if k not in known.moving and stays:
                fixed[k] = place
            else:
                own[k] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
                own[k].copy_(tensor)
        return own, fixed

    def _refuse_shared(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        inside = {_storage_of(t) for t in (*inputs, *self.held) if isinstance(t, torch.Tensor)}
        if any(isinstance(t, torch.Tensor) and _storage_of(t) in inside for t in results):
            raise RuntimeError("a result shares memory with an input or a parameter")


def _note_writes(tensors: Sequence[torch.Tensor]) -> None:
    """Tells autograd that these have changed; tensors of inference mode have nobody to tell."""
    if known := [t for t in tensors if not t.is_inference()]:
        torch.autograd.graph.increment_version(known)


def _made_by_operators(plan: Plan) -> bool:
    """Whether results lie where torch's operators have put them."""
    made = {slot for step in plan.steps if type(step) is Call for slot in step.results if slot is not None}
    for step in plan.steps:
        if type(step) is View and step.base in made:
            made.add(step.slot)
    return any(type(out) is SlotOutput and out.slot in made for out in plan.outputs)


def _place(value: Any) -> bytes:
    """Where and how a tensor lies; nothing of what is no tensor."""
    return _native.places((value,))


def capture(run: Callable[[], None], device: int, apart: bool = False) -> Any:
    """What ``run`` starts on a GPU, as a graph with a method ``replay``; ``apart``: in memory that no other graph works in."""
    with torch.cuda.device(device):
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, None if apart else _pool(device), _side(device)):
            run()
    if not apart:
        _first.setdefault(device, graph)
    return graph


@lru_cache(1)
def _storage_word() -> int:
    """Which word of torch's tensor object points to its storage. Raises RuntimeError."""
    tensor = torch.empty(1)
    words = (ctypes.c_uint64 * 16).from_address(tensor._cdata)
    found = [k for k, word in enumerate(words) if word == tensor.untyped_storage()._cdata]
    if not found:
        raise RuntimeError(f"torch {torch.__version__} keeps the storage of a tensor where it is not looked for")
    return found[0]


def _storage_of(tensor: torch.Tensor) -> int:
    """The address of a tensor's storage. Asking torch would make a Python object that counts as a holder from then on."""
    return ctypes.c_uint64.from_address(tensor._cdata + 8 * _storage_word()).value


def _users(storage: int) -> int:
    return int(torch._C._storage_Use_Count(storage))


def _capturing() -> bool:
    """Whether the caller records a graph of its own."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _in_order(device: int) -> None:
    """Lets what comes next on the current stream wait for the last graph."""
    if device < 0:
        return
    last = _stream.get(device)
    if last is None or last.cuda_stream != torch._C._cuda_getCurrentRawStream(device):
        current = _stream[device] = torch.cuda.current_stream(device)
        if last is not None:
            current.wait_stream(last)


@lru_cache(None)
def _pool(device: int) -> Any:
    """The memory that graphs of a device share: they run one after the other, and nothing in it outlives a replay."""
    return torch.cuda.graph_pool_handle()


@lru_cache(None)
def _side(device: int) -> torch.cuda.Stream:
    """The stream that graphs of a device are recorded on: torch's own choice is of the first device that records any."""
    return torch.cuda.Stream(device)


@lru_cache(None)
def _warn(code: str, text: str) -> None:
    warnings.warn(f"[{code}] {text}", ExecutorWarning, stacklevel=4)


__all__ = ["GraphedExecutable", "not_recordable", "recorded"]
