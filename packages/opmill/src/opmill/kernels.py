"""``opmill.kernels(f)``: the generated kernels of what was compiled, their sources, and how to edit them."""

from __future__ import annotations

import difflib
import functools
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from .compile import record_of
from .edits import Edits
from .errors import UsageTypeError, UsageValueError
from .origins import lines_in, operators_in
from .record import GraphRecord, Record
from .shown import Shown, shown

_SHOWN_LINES = 3


class GeneratedKernel(Struct, frozen=True, eq=False):
    """A kernel of a compiled callable.

    ``name``: what it is called. ``operators``: those that it is made of, joined by ``+``. ``lines``: ``file:line`` of each line of the
    program that they, or what they are the gradients of, come from. ``graphs``: numbers of the graphs that run it; ``launches``: how often
    these start it together. ``device``: what it runs on. ``loops``: what is computed, as loops, which any kernel generator takes."""

    name: str
    operators: str
    lines: tuple[str, ...]
    graphs: tuple[int, ...]
    launches: int
    device: str
    loops: Shown
    _owner: _Owner

    @property
    def source(self) -> Shown:
        """The text that its generator makes of the loops (C++, Triton), or what somebody made of that."""
        file = self._owner.files(self)[1]
        return self.loops if file is None else shown([_without_mark(file.read_text())])

    def edit(self, what: Literal["source", "loops"] = "source", editor: str | None = None) -> Path:
        """Gives the kernel to be edited: from the next call on the callable runs what its file says then, however often that changes.

        The file stays where it is named by ``options={"override": folder}`` or ``OPMILL_OVERRIDE``, which is also how the next process runs
        it; without either it lies among temporary files. A file that cannot be built warns, and the graph runs as torch's own operators
        until the file is mended; to be rid of an edit, remove it. What gradients are made of is compiled with its forward.

        Args:
            what: ``"source"``, the generator's text, or ``"loops"``.
            editor: a command that is run with the file, and waited for; by default ``$VISUAL`` or ``$EDITOR``, where the program runs in a
                terminal that somebody reads; ``""`` runs none.

        Returns:
            The file.

        Raises:
            ValueError: its generator takes no text, only loops (OM028).
        """
        if what not in ("source", "loops"):
            raise UsageValueError("OM028", f"{what!r} is nothing to edit of a kernel", hint="what= is 'source' or 'loops'")
        loops, source = self._owner.files(self)
        file = loops if what == "loops" else source
        if file is None:
            raise UsageValueError(
                "OM028", f"the generator of {self.name} takes no text of people's", hint='edit("loops") edits what it is made of'
            )
        self._owner.watch(file)
        if command := _editor() if editor is None else editor:
            subprocess.run([*shlex.split(command), str(file)], check=False)
        return file

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {self.operators}, {self.launches} launches, {_told(self.lines)}>"


def _editor() -> str:
    """The user's editor, where somebody can use it."""
    return (os.environ.get("VISUAL") or os.environ.get("EDITOR", "")) if sys.stdin.isatty() and sys.stdout.isatty() else ""


def _without_mark(text: str) -> str:
    first, _, rest = text.partition("\n")
    return rest if "written by opmill" in first else text


def _told(lines: tuple[str, ...]) -> str:
    return ", ".join(lines[:_SHOWN_LINES]) + (", ..." if len(lines) > _SHOWN_LINES else "")


