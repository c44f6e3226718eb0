"""What pytest is given, in the process of one of ``foreign_suites.py``, to run somebody else's tests plainly or compiled by opmill.

The request is JSON in the environment variable ``OPMILL_FOREIGN``: ``how`` the tests are run (``HOWS``), opmill's ``backend``, the seconds
one test may take (``limit``), the suite's own ``compilers``, methods of tensors that it
``missing``, the tests that are not to run (``skipped``), how many of the collected are wanted (``take``), and the file
descriptor (``channel``) to which each test writes ``[kind, test, details]`` lines: that it starts, and what it came to.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import re
import signal
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

HOWS = {
    "plain": "as they are",
    "modules": "each outermost call of a torch.nn.Module is one of opmill.compile(module)",
    "tests": "each test's own function is compiled, and what it calls",
    "replaced": "torch.compile is opmill's",
    "instead": "the compilers that the suite tests are opmill.compile (else: return what they are given)",
}
EXPECTED = ("Unsupported", "Raised", "NotYet")
"""Exceptions of a capture that found out what it may not do."""
COUNTED = ("graphs", "breaks", "fallbacks")


class TooLong(BaseException):
    """A test took longer than it may. Nothing that handles errors handles it."""


class Told(logging.Handler):
    """What opmill logs of errors that it survived."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno < logging.WARNING and (error is None or type(error).__name__ in EXPECTED):
            return
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        self.found.append(text[-6000:])


