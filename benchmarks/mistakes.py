"""What opmill and torch.compile say of the same mistakes, side by side: runs the programs of ``packages/opmill/tests/mistakes.py`` under
both and writes ``docs/guides/messages.md``.

    python benchmarks/mistakes.py                 # all programs; writes the page
    python benchmarks/mistakes.py c_function      # these alone, printed

Both are asked to tell all they tell: ``OPMILL_LOGS=breaks,recompiles`` and ``TORCH_LOGS=graph_breaks,recompiles``, with the warnings and
exceptions that a program sees anyway. Programs that name no backend, mode or option run with ``backend="eager"`` under both, since what is
said does not depend on kernels. A text has a property or has not, by the patterns below; nothing else decides a verdict."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "packages" / "opmill" / "tests"
PAGE = ROOT / "docs" / "guides" / "messages.md"
sys.path.insert(0, str(TESTS))
LONG = 16
"""Lines above which a text is not read."""
SHOWN = 22
"""Lines of a text that the page shows."""


def run_all(names: list[str], which: str, file: str) -> None:
    """In a process for each of the two: runs programs one after the other, and writes what each let go to stderr, as JSON."""
    import warnings

    from mistakes import MISTAKES

    warnings.simplefilter("always")
    texts = {}
    for mistake in MISTAKES:
        if mistake.name in names:
            with tempfile.TemporaryFile() as said, stderr_to(said.fileno()):
                run_one(mistake, which == "opmill")
                said.seek(0)
                texts[mistake.name] = plain(said.read().decode())
    Path(file).write_text(json.dumps(texts))


@contextlib.contextmanager
def stderr_to(file: int) -> Iterator[None]:
    kept = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def run_one(mistake: Any, ours: bool) -> None:
    import traceback

    import torch

    import opmill

    def compile(model: Any = None, **given: Any) -> Any:
        if not given.keys() & {"backend", "options", "mode"}:
            given["backend"] = "eager"
        if mistake.kind == "advice" and ours:
            return lambda *args: print(opmill.explain(model)(*args), file=sys.stderr)
        return (opmill.compile if ours else torch.compile)(model, **given)

    (opmill.reset if ours else torch._dynamo.reset)()
    torch.manual_seed(0)
    try:
        mistake.run(compile)
    except Exception as error:
        traceback.print_exception(error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None))
    sys.stderr.flush()


def texts_of(names: list[str], which: str) -> dict[str, str]:
    """What the user of each program reads."""
    given = {**os.environ, "OPMILL_LOGS": "breaks,recompiles", "TORCH_LOGS": "graph_breaks,recompiles", "OPMILL_DISABLE": "0"}
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [sys.executable, __file__, "--all", which, file.name, *names], env=given, stdout=subprocess.DEVNULL, timeout=1800, check=True
        )
        return dict(json.loads(Path(file.name).read_text()))


_PREFIX = re.compile(r"^(?:[VWIE]\d{4} [\d:.]+ \d+ \S+\] (?:\[[^\]]*\] )*(?:\[__\w+\] ?)?|\d\d:\d\d:\d\d )", re.MULTILINE)


def plain(text: str) -> str:
    """Without what differs from machine to machine and from run to run: times, process ids, folders."""
    text = _PREFIX.sub("", text)
    for folder in (
        *{sysconfig.get_path("purelib"), *map(str, _installed())},
        f"{ROOT}/packages/opmill/tests",
        str(ROOT),
        sysconfig.get_path("stdlib"),
    ):
        text = text.replace(f"{folder}/", "")
    text = re.sub(r"bytecode-frontend/src/|opmill/src/|packages/", "", text)
    text = re.sub(r"(?<=# )[^ ]*opmill/tests/", "", text)  # torch's own compiler cuts long paths on their left
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    return "\n".join(line.rstrip() for line in text.splitlines() if "benchmarks/mistakes.py" not in line).strip()


def _installed() -> Iterator[Path]:
    import torch

    yield Path(torch.__file__).parent.parent


def first_of(text: str) -> str:
    """The first thing that is said of the program: what follows is often the same again, and what comes before is of no line of it."""
    starts = [
        m.start() for m in re.finditer(r"^(?:opmill\.\w+: |Graph break in|Recompiling function|\S+:\d+: \w*Warning)", text, re.MULTILINE)
    ]
    parts = [text[start:end] for start, end in itertools.pairwise([*starts, len(text)])]
    return next((part for part in parts if "mistakes.py" in part), text)


@dataclass(frozen=True)
class Said:
    text: str
    line: bool
    carets: bool
    number: bool
    remedy: bool
    short: bool

    @property
    def properties(self) -> set[str]:
        return {name for name in PROPERTIES if getattr(self, name)}


PROPERTIES = {
    "line": "names the line of the program",
    "carets": "marks the expression",
    "number": "has a number or a link that can be looked up",
    "remedy": "says what to do",
    "short": f"is at most {LONG} lines long",
}


def judged(text: str, mistake: Any) -> Said:
    first, line = first_of(text), mistake.line
    named = f"mistakes.py:{line}" in first or f'mistakes.py", line {line},' in first
    marked = r"^.*# here\n *[~^]{2,}" if line else r"^ *[~^]{2,}" if mistake.kind == "recompile" else r"(?!)"
    some = re.search(r'mistakes\.py(?::|", line )\d+', first) is not None
    return Said(
        text,
        bool(first) and (named if line else some),
        re.search(marked, first, re.MULTILINE) is not None,
        re.search(r"\b(?:FE|OM|GI)\d{3}\b|gb/gb\d+", first) is not None,
        re.search(r"[Hh]int:|advice:|did you mean|there are:|should be one of|known options", first) is not None,
        0 < len(first.splitlines()) <= LONG,
    )


def verdict(ours: Said, theirs: Said, kind: str) -> str:
    """better, same or worse. What opmill captures without a word, where the other breaks the graph or fails, is better; of exceptions that
    the program itself raises neither has to say more than Python does."""
    if kind == "captured" and "breaks" not in ours.text:
        return "better" if theirs.text.replace(ours.text, "") else "same"
    if kind == "break" and not theirs.text:
        return "captured there"
    if kind == "error":
        matter = {"line", "carets", "short"}
        mine, other = ours.properties & matter, theirs.properties & matter
    else:
        mine, other = ours.properties, theirs.properties
    return "worse" if other - mine else "better" if mine - other else "same"


HEAD = """\
# What is said about mistakes

