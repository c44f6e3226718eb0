"""What a user can choose: :class:`Options`, the modes, and how names are resolved. Options are frozen: they are part of cache keys."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .errors import UsageTypeError, UsageValueError
from .torch_options import translated


def _option(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class Options:
    """Options of ``opmill.compile(options={...})``; ``opmill.list_options()`` prints them with their defaults."""

    recompile_limit: int = _option(8, "how many specialisations of one piece of code are kept before it runs uncompiled")
    graph_limit: int = _option(
        20_000,
        "operations of one graph beyond which the function runs uncompiled: each turn of a loop is captured by itself (FE093 names the "
        "loop)",
    )
    nested_breaks: bool = _option(True, "graphs may end inside functions that the compiled one calls; False: they end before the call")
    generators: tuple[str, ...] | None = _option(None, "names of the kernel generators that may be used, best first; None: all installed")
    cache: bool = _option(True, "read and write the cache on disk; False: a private one that ends with the process")
    cache_dir: str | None = _option(None, "folder of the cache; None: OPMILL_CACHE_DIR or the user's cache folder")
    cache_url: str | None = _option(None, "a cache that machines share, a URL of fsspec; None: OPMILL_CACHE_URL, or none")
    cache_key_file: str | None = _option(None, "file with the secret of the shared cache; None: OPMILL_CACHE_KEY")
    cache_wait: int = _option(
        300, "seconds that a process waits for another one that compiles the same graph, before it compiles it as well; 0: not at all"
    )
    numerics: Literal["default", "eager"] = _option(
        "default",
        "'eager': eager's results bit for bit on processors, sums and library functions being torch's own calls; 'default': as exact, and "
        "faster",
    )
    verify: bool = _option(False, "check each intermediate representation between the steps of the compiler (slow)")
    print_after: tuple[str, ...] = _option((), "print the program after these steps of the compiler, by name; ('all',) for every one")
    skip: tuple[str, ...] = _option(
        (), "leave out these steps of the compiler, by name: for finding the one that makes a program wrong or slow, as opmill.bisect does"
    )
    override: str | None = _option(
        None,
        "a folder that kernels are written to, as loops and C++, and that those which were edited there are taken from; None: "
        "OPMILL_OVERRIDE, or none",
    )
    cuda_graphs: bool = _option(False, "replay what runs on a GPU as CUDA graphs; the modes 'reduce-overhead' and 'max-autotune' set it")
    autotune: bool = _option(
        False,
        "choose how kernels on a GPU are cut up, and which matrix products are part of them, by running "
        "them; the modes 'max-autotune' set it",
    )
    freeze: bool = _option(
        False,
        "parameters and buffers stay as they are: without gradients, what is made of them alone is computed once, batch norms are folded "
        "into "
        "convolutions, weights packed for the processor; a changed version counter or address makes it anew, opmill.thaw forgets it",
    )
    freeze_check: Literal["versions", "samples"] = _option(
        "versions", "how frozen weights are looked at in each call: 'samples' compares some of their contents, too"
    )
    exchange_wait: int = _option(
        60,
        "seconds after which compiled code that waits for other processes (torch.distributed) says so, with what these compile; 0: never",
    )
    progress: bool | None = _option(None, "show progress while compiling; None: when it takes seconds and stderr is a terminal")
    suppress_errors: bool = _option(True, "an internal error of the compiler warns and runs the code uncompiled; False: it is raised")


MODES: dict[str, dict[str, Any]] = {
    # name -> options that the mode sets. The names are torch.compile's; on a CPU the last three have nothing to add to the first.
    "default": {},
    "reduce-overhead": {"cuda_graphs": True},
    "max-autotune": {"cuda_graphs": True, "autotune": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
}


def list_options() -> dict[str, tuple[Any, str]]:
    """Name -> (default, what it does) of every option."""
    return {f.name: (f.default, f.metadata["doc"]) for f in fields(Options)}


def list_modes() -> list[str]:
    """The names ``mode=`` accepts."""
    return list(MODES)


def unknown(code: str, kind: str, given: object, known: Iterable[str]) -> UsageValueError:
    """The error for a name nobody knows: lists those there are and points to the nearest."""
    names = sorted(known)
    near = difflib.get_close_matches(str(given), names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else ""
    return UsageValueError(code, f"unknown {kind} {given!r}; there are: {', '.join(map(repr, names))}", hint=hint)


def resolve_mode(mode: str | None) -> str:
    """The mode's name; None is ``"default"``. Raises ``UsageValueError`` for an unknown one."""
    if mode is None:
        return "default"
    if not isinstance(mode, str):
        raise UsageTypeError("OM002", f"mode must be a string, not {type(mode).__name__}", hint=f"one of {', '.join(MODES)}")
    if mode not in MODES:
        raise unknown("OM003", "mode", mode, MODES)
    return mode


