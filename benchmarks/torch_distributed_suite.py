"""The part ``suite`` of ``torch_distributed_tests.py``: torch's tests of collectives and DistributedDataParallel, plainly and compiled."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import random
import re
import types
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from foreign_plugin import Told, compiling_calls

HOWS = ("plain", "tests", "modules")
NOT_HERE = re.compile("cuda|nccl|gpu|monitored_barrier|barrier_timeout|destroy|hang|execution_trace|profil")
"""Tests of other backends, of time limits and of profilers."""
EACH = 120
"""Seconds for which processes wait for the one that is last."""


def cases(place: Any) -> list[str]:
    return [name for name in dir(_base(place)) if name.startswith("test_") and not NOT_HERE.search(name)]


def _base(place: Any) -> Any:
    """The class of the tests. Torch reads the environment while it is imported."""
    os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": str(place.size), "TEMP_DIR": f"{place.folder}/tests", "MASTER_ADDR": "127.0.0.1"}
    os.environ["INIT_METHOD"] = f"file://{place.folder}/unused"
    for name in ("barrier", "test_dir", "init_dir"):
        Path(f"{place.folder}/tests/{name}").mkdir(parents=True, exist_ok=True)
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.distributed.distributed_test import DistributedTest

    import opmill

    @opmill.disable
    def barrier(self: Any, *_: Any, **__: Any) -> None:
        place.meet()

    space = {"_barrier": barrier, "rank": place.rank, "world_size": str(place.size)}
    return type("Here", (DistributedTest._DistTestBase, TestCase), space)


def run(name: str, place: Any) -> Iterator[dict[str, Any]]:
    """A row for each way to run the test; one that does not pass plainly, in all processes, is not run otherwise."""
    for how in HOWS:
        row = _one(name, place, how)
        said = "" if how == "plain" or row["outcome"] == "passed" else f"{how}: {row['outcome']}: {row['text']}"
        yield {**row, "said": said or "".join(f"{how}: {text}\n" for text in row["told"])}
        if set(place.said(row["outcome"], 2 * EACH, "is over")) != {"passed"} and how == "plain":
            return


def _one(name: str, place: Any, how: str) -> dict[str, Any]:
    import opmill
    from opmill.compile import record_of

    random.seed(0)
    torch.manual_seed(0)
    opmill.reset()
    before, told = opmill.counters(), Told()
    case = _base(place)(name)
    call, modules = getattr(case, name), torch.nn.Module.__call__
    if how == "tests":
        compiled = opmill.compile(call.__func__)
        call = types.MethodType(compiled, case)
    if how == "modules":
        torch.nn.Module.__call__ = compiling_calls("opmill")  # type: ignore[method-assign]
    logging.getLogger("opmill").addHandler(told)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome, text = place.group(lambda: _through(case, call))
    finally:
        logging.getLogger("opmill").removeHandler(told)
        torch.nn.Module.__call__ = modules  # type: ignore[method-assign]
    more = {key: opmill.counters()[key] - before[key] for key in ("graphs", "breaks", "fallbacks")} if how != "plain" else {}
    record = record_of(compiled) if how == "tests" else None
    reasons = sorted({str(b)[:300] for b in record[1].breaks}) if record else []
    return {"how": how, "outcome": outcome, "text": text, "told": told.found, "reasons": reasons, **more}


def _through(case: unittest.TestCase, call: Any) -> None:
    case.setUp()
    try:
        call()
    finally:
        case.doCleanups()
