"""Traces are written as things happen and survive what happens; a page of them stands alone, and its links lead somewhere."""

import base64
import gzip
import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
import torch

import opmill
from opmill.cli import main
from opmill.errors import UsageValueError
from opmill.trace import events
from opmill.trace.layout import place
from opmill.trace.page import page_of
from opmill.trace.reading import read

VOID = {"meta", "br", "link", "input"}


class Page(HTMLParser):
    """A page taken apart. ``open``: tags not closed yet; ``packed``: what lies in it packed, by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.links, self.outside, self.lines, self.text = [], [], [], [], [], ""
        self.packed, self._at = {}, None
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if "href" in found else []
        self.outside += [found[name] for name in ("src", "data") if name in found]
        self.lines += [found["data-lines"]] if "data-lines" in found else []
        self._at = found.get("id") if found.get("type") == "application/gzip" else None

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self._at is not None:
            self.packed[self._at] = json.loads(gzip.decompress(base64.b64decode(data)))
        elif self.open[-1:] not in (["script"], ["style"]):
            self.text += data


def step(x, w):
    y = torch.softmax(x @ w, -1)
    if y.sum() > 1000:
        y = y + 1
    return (y * y).sum()


FIRST = step.__code__.co_firstlineno


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The trace of a training step that breaks, and is compiled again for another size."""
    target = tmp_path_factory.mktemp("trace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPMILL_TRACE", str(target))
        compiled = opmill.compile(step, options=opmill.Options(cache_dir=str(tmp_path_factory.mktemp("cache"))))
        w = torch.randn(8, 8, requires_grad=True)
        for rows in (4, 5):
            compiled(torch.randn(rows, 8), w).backward()
    return target


def test_the_page_stands_alone_and_its_links_lead_somewhere(folder):
    path = opmill.report(folder)
    page = Page(path.read_text())
    assert path == folder / "report.html" and len(page.ids) == len(set(page.ids))
    assert page.links and {link.removeprefix("#") for link in page.links} <= set(page.ids) and not page.outside
    assert "http" not in path.read_text().replace("http://www.w3.org", "")


def test_what_happened_is_told(folder):
    page = Page(page_of(read(folder)))
    for told in (
        "a branch on the values of a tensor",
        f"{Path(__file__).parent.name}/{Path(__file__).name}:{FIRST + 2}",
        "expected sizes (4, 8), found sizes (5, 8)",
        "Plan of the forward",
        "Plan of the backward",
        "TensorMatch",
        "step",
    ):
        assert told in page.text, told
    assert any(f"{__file__}:{FIRST + 1}" in lines.split() for lines in page.lines)


def test_every_representation_is_there_and_leads_to_the_source(folder):
    page = Page(page_of(read(folder)))
    data = next(data for data in page.packed.values() if any(s["name"] == "joint" for s in data["steps"]))
    kinds = {shown["kind"] for shown in data["steps"]}
    assert {"FX graph", "aten graph", "plan"} <= kinds
    assert {shown["text"] for shown in data["steps"]} <= set(data["texts"])
    for kind in ("aten graph", "plan"):
        texts = [data["texts"][s["text"]] for s in data["steps"] if s["kind"] == kind]
        assert any(f"{__file__}:{FIRST + 1}" in text for text in texts), kind
    assert data["files"][__file__] == Path(__file__).read_text()
    steps = [s for s in data["plan"] if f"{__file__}:{FIRST + 1}" in s["lines"]]
    assert steps and all("moved" in s["cost"] for s in steps)


def test_a_kernel_of_a_line_has_its_loops_and_its_source(folder):
    pytest.importorskip("opmill_kernel_gen_cpp")
    page = Page(page_of(read(folder)))
    kernels = [(data, k) for data in page.packed.values() for k in data["kernels"] if f"{__file__}:{FIRST + 1}" in k["lines"]]
    assert kernels
    for data, kernel in kernels:
        assert "for" in data["texts"][kernel["text"]] and data["texts"][kernel["loops"]] != data["texts"][kernel["text"]]


