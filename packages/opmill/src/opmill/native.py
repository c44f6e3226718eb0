"""opmill's own backend, made from its parts: graph-ir, the artifact store, and whatever kernel generators are installed."""

from __future__ import annotations

import atexit
import functools
import os
from dataclasses import replace
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.errors import GraphWarning
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.optimizers.step import CompiledStep, has_rule, optimizer_of, stand_in
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.errors import ExecutorWarning, StoreWarning
from opmill_runtime_cache.store import Store, default_root, default_store, temporary_folder

from .discover import Backend, find_generators
from .errors import OpmillWarning, warn_once
from .options import Options
from .pipeline import show_captured
from .shared_cache import shared_cache


def native_compiler(options: Options) -> Backend:
    """graph-ir's backend, with the store and the kernel generators that the options ask for."""
    for each in (StoreWarning, ExecutorWarning, GraphWarning):
        OpmillWarning.register(each)
    settings = graph_options(options)
    compile_with = functools.partial(compile_graph, store=open_store(options), generators=loaded_generators(options))

    def compiler(graph_module: Any, example_inputs: Any, observe: Any = None, report: Any = None) -> Any:
        if options.print_after and not {"capture", "all"}.isdisjoint(options.print_after):
            show_captured(graph_module)
        return compile_with(
            graph_module, example_inputs, options=replace(settings, bucket_bytes=_bucket_bytes()), observe=observe, report=report
        )

    return compiler


def graph_options(options: Options) -> GraphOptions:
    """What graph-ir is asked for by the options."""
    return GraphOptions(
        numerics=options.numerics,
        verify=options.verify,
        print_after=tuple(name for name in options.print_after if name != "capture"),
        cuda_graphs=options.cuda_graphs,
        measure=options.autotune,
        freeze=options.freeze,
        sample=options.freeze_check == "samples",
        override=options.override or os.environ.get("OPMILL_OVERRIDE", ""),
        exchange_wait=options.exchange_wait,
        skip=options.skip,
    )


def _bucket_bytes() -> int:
    """How many bytes of gradients are sent at a time, where DistributedDataParallel runs what is being compiled; else 0."""
    sender = DistributedDataParallel._active_ddp_module  # set while its forward runs
    return 0 if sender is None else int(sender.bucket_bytes_cap)


def native_step(step: Any, options: Options) -> Any:
    """The ``step`` of an optimizer with its arithmetic compiled; None where ``step`` is something else or torch's own must do."""
    optimizer = optimizer_of(step)
    return None if optimizer is None else CompiledStep(optimizer, *_step_parts(options))


def native_stand_in(function: Any, options: Options) -> Any:
    """What runs instead of ``function`` between graphs: the compiled step for an optimizer's ``step``; None for anything else."""
    return stand_in(function, *_step_parts(options)) if has_rule(function) else None


def _step_parts(options: Options) -> tuple[GeneratorOptions, Store, list[Any]]:
    generators = available_generators(options)
    return GeneratorOptions(precise=options.numerics == "eager", measure=options.autotune), open_store(options), generators


def open_store(options: Options) -> Store:
    """The artifact store that the options ask for."""
    if not options.cache:
        return _private_store()
    if (options.cache_dir, options.cache_url, options.cache_key_file, options.cache_wait) == _ORDINARY:
        return default_store()
    return Store(options.cache_dir or default_root(), lock_timeout_s=options.cache_wait, remote=shared_cache(options))


_ORDINARY = (None, None, None, Options().cache_wait)


@functools.cache
def _private_store() -> Store:
    """A store that nobody else reads and that goes with the process."""
    held = temporary_folder()
    atexit.register(held.release)
    return Store(held.path)


def loaded_generators(options: Options) -> list[Any]:
    """The kernel generators that the options allow. graph-ir asks each whether it can build here, and says so where none can."""
    found = find_generators(options.generators)
    for each in found:
        if each.generator is None:
            warn_once("OM010", f"kernel generator {each.name!r} cannot be loaded: {each.reason}")
    return [each.generator for each in found if each.generator is not None]


def available_generators(options: Options) -> list[Any]:
    """Those of them that can build kernels here."""
    return [each for each in loaded_generators(options) if each.available() is None]