class Kernels(Mapping[str, GeneratedKernel]):
    """Kernels by name, in the order in which they are first started. Prints as a table."""

    def __init__(self, kernels: Mapping[str, GeneratedKernel]) -> None:
        self._kernels = dict(kernels)

    def __getitem__(self, name: str) -> GeneratedKernel:
        try:
            return self._kernels[name]
        except KeyError:
            near = difflib.get_close_matches(name, self._kernels, n=1) or list(self._kernels)[:1]
            raise KeyError(f"{name!r}{f'; there is {near[0]!r}' if near else '; there are no kernels'}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __repr__(self) -> str:
        width = max(map(len, self._kernels), default=0)
        rows = (f"{name:<{width}}  {each.launches:>3} launches  {each.operators}  from {_told(each.lines)}" for name, each in self.items())
        return "\n".join(rows) or "no kernels"

    def _repr_html_(self) -> str:
        return shown([repr(self)])._repr_html_()


class _Owner:
    """The compiled callable whose kernels these are."""

    def __init__(self, dispatcher: Any, record: Record) -> None:
        self._dispatcher, self._record = dispatcher, record

    @functools.cached_property
    def _generators(self) -> list[Any]:
        from .native import available_generators

        return available_generators(self._record.settings.options)

    def files(self, kernel: GeneratedKernel) -> tuple[Path, Path | None]:
        """Its loops, and its generator's text, as they are now."""
        from opmill_graph_ir.generator.protocol import GeneratorOptions
        from opmill_graph_ir.loops.text import parse
        from opmill_graph_ir.planning.overriding import written

        chosen = self._record.settings.options
        loops = parse(kernel.loops)
        options = GeneratorOptions(kernel.device, precise=chosen.numerics == "eager", measure=chosen.autotune)
        generator = next(g for g in self._generators if g.claims(loops, options) is None)
        return written(generator, loops, options, self._folder())

    def _folder(self) -> Path:
        if self._record.edits is not None:
            return self._record.edits.folder
        named = self._record.settings.options.override or os.environ.get("OPMILL_OVERRIDE", "")
        if not self._record.folder:  # nobody named one. It is left behind: work is in it
            self._record.folder = named or tempfile.mkdtemp(prefix="opmill-kernels-")
        return Path(self._record.folder)

    def watch(self, file: Path) -> None:
        """From the next call on everything is compiled with the kernels of the folder, and again when this file changes."""
        from opmill_bytecode_frontend.entry.capture import forget

        edits = self._record.edits or Edits(self._folder())
        if file not in edits.files:
            edits.files.append(file)
        self._record.edits, edits.begun = edits, True
        forget(self._dispatcher)


def kernels(f: Any) -> Kernels:
    """The generated kernels of a compiled callable that was called before, by name: ``print(opmill.kernels(f))``.

    ``kernels(f)[name].source`` and ``.loops`` are their texts; ``kernels(f)[name].edit()`` gives one to be edited, and what it is made of
    then runs from the next call on.

    Raises:
        TypeError: ``f`` was not compiled by opmill, or by another backend than its own (OM029).
    """
    found = record_of(f)
    if found is None or not found[1].settings.native:
        what = f"{f!r} was not compiled by opmill's own backend"
        raise UsageTypeError("OM029", what, hint="compile it with opmill.compile, and call it: kernels are made at the first call")
    dispatcher, record = found
    return Kernels(_named(record, _Owner(dispatcher, record)))


def _named(record: Record, owner: _Owner) -> dict[str, GeneratedKernel]:
    """Each kernel once, however many graphs run it; of several with one name the later ones are numbered."""
    by_loops: dict[tuple[str, str], GeneratedKernel] = {}
    taken: dict[str, int] = {}
    for graph in record.graphs:
        for loops, device, origins in _launched(record, graph):
            known = by_loops.get((loops, device))
            if known is None:
                name = loops.removeprefix("kernel ").partition("(")[0]
                taken[name] = number = taken.get(name, 0) + 1
                own = name if number == 1 else f"{name}_{number}"
                known = GeneratedKernel(own, operators_in(origins) or name, (), (), 0, device, shown([loops]), owner)
            lines, graphs = (*known.lines, *lines_in(origins)), (*known.graphs, graph.number)
            by_loops[loops, device] = structs.replace(
                known, lines=tuple(dict.fromkeys(lines)), graphs=tuple(dict.fromkeys(graphs)), launches=known.launches + len(origins)
            )
    return {kernel.name: kernel for kernel in by_loops.values()}


def _launched(record: Record, graph: GraphRecord) -> Iterator[tuple[str, str, list[str]]]:
    """The loops of each kernel of a graph and its backward, the device, and the origin of each launch."""
    if graph.fallback or getattr(graph.report, "plan", None) is None:
        return
    from opmill_graph_ir.report import loops_of
    from opmill_runtime_cache.plan.model import Launch

    from .native import open_store

    for plan, texts in zip(graph.report.plans, loops_of(graph.report, open_store(record.settings.options)), strict=False):
        launches: dict[int, list[str]] = {}
        for step in plan.steps:
            if isinstance(step, Launch):
                launches.setdefault(step.kernel, []).append(step.origin)
        yield from ((texts[number], plan.device, origins) for number, origins in launches.items())


__all__ = ["GeneratedKernel", "Kernels", "kernels"]
