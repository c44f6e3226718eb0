"""Kernels that people edit: each is written to a folder, as loops and in its generator's language, and what was changed there is built
instead.

The first line of a file says what was written; while that is true of the rest, the file is ours to write anew. One that was changed is
used: the generator's text as it stands, or else the loops, from which a text is generated. A kernel keeps its file from process to process:
the name has a digest of its loops."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store

from ..errors import GraphError, KernelBuildError
from ..generator.protocol import EditableGenerator, GeneratorOptions, KernelGenerator
from ..loops.ir import LoopKernel
from ..loops.text import parse, show

_MARK = "written by opmill, use as it is: "
_SHORT = 12


def build(
    generator: KernelGenerator, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store, folder: str
) -> list[KernelRef]:
    """As ``generator.build``, with what was edited in ``folder``. Raises KernelBuildError, also where an edited file cannot be read (GI035)
    or takes other buffers than the kernel (GI036)."""
    if not folder:
        return generator.build(kernels, options, store)
    plain: dict[int, LoopKernel] = {}
    refs: dict[int, KernelRef] = {}
    for number, kernel in enumerate(kernels):
        loops, text = _edited(generator, kernel, options, Path(folder))
        if text is not None:
            assert isinstance(generator, EditableGenerator)
            refs[number] = generator.build_text(loops, text, options, store)
        else:
            plain[number] = loops
    refs |= zip(plain, generator.build(list(plain.values()), options, store) if plain else [], strict=True)
    return [refs[number] for number in range(len(kernels))]


def written(generator: KernelGenerator, kernel: LoopKernel, options: GeneratorOptions, folder: Path) -> tuple[Path, Path | None]:
    """The files of a kernel in ``folder``, which are written unless somebody edited them: its loops, and its generator's text (None where
    the generator takes none). Raises KernelBuildError as ``build``."""
    _edited(generator, kernel, options, folder)
    stem = _stem(kernel, folder)
    return stem.with_suffix(".loops"), stem.with_suffix(f".{generator.extension}") if isinstance(generator, EditableGenerator) else None


def _stem(kernel: LoopKernel, folder: Path) -> Path:
    return folder / f"{kernel.name}-{_digest(show(kernel))}"


def _edited(generator: KernelGenerator, kernel: LoopKernel, options: GeneratorOptions, folder: Path) -> tuple[LoopKernel, str | None]:
    """The loops to be built, and the text where that is somebody's own."""
    stem, text = _stem(kernel, folder), show(kernel)
    loops, found = kernel, _exchanged(stem.with_suffix(".loops"), "# ", text)
    if found is not None:
        loops = _read(found, kernel, stem.with_suffix(".loops"))
    if not isinstance(generator, EditableGenerator):
        return loops, None
    return loops, _exchanged(stem.with_suffix(f".{generator.extension}"), f"{generator.comment} ", generator.text(loops, options))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_SHORT]


def _exchanged(file: Path, comment: str, text: str) -> str | None:
    """What somebody made of the file; None where it is as it was written, or was not there: then it is written anew."""
    head = f"{comment}{_MARK}"
    if file.exists():
        first, _, rest = file.read_text().partition("\n")
        if not first.startswith(head):
            return f"{first}\n{rest}"
        if first.removeprefix(head) != _digest(rest):
            return rest
        if rest == text:
            return None
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    part.write_text(f"{head}{_digest(text)}\n{text}")
    os.replace(part, file)
    return None


def _read(text: str, kernel: LoopKernel, file: Path) -> LoopKernel:
    try:
        found = parse(text)
    except GraphError as error:
        raise KernelBuildError(
            "GI035", "edited loops cannot be read", where=str(file), why=str(error), hint="mend or remove the file"
        ) from error
    if (found.buffers, found.symbols) != (kernel.buffers, kernel.symbols):
        why = "the program calls the kernel with the buffers and sizes that it had"
        raise KernelBuildError("GI036", "edited loops take other buffers or sizes", where=str(file), why=why, hint="change the nests alone")
    return replace(found, name=kernel.name)


__all__ = ["build", "written"]