class Outcomes:
    """The plugin."""

    def __init__(
        self, how: str, backend: str, limit: float, skipped: list[str], take: int, channel: int, compilers: list[str], missing: list[str]
    ) -> None:
        self.how, self.backend, self.limit, self.skipped, self.take = how, backend, limit, set(skipped), take
        self.channel, self.compilers = os.fdopen(channel, "w"), compilers
        self.told = Told()
        self.kind, self.text, self.warned = "", "", [""]
        self.before: dict[str, float] = {}

    # --- which tests -----------------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        chosen = random.Random(0).sample(range(len(items)), min(self.take, len(items)))
        wanted = [items[i] for i in sorted(chosen) if items[i].nodeid not in self.skipped]
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = wanted

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.how == "plain":
            self.say("not collected", report.nodeid, text=str(report.longrepr)[-2000:])

    # --- what becomes of them --------------------------------------------------------------------------------------------------------

    def say(self, kind: str, test: str, **details: Any) -> None:
        self.channel.write(json.dumps([kind, test, details]) + "\n")
        self.channel.flush()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        self.say("started", item.nodeid)
        self.kind, self.text, self.warned = "passed", "", []
        self.told.found.clear()
        self.before = self.counted()
        result = yield
        more = {name: count - self.before[name] for name, count in self.counted().items()}
        self.say(self.kind, item.nodeid, text=self.text[-6000:], warned=sorted(set(self.warned)), told=self.told.found, counted=more)
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome == "passed" or self.kind == "failed":
            return
        self.text = str(report.longreprtext)
        self.kind = report.outcome if not hasattr(report, "wasxfail") else "expected failure"
        if report.failed and "foreign_plugin.TooLong" in self.text:
            self.kind = "slow"

    def pytest_warning_recorded(self, warning_message: Any) -> None:
        text = re.sub(r"0x[0-9a-f]+|\d+\.\d+(e-?\d+)?", "...", str(warning_message.message))
        self.warned.append(f"{warning_message.category.__name__}: {text[:300]}")

    def counted(self) -> dict[str, float]:
        if self.how == "plain":
            return {}
        import opmill

        return {name: count for name, count in opmill.counters().items() if name in COUNTED}

    def pytest_unconfigure(self) -> None:
        self.say("end", "")

    # --- how they run ----------------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Any:
        seed()
        if self.how == "tests" and isinstance(getattr(item, "obj", None), (types.FunctionType, types.MethodType)):
            item.obj = self.compiled_alone(item.obj)
        signal.signal(signal.SIGALRM, too_long)
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def compiled_alone(self, test: Any) -> Any:
        """A test compiled, with a code object of its own: the runs of a parametrized one do not add up to the limit of recompiling."""
        import opmill

        function = getattr(test, "__func__", test)
        own = types.FunctionType(
            function.__code__.replace(co_name=function.__name__),
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        own.__dict__.update(function.__dict__)
        own.__kwdefaults__, own.__qualname__ = function.__kwdefaults__, function.__qualname__
        compiled = opmill.compile(own, backend=self.backend)
        return compiled if function is test else types.MethodType(compiled, test.__self__)

    def begin(self) -> None:
        if self.how != "instead":
            self.stand_in(lambda function: function)
        if self.how == "plain":
            return
        import opmill

        for name in ("opmill", "opmill.internal"):
            logging.getLogger(name).setLevel(logging.DEBUG if name == "opmill.internal" else logging.WARNING)
        logging.getLogger("opmill").addHandler(self.told)
        opmill.compile(lambda x: x + 1, backend="eager")(torch.ones(1))  # what the compiler imports is imported
        if self.how == "modules":
            torch.nn.Module.__call__ = compiling_calls(self.backend)
        elif self.how == "replaced":
            opmill.replace_torch_compile()
        elif self.how == "instead":
            self.stand_in(lambda function: opmill.compile(function, backend=self.backend))

    def stand_in(self, compile: Callable[[Any], Any]) -> None:
        """Puts ``compile`` in the place of the suite's own compilers, whatever options they are given; to what they are asked of
        themselves (``module:name?``) the answer is yes."""
        for each in self.compilers:
            module, _, name = each.partition(":")
            stands = (lambda *_: True) if name.endswith("?") else (lambda function, *_, **__: compile(function))
            setattr(importlib.import_module(module), name.removesuffix("?"), stands)


def seed() -> None:
    """The same random numbers, plainly and compiled."""
    random.seed(0)
    torch.manual_seed(0)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(0)


def too_long(*_: object) -> None:
    raise TooLong


def compiling_calls(backend: str) -> Any:
    """What stands for ``torch.nn.Module.__call__``: the outermost call goes through what opmill makes of the module."""
    import opmill

    plain, inside = torch.nn.Module.__call__, threading.local()
    made: dict[int, tuple[Any, Any]] = {}

    def compiled_of(module: torch.nn.Module) -> Any:
        """The function that a compiled module's call is of: it keeps no module alive."""
        found = made.get(id(module))
        if found is None or found[0]() is not module:
            own = type(module).__call__ is not __call__  # whose code runs already, and has come here
            call = opmill.compile(module._call_impl if own else module, backend=backend)
            call = call if own else object.__getattribute__(call, "__call__")
            found = made[id(module)] = weakref.ref(module), call.__func__
        return found[1]

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or getattr(inside, "it", False) or isinstance(self, torch.jit.ScriptModule):
            return plain(self, *args, **kwargs)
        inside.it = True
        try:
            return compiled_of(self)(self, *args, **kwargs)
        finally:
            inside.it = False

    return __call__


def torchvision_imports() -> None:
    """The wheel of torchvision is built for GPUs; beside a torch for CPUs it imports once the operators are defined that its own library
    would define."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    KEPT.append(library)


KEPT: list[torch.library.Library] = []


def gone(*_: object) -> None:
    raise NotImplementedError


def missing_methods(names: list[str]) -> None:
    """Methods of tensors that a library looks up while it is imported, and that torch no longer has."""
    for name in names:
        if not hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, types.FunctionType(gone.__code__, globals(), name))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    torchvision_imports()
    missing_methods(json.loads(os.environ["OPMILL_FOREIGN"]).pop("missing"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: Any) -> None:
    outcomes = Outcomes(**json.loads(os.environ["OPMILL_FOREIGN"]))
    outcomes.begin()
    config.pluginmanager.register(outcomes, "opmill-foreign")
