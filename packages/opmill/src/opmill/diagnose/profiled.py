"""What ``opmill.profile`` measured, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..origins import lines_in
from ..shown import InNotebooks

_SHOWN = 20


class StepProfile(Struct, frozen=True):
    """One kernel or operator of torch's, as often as the program runs it in a call.

    ``seconds``: of all its runs in a call, the median over calls. ``bytes``: of memory that it reads and writes. ``flops``: floating-point
    operations, counted for products, convolutions and attention. ``share``: of what the machine can do at most, by whichever of the two is
    nearer to it. ``origin``: the operators that it is made of, with their lines."""

    name: str
    kind: str
    count: int
    seconds: float
    bytes: int
    flops: int
    share: float
    origin: str

    @property
    def lines(self) -> tuple[str, ...]:
        """``file:line`` of each line of the program that it comes from."""
        return lines_in([self.origin])


class ModuleProfile(Struct, frozen=True):
    """A module, with those inside of it. ``name``: as ``named_modules()`` has it, behind the name of a variable where the program is a
    function; empty for the outermost one. ``eager``: seconds in eager of a call, forward and backward; ``seconds``: of its kernels and
    operators compiled, those that it shares with other modules in part. ``bytes``, ``flops``, ``share``: of these, as ``StepProfile`` has
    them."""

    name: str
    kind: str
    eager: float
    seconds: float
    bytes: int
    flops: int
    share: float


class Profile(InNotebooks, Struct, frozen=True):
    """What ``opmill.profile`` measured. ``steps``: the longest first. ``modules``: those that run, from the outermost inward, in the order
    of the program. ``eager`` and ``compiled``: seconds of a whole call, with its backward where there is one. ``note``: what could not be
    measured."""

    steps: tuple[StepProfile, ...]
    eager: float
    compiled: float
    note: str = ""
    modules: tuple[ModuleProfile, ...] = ()

    @property
    def seconds(self) -> float:
        """Of all steps together."""
        return sum(step.seconds for step in self.steps)

    def by_line(self) -> dict[str, float]:
        """Seconds of each line of the program, the longest first. What a kernel does for several lines is divided among them evenly."""
        found: dict[str, float] = {}
        for step in self.steps:
            for line in step.lines:
                found[line] = found.get(line, 0.0) + step.seconds / len(step.lines)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=140, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return captured.get()

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.markup import escape

        speed = f", {self.eager / self.compiled:.2f} times eager's speed" if self.compiled else ""
        head = f"{_time(self.compiled)} a call{speed} ({_time(self.eager)}); {len(self.steps)} kernels and operators, {_time(self.seconds)}"
        parts: list[Any] = [head, self._steps_table(), self._lines_table(), *([self._modules_table()] if self.modules else [])]
        return Group(*parts, *([f"[yellow]{escape(self.note)}[/]"] if self.note else []))

    def _steps_table(self) -> Any:
        rows = [
            (s.name, s.kind, str(s.count), _time(s.seconds), _part(s.seconds, self.seconds), *_rates(s), f"{s.share:.0%}", _places(s.lines))
            for s in self.steps[:_SHOWN]
        ]
        return _table(("step", "kind", "runs", "time", "part", "GB/s", "GFLOP/s", "of limit", "from"), rows, len(self.steps))

    def by_module(self) -> dict[str, ModuleProfile]:
        """The modules by name."""
        return {each.name: each for each in self.modules}

    def _modules_table(self) -> Any:
        """The modules that take longest, in the order of the program."""
        least = sorted((each.seconds for each in self.modules), reverse=True)[:_SHOWN][-1]
        chosen = [each for each in self.modules if each.seconds >= least][:_SHOWN]
        rows = [(each.name or "(all)", each.kind, *_compared(each), *_rates(each), f"{each.share:.0%}") for each in chosen]
        return _table(("module", "class", "eager", "compiled", "speed", "GB/s", "GFLOP/s", "of limit"), rows, len(self.modules))

    def _lines_table(self) -> Any:
        lines = self.by_line()
        rows = [(_time(seconds), _part(seconds, self.seconds), _place(line)) for line, seconds in list(lines.items())[:_SHOWN]]
        return _table(("time", "part", "line"), rows, len(lines))


# --- how it is shown ------------------------------------------------------------------------------------------------------------------


def _table(columns: Iterable[str], rows: Sequence[tuple[str, ...]], total: int) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        box=None, pad_edge=False, caption=f"... and {total - len(rows)} more" if total > len(rows) else None, caption_justify="left"
    )
    for column in columns:
        table.add_column(
            column, justify="left" if column in ("step", "kind", "from", "line", "module", "class") else "right", overflow="fold"
        )
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _part(seconds: float, whole: float) -> str:
    return f"{seconds / whole:.0%}" if whole else ""


def _compared(module: ModuleProfile) -> tuple[str, str, str]:
    times = module.eager / module.seconds if module.seconds else 0.0
    return _time(module.eager), _time(module.seconds), f"{times:.0f}x" if times >= 100 else f"{times:.2f}x" if times else ""


def _rates(step: StepProfile | ModuleProfile) -> tuple[str, str]:
    return f"{step.bytes / step.seconds / 1e9:.1f}" if step.seconds else "", f"{step.flops / step.seconds / 1e9:.1f}" if step.flops else ""


def _place(line: str) -> str:
    """A line with as much of its path as tells it from others."""
    file, _, number = line.rpartition(":")
    return f"{'/'.join(Path(file).parts[-2:])}:{number}" if file else line


def _places(lines: tuple[str, ...]) -> str:
    return ", ".join(map(_place, lines[:3])) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