def test_a_line_cut_short_ends_a_process_and_nothing_else(folder, tmp_path):
    copy = tmp_path / "trace"
    shutil.copytree(folder, copy)
    [file] = copy.glob("*/events.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    fourth = [k for k, line in enumerate(lines) if b'"event":"step"' in line][3]
    file.write_bytes(b"".join(lines[:fourth]) + lines[fourth][:20])
    [trace] = read(copy)
    assert trace.graphs["g1"].end is None and len(trace.graphs["g1"].steps) == 3
    assert "the process ended before this graph was compiled" in Page(page_of([trace])).text
    for text in copy.glob("*/texts/*.txt"):
        text.unlink()
    assert Page(page_of(read(copy)))


def test_several_processes_are_one_page(folder, tmp_path):
    for rank in (1, 0):
        target = tmp_path / f"node-{rank}"
        shutil.copytree(next(folder.glob("*/events.jsonl")).parent, target)
        first, rest = (target / "events.jsonl").read_bytes().split(b"\n", 1)
        process = msgspec.structs.replace(msgspec.json.decode(first, type=events.Process), rank=rank, pid=100 + rank)
        (target / "events.jsonl").write_bytes(msgspec.json.encode(process) + b"\n" + rest)
    page = Page(page_of(read(tmp_path)))
    assert page.text.index("rank 0, process 100") < page.text.index("rank 1, process 101")
    assert {"p0", "p1", "p0-g1", "p1-g1"} <= set(page.ids) and len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_texts_of_the_program_are_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("OPMILL_TRACE", str(tmp_path))

    def named(x):
        print("</script><b>&")
        return x + 1

    named.__qualname__ = "<img src=x>&"
    opmill.compile(named, backend="opmill", options=opmill.Options(cache=False))(torch.ones(2))
    assert "<img" not in page_of(read(tmp_path))


def test_a_disk_that_is_full_ends_the_trace_and_not_the_program(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPMILL_TRACE", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("no folder")
    compiled = opmill.compile(lambda x: x * 2 + 1, options=opmill.Options(cache=False))
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
    assert capsys.readouterr().err.count("the trace in") == 1


def test_nothing_is_written_or_imported_where_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.delenv("OPMILL_TRACE", raising=False)
    from opmill.compile import record_of

    compiled = opmill.compile(step, options=opmill.Options(cache=False))
    compiled(torch.randn(2, 8), torch.randn(8, 8))
    assert record_of(compiled)[1].tracing is None


def test_a_folder_without_a_trace_is_refused(tmp_path):
    with pytest.raises(UsageValueError, match="OM023"):
        opmill.report(tmp_path)


def test_the_command(folder, tmp_path, capsys):
    assert main(["report", str(folder), "-o", str(tmp_path / "page.html")]) == 0
    assert str(tmp_path / "page.html") in capsys.readouterr().out.replace("\n", "") and Page((tmp_path / "page.html").read_text()).ids


def test_what_a_profile_measured_colours_the_plan(folder, tmp_path):
    copy = tmp_path / "trace"
    shutil.copytree(folder, copy)
    [trace] = read(copy)
    slow = next(s for g in trace.graphs.values() for p in g.plans for s in p.steps if s.origin)
    told = events.Times(trace.process.time, "step", ((slow.name, slow.origin, 0.25, 0.5),), 1.0, 0.5)
    with open(trace.folder / "events.jsonl", "ab") as file:
        file.write(msgspec.json.encode(told) + b"\n")
    page = Page(page_of(read(copy)))
    assert "coloured by measured time" in page.text and "250.0 ms" in page.text


@pytest.mark.parametrize("reads", [[], [()], [(), (0,), (0,), (1, 2)], [(-1,), (-1,), (0, 1), (2,), (0, 3)]])
def test_nodes_stand_below_what_they_read_and_apart(reads):
    placed = place(reads)
    for node, sources in enumerate(reads):
        assert all(placed.at[s][1] < placed.at[node][1] for s in sources if s >= 0)
    assert len(set(placed.at)) == len(reads)
    assert all(0 <= x < max(placed.width, 1) and 0 <= y < placed.height for x, y in placed.at)


CLICK = """<script>
(async () => {
  const viewer = document.querySelector("details.viewer");
  const data = await open(viewer);
  const line = [...viewer.querySelectorAll(".pane .code [data-lines]")].find(l => l.dataset.lines.endsWith(":LINE"));
  line.click();
  await new Promise(done => setTimeout(done, 200));
  const shown = [...viewer.querySelectorAll(".code")].map(box => box.querySelectorAll(".on").length);
  document.body.dataset.seen = JSON.stringify({shown, nodes: document.querySelectorAll(".node.on").length, detail: viewer.querySelector(".detail").textContent});
})().catch(error => document.body.dataset.seen = "failed: " + error);
</script></body>"""
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_a_click_on_a_line_shows_what_became_of_it(folder, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(page_of(read(folder)).replace("</body>", CLICK.replace("LINE", str(FIRST + 1))))
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=20000",
    ]
    done = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=300)
    seen = done.stdout.partition('data-seen="')[2].partition('"')[0].replace("&quot;", '"').replace("&amp;", "&")
    assert seen and not seen.startswith("failed"), (seen, done.stderr[-500:])
    found = json.loads(seen)
    assert found["shown"][0] == 1 and found["shown"][2] >= 1 and found["nodes"] >= 1 and "_softmax" in found["detail"]
