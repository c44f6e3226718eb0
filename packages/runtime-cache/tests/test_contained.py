"""C++ exceptions do not leave native code: what memory cannot be had for is a MemoryError."""

import re
import subprocess
import sys
from pathlib import Path

NATIVE = Path(__file__).parents[1] / "src" / "opmill_runtime_cache" / "native"
ROW = re.compile(
    r"\{\"\w+\",\s*([\w:<>]+),\s*(?:METH_\w+|nullptr,\s*\")|Py_tp_new,\s*reinterpret_cast<void\*>\(([\w:<>]+)\)|->call = ([\w:<>]+);"
)


def test_every_function_that_python_calls_contains_exceptions():
    rows = [next(filter(None, found)) for source in NATIVE.glob("*.cpp") for found in ROW.findall(source.read_text())]
    assert len(rows) > 15 and [row for row in rows if "contained<" not in row] == []


OUT_OF_MEMORY = """
import resource, torch
from opmill_runtime_cache import _native
import opmill_runtime_cache.executor
x = torch.ones(2)
many = (x,) * 3_000_000
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 24), resource.RLIM_INFINITY))
try:
    _native.places(many)
except MemoryError:
    print("MemoryError")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print("goes on")
"""


def test_memory_that_cannot_be_had_is_a_memory_error():
    done = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, timeout=120)
    assert (done.stdout.split(), done.returncode) == (["MemoryError", "goes", "on"], 0), done.stderr[-2000:]