Programs with a mistake that people make, and what opmill and torch.compile {version} say of them, both asked to tell all they tell
(`OPMILL_LOGS="breaks,recompiles"`, `TORCH_LOGS="graph_breaks,recompiles"`), with the warnings and exceptions that a program sees anyway. Written by
`benchmarks/mistakes.py` from `packages/opmill/tests/mistakes.py`; the properties are looked for by patterns, in the first thing that each says:
it names the **line** of the program, marks the expression with **carets**, has a **number** (or a link) that can be looked up, says what to do (**remedy**),
is **short** (at most {long} lines). *Worse* is whoever lacks a property that the other has. Of exceptions that the program itself raises, line, carets and
length count; what opmill captures without a word, where the other ends a graph, counts as better.

Of {count} programs opmill is better at {better}, the same at {same}, worse at {worse}; at {there} torch.compile captures without a word what ends a graph of
opmill's.
"""


def page(results: list[tuple[Any, Said, Said]]) -> str:
    import torch

    verdicts = [verdict(ours, theirs, m.kind) for m, ours, theirs in results]
    version = torch.__version__.partition("+")[0]
    parts = [
        HEAD.format(
            version=version,
            long=LONG,
            count=len(results),
            there=verdicts.count("captured there"),
            **{v: verdicts.count(v) for v in ("better", "same", "worse")},
        )
    ]
    parts += ["| mistake | opmill | torch.compile | |", "|---|---|---|---|"]
    for (m, ours, theirs), found in zip(results, verdicts, strict=True):
        title = m.title
        parts.append(f"| [{title}](#{m.name.replace('_', '-')}) | {_told(ours)} | {_told(theirs)} | {found} |")
    for m, ours, theirs in results:
        anchor = m.name.replace("_", "-")
        parts += [f'\n<a id="{anchor}"></a>\n\n## {m.title}\n', _block("python {.not-run}", _dedented(m.source))]
        parts += [f"opmill:\n\n{_block('text', _cut(ours.text))}", f"torch.compile:\n\n{_block('text', _cut(theirs.text))}"]
    return "\n".join(parts) + "\n"


def _told(said: Said) -> str:
    return ", ".join(name for name in PROPERTIES if getattr(said, name)) if said.text else "nothing"


def _dedented(source: str) -> str:
    return textwrap.dedent(source)


def _cut(text: str) -> str:
    lines = text.splitlines() or ["(nothing)"]
    kept = [line if len(line) <= 220 else f"{line[:220]} ..." for line in lines[:SHOWN]]
    return "\n".join([*kept, *([f"... ({len(lines) - SHOWN} more lines)"] if len(lines) > SHOWN else [])])


def _block(kind: str, text: str) -> str:
    return f"```{kind}\n{text.rstrip()}\n```\n"


def main() -> None:
    if sys.argv[1:2] == ["--all"]:
        return run_all(sys.argv[4:], sys.argv[2], sys.argv[3])
    from mistakes import MISTAKES

    wanted = [m for m in MISTAKES if not sys.argv[1:] or m.name in sys.argv[1:]]
    ours, theirs = (texts_of([m.name for m in wanted], which) for which in ("opmill", "torch"))
    results = [(m, judged(ours[m.name], m), judged(theirs[m.name], m)) for m in wanted]
    for m, mine, other in results:
        print(f"{verdict(mine, other, m.kind):14} {m.name:26} opmill: {_told(mine)}; torch.compile: {_told(other)}")
    if sys.argv[1:]:
        for m, mine, other in results:
            print(f"\n=== {m.name}\n--- opmill\n{mine.text}\n--- torch.compile\n{other.text}")
    else:
        PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
