"""C++ exceptions do not leave native code."""

import re
from pathlib import Path

NATIVE = Path(__file__).parents[1] / "src" / "opmill_guards" / "native"
ROW = re.compile(
    r"\{\"\w+\",\s*(?:reinterpret_cast<\w+>\(reinterpret_cast<void "
    r"\(\*\)\(\)>\()?([\w:<>]+)\)*,\s*METH_|tp_(?:new|repr|getattro|descr_get) = ([\w:<>]+);|vectorcall = ([\w:<>]+);"
)


def test_every_function_that_python_calls_contains_exceptions():
    rows = [next(filter(None, found)) for source in NATIVE.glob("*.cpp") for found in ROW.findall(source.read_text())]
    assert len(rows) > 20 and [row for row in rows if "contained<" not in row] == []
