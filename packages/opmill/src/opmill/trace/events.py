"""What a trace says: a line of JSON each. Texts lie beside, in files named by their content."""

from __future__ import annotations

from typing import Union

from msgspec import Struct


class Event(Struct, frozen=True, omit_defaults=True, tag_field="event"):
    """``time``: seconds since the epoch, at which it was over."""

    time: float


class Process(Event, frozen=True, tag="process"):
    """The first line of a process. ``rank``: of ``torch.distributed``, -1 without."""

    pid: int
    host: str
    rank: int
    program: tuple[str, ...]
    versions: dict[str, str]
    format: int = 1


class Capture(Event, frozen=True, tag="capture"):
    """A piece of code was read: ``name`` of a function, for the callable ``of``. ``assumes``: its guards; ``failed``: it could not be."""

    of: str
    name: str
    where: str
    seconds: float
    assumes: tuple[str, ...] = ()
    code: str = ""
    failed: bool = False


class Begin(Event, frozen=True, tag="begin"):
    """A graph is given to the backend. ``fx``: the text of it."""

    graph: str
    of: str
    number: int
    where: str
    operators: int
    inputs: int
    fx: str


class Step(Event, frozen=True, tag="step"):
    """A step of the compiler was over. ``texts``: by part (forward, backward) what it made, in the representation ``kind``."""

    graph: str
    name: str
    kind: str
    seconds: float
    texts: tuple[tuple[str, str], ...]


class Kernel(Event, frozen=True, tag="kernel"):
    """A kernel: its loops and what a generator made of them; ``origins``: of the steps that start it."""

    graph: str
    part: str
    name: str
    generator: str
    loops: str
    text: str
    origins: tuple[str, ...]


class PlanStep(Struct, frozen=True, omit_defaults=True):
    """A kernel or operator of a plan. ``reads``: steps whose results it reads, -1 for inputs. ``bytes``: that it moves, -1 where its sizes
    vary."""

    name: str
    kind: str
    origin: str
    reads: tuple[int, ...]
    bytes: int
    at: int
    """Its position among all steps of the plan."""


class Block(Struct, frozen=True, omit_defaults=True):
    """A piece of the arena: steps of the plan ``[begin, end)`` need it."""

    offset: int
    bytes: int
    begin: int
    end: int
    origin: str


class Plan(Event, frozen=True, tag="plan"):
    """What runs. ``arena``: bytes, or an expression of sizes."""

    graph: str
    part: str
    steps: tuple[PlanStep, ...]
    blocks: tuple[Block, ...]
    count: int
    arena: Union[int, str]


class End(Event, frozen=True, tag="end"):
    """The backend is done with a graph. ``phases``: seconds of each step."""

    graph: str
    seconds: float
    cached: bool = False
    kernels: int = 0
    launches: int = 0
    calls: int = 0
    phases: dict[str, float] = {}
    fallback: str = ""


class Break(Event, frozen=True, tag="break"):
    """Capture ended at a place of the program."""

    of: str
    code: str
    what: str
    where: str
    why: str
    hint: str
    told: str


class Recompile(Event, frozen=True, tag="recompile"):
    """A call fitted nothing: of each specialisation, the latest first, what did not hold."""

    of: str
    function: str
    reasons: tuple[str, ...]


class Sources(Event, frozen=True, tag="sources"):
    """Files of the program, and their texts as they were."""

    files: dict[str, str]


class Times(Event, frozen=True, tag="times"):
    """What ``opmill.profile`` measured: seconds of each kernel or operator in a call, by its origin; ``eager`` and ``compiled``: of the
    call."""

    of: str
    steps: tuple[tuple[str, str, float, float], ...]
    """Name, origin, seconds, share of the machine's limit."""
    eager: float
    compiled: float


AnyEvent = Union[Process, Capture, Begin, Step, Kernel, Plan, End, Break, Recompile, Sources, Times]

__all__ = [
    "AnyEvent",
    "Begin",
    "Block",
    "Break",
    "Capture",
    "End",
    "Event",
    "Kernel",
    "Plan",
    "PlanStep",
    "Process",
    "Recompile",
    "Sources",
    "Step",
    "Times",
]
