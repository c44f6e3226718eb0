"""What opmill says while it works: standard logging under ``opmill.*``, a logger for each topic.

``OPMILL_LOGS="breaks,recompiles"`` in the environment, or ``opmill.set_logs("breaks", "recompiles")``, shows topics on stderr, a line each;
programs that configure logging themselves set the level of ``logging.getLogger("opmill.breaks")`` as of any other logger."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable

from .errors import UsageValueError

TOPICS = {
    "breaks": "each graph break: number, what was met, where, what to do",
    "recompiles": "each call that fits nothing compiled, and the assumption that did not hold",
    "guards": "what each compiled piece of code assumes",
    "graph": "each captured graph, as a program",
    "time": "seconds of each compile, by step",
    "cache": "whether a plan came from the cache",
    "loops": "the loops of each kernel that was made, before a generator writes C++ or Triton of them",
    "kernels": "how many kernels and calls of torch's operators a graph became, and of each kernel the operators and lines",
    "progress": "what a long compile has come to, once a minute where stderr is no terminal",
    "internal": "internal errors that were survived, with their tracebacks",
}
"""Topics and what they tell. A topic's logger is ``opmill.TOPIC``."""

_FORMAT = "%(asctime)s %(name)s: %(message)s"


class _Handler(logging.StreamHandler):
    """Writes to what ``sys.stderr`` is at the moment, so that redirections are followed."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def topic(name: str) -> logging.Logger:
    """The logger of a topic."""
    return logging.getLogger(f"opmill.{name}")


def set_logs(*topics: str) -> None:
    """Shows these topics on stderr, and no others; none: all is quiet again. ``"all"`` is every topic.

    Raises ValueError (OM016) for a topic that there is not; ``opmill.logs.TOPICS`` lists them."""
    wanted = _checked(topics)
    shown = logging.getLogger("opmill")
    for handler in [each for each in shown.handlers if isinstance(each, _Handler)]:
        shown.removeHandler(handler)
    if wanted:
        shown.addHandler(_Handler())
    shown.propagate = not wanted  # a program's own handlers would show each line again
    for name in TOPICS:
        topic(name).setLevel(logging.DEBUG if name in wanted else logging.NOTSET)


def _checked(topics: Iterable[str]) -> set[str]:
    wanted = {name.strip() for name in topics} - {""}
    if unknown := sorted(wanted - {*TOPICS, "all"}):
        raise UsageValueError("OM016", f"no log topic {', '.join(unknown)}", hint=f"there are {', '.join(TOPICS)}, all")
    return set(TOPICS) if "all" in wanted else wanted


def from_environment() -> None:
    """Shows what ``OPMILL_LOGS`` asks for."""
    if asked := os.environ.get("OPMILL_LOGS"):
        set_logs(*asked.split(","))