def resolve_options(mode: str, options: Mapping[str, Any] | Options | None) -> Options:
    """The mode's options overridden by the given ones. Raises for unknown names and values of the wrong type."""
    if isinstance(options, Options):
        return options
    known = {f.name: f for f in fields(Options)}
    chosen = {**MODES[mode], **translated(_checked_mapping(options), known)}
    for name, value in chosen.items():
        if name not in known:
            raise unknown("OM004", "option", name, known)
        chosen[name] = _checked_value(name, value)
    return dataclasses.replace(Options(), **chosen)


def _checked_mapping(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise UsageTypeError("OM005", f"options must be a dict or opmill.Options, not {type(options).__name__}")
    return options


_CHOICES = {"numerics": ("default", "eager"), "freeze_check": ("versions", "samples")}
_STRINGS = ("generators", "print_after", "skip")
_KINDS: dict[str, tuple[type, ...]] = {
    "recompile_limit": (int,),
    "graph_limit": (int,),
    "nested_breaks": (bool,),
    "cache": (bool,),
    "cache_dir": (str, type(None)),
    "cache_url": (str, type(None)),
    "cache_key_file": (str, type(None)),
    "cache_wait": (int,),
    "numerics": (str,),
    "verify": (bool,),
    "override": (str, type(None)),
    "cuda_graphs": (bool,),
    "autotune": (bool,),
    "freeze": (bool,),
    "freeze_check": (str,),
    "exchange_wait": (int,),
    "progress": (bool, type(None)),
    "suppress_errors": (bool,),
}


def _check_steps(option: str, names: Iterable[str]) -> None:
    from .pipeline import NAMES, OPTIONAL  # only where something is to be printed or left out

    kind, known = ("step of the compiler that can be left out", OPTIONAL) if option == "skip" else ("step of the compiler", (*NAMES, "all"))
    for each in names:
        if each not in known:
            raise unknown("OM006", kind, each, known)


def _checked_value(name: str, value: Any) -> Any:
    if name in _STRINGS:
        if value is None and name == "generators":
            return None
        if isinstance(value, str) or not isinstance(value, Iterable) or not all(isinstance(item, str) for item in value):
            raise UsageValueError("OM006", f"option {name!r} takes a sequence of names, not {value!r}")
        if name in ("print_after", "skip"):
            _check_steps(name, value)
        return tuple(value)
    if name in ("cache_dir", "cache_key_file", "override") and hasattr(value, "__fspath__"):
        value = value.__fspath__()
    if type(value) not in _KINDS[name]:
        kinds = " or ".join(kind.__name__ for kind in _KINDS[name])
        raise UsageValueError("OM006", f"option {name!r} takes {kinds}, not {value!r}")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise UsageValueError("OM006", f"option {name!r} takes one of {', '.join(_CHOICES[name])}, not {value!r}")
    if name in ("recompile_limit", "graph_limit") and value < 1:
        raise UsageValueError("OM006", f"option {name!r} takes a number of at least 1, not {value}")
    if name == "cache_wait" and value < 0:
        raise UsageValueError("OM006", f"option 'cache_wait' takes a number of seconds, not {value}")
    return value
