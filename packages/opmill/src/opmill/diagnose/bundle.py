"""Bundles: a folder with what a bug report needs, and how it is run elsewhere.

A bundle holds each captured graph as a script with random inputs of the same kinds, versions, options, and what ``explain`` says. Weights
and data are not in it unless asked for. Its scripts are programs: replay those of people you trust, as you would run their scripts."""

from __future__ import annotations

import importlib.util
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct

from ..compile import arguments_of, compile
from ..errors import UsageValueError
from ..explain import explanation_of
from ..options import Options
from ..settings import resolve_arguments
from ..shown import InNotebooks
from .check import Checked, check
from .copies import Program, uncompiled
from .graphs import CapturingBackend
from .writing import MANIFEST, Manifest, write

_MANIFEST = msgspec.json.Decoder(Manifest)


def bundle(model: Any, folder: str | os.PathLike[str] | None = None, *, data: bool = False, **arguments: Any) -> Callable[..., Path]:
    """``bundle(f, **compile_arguments)(*args)`` captures ``f`` for these arguments and writes what a bug report needs; gives the folder.

    Args:
        model: a function, method or module, compiled or not.
        folder: where to; None: a new one among temporary files.
        data: whether the inputs of the graphs, parameters among them, are written too. Without them replays use random numbers.
        arguments: of ``opmill.compile``.

    ``opmill replay FOLDER`` runs it. Copies of ``f`` and its arguments are called.
    """

    def call(*args: Any, **kwargs: Any) -> Path:
        told = arguments_of(model, arguments)
        settings = resolve_arguments(told)
        program = Program(uncompiled(model), args, kwargs).fresh()
        backend = CapturingBackend()
        kept = {k: v for k, v in told.items() if k in ("fullgraph", "dynamic")}
        compiled = compile(program.model, backend=backend, **kept)
        error = ""
        try:
            compiled(*program.args, **program.kwargs)
        except Exception:
            error = traceback.format_exc()
        graphs = [(graph.gm, graph.inputs) for graph in backend.graphs if graph.inputs is not None]
        return write(graphs, settings.options, folder, told=str(explanation_of(compiled).everything), error=error, data=data)

    return call


class Replayed(InNotebooks, Struct, frozen=True):
    """What a replay saw: for each graph the comparison, or the exception that compiling it raised."""

    results: tuple[tuple[str, Checked | str], ...]

    def __bool__(self) -> bool:
        return all(isinstance(result, Checked) and bool(result) for _, result in self.results)

    def __str__(self) -> str:
        return "\n".join(f"{name}: {result}" for name, result in self.results) or "there are no graphs in it"


def replay(folder: str | os.PathLike[str]) -> Replayed:
    """Compiles and checks each graph of a bundle here. Runs the bundle's scripts.

    Raises ValueError (OM017) where ``folder`` is no bundle."""
    source = Path(folder)
    try:
        manifest = _MANIFEST.decode((source / MANIFEST).read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageValueError("OM017", f"{source} is no bundle", why=str(error), hint="opmill.bundle(f)(*args) writes one") from None
    options = {**manifest.options, "suppress_errors": False, "cache_dir": None}
    known = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items() if k in Options.__dataclass_fields__}
    return Replayed(tuple((name, _replayed(source, name, known)) for name in manifest.graphs))


def _replayed(source: Path, name: str, options: dict[str, Any]) -> Checked | str:
    spec = importlib.util.spec_from_file_location(f"opmill_bundle_{Path(name).stem}", source / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        program, inputs = module.Program(), module.inputs()
        saved = source / Path(name).with_suffix(".pt")
        if saved.exists():
            held = torch.load(saved, weights_only=True)
            inputs = held["inputs"]
            program.load_state_dict({key.replace(".", "_"): value for key, value in held["state"].items()}, strict=False)
        return check(program, options=options)(*inputs)
    except Exception:
        return traceback.format_exc()
