"""The report in a real browser: whatever can be clicked is, no script fails, every link leads somewhere, nothing is asked of a network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import opmill

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium (Debian: apt-get install chromium)")
LIMIT_BYTES = 10_000_000

WATCH = """<script>
const failed = [];
addEventListener("error", event => failed.push(event.message || "cannot load " + (event.target.src || event.target.href)), true);
addEventListener("unhandledrejection", event => failed.push(String(event.reason)));
console.error = (...told) => failed.push(told.join(" "));
</script>"""
"""Stands before everything else of the page."""
CLICK = """<script>
(async () => {
  const wait = () => new Promise(done => setTimeout(done, 50));
  const links = [...document.querySelectorAll("a[href]")];
  for (const link of links) {
    const target = link.getAttribute("href");
    if (!target.startsWith("#")) failed.push("leads outside: " + target);
    else if (!document.getElementById(target.slice(1))) failed.push("leads nowhere: " + target);
    link.dispatchEvent(new MouseEvent("click", {bubbles: true}));
  }
  for (const details of document.querySelectorAll("details")) details.open = true;
  const viewers = [...document.querySelectorAll("details.viewer")];
  let lines = 0, shown = 0;
  for (const viewer of viewers) {
    await open(viewer);
    await wait();
    for (const select of viewer.querySelectorAll("select")) {
      for (const option of [...select.options]) { select.value = option.value; select.dispatchEvent(new Event("change")); await wait(); }
    }
    for (const line of [...viewer.querySelectorAll(".code [data-lines]")].slice(0, 5)) { line.click(); await wait(); lines += 1; }
    shown += viewer.querySelector(".detail").textContent.length > 60;
  }
  for (const node of [...document.querySelectorAll(".node")].slice(0, 20)) node.dispatchEvent(new MouseEvent("click", {bubbles: true}));
  await wait();
  const sections = document.querySelectorAll("section").length, titles = [...document.querySelectorAll("h2[id]")].map(h => h.textContent);
  const breaks = [...document.querySelectorAll("h3")].filter(h => h.textContent == "Graph breaks")
    .map(h => h.nextElementSibling.querySelectorAll("tr").length - 1);
  return {links: links.length, viewers: viewers.length, lines, shown, sections, titles, breaks};
})().then(seen => { document.body.dataset.seen = JSON.stringify({...seen, failed}); },
  error => { document.body.dataset.seen = JSON.stringify({failed: [...failed, String(error)]}); });
</script></body>"""


def clicked(folder: Path, tmp_path: Path) -> dict:  # type: ignore[type-arg]
    """What the browser saw of the report of a trace; fails where a script did, or a link leads nowhere."""
    page = opmill.report(folder)
    assert page.stat().st_size < LIMIT_BYTES, page.stat().st_size
    watched = tmp_path / "watched.html"
    watched.write_text(page.read_text().replace("<style>", f"{WATCH}<style>", 1).replace("</body>", CLICK))
    own = f"--user-data-dir={tmp_path / 'profile'}"
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command = [str(BROWSER), *quiet, own, "--virtual-time-budget=60000", "--timeout=200000", "--dump-dom", watched.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    text = done.stdout.partition('data-seen="')[2].partition('"')[0].replace("&quot;", '"').replace("&amp;", "&")
    assert text, done.stderr[-1000:]
    seen = json.loads(text)
    assert seen["failed"] == []
    assert seen["links"] >= seen["sections"] and seen["viewers"] == seen["sections"] == seen["shown"]
    return seen  # type: ignore[no-any-return]


BERT = """
import torch
from zoo import allow_torchvision
allow_torchvision()
from transformers import BertConfig, BertForSequenceClassification
import opmill

torch.manual_seed(0)
config = BertConfig(vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
model = opmill.compile(BertForSequenceClassification(config))
optimizer = torch.optim.AdamW(model.parameters())
words, labels = torch.randint(0, 500, (4, 16)), torch.randint(0, 2, (4,))
for _ in range(3):
    model(words, labels=labels).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_bert_that_is_trained(script, tmp_path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("transformers")
    script(BERT, OPMILL_TRACE=str(tmp_path / "trace"))
    seen = clicked(tmp_path / "trace", tmp_path)
    assert seen["lines"] >= 5 and len(seen["titles"]) == 1 and seen["breaks"] == []


RANKS = """
import os
import torch
import torch.distributed as dist
import opmill

dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=2, init_method="file://" + os.environ["MEET"])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)))
step = opmill.compile(model)
step(torch.randn(4, 16)).sum().backward()
dist.destroy_process_group()
"""


def test_two_ranks_are_on_one_page(script, tmp_path) -> None:  # type: ignore[no-untyped-def]
    common = {"OPMILL_TRACE": str(tmp_path / "trace"), "MEET": str(tmp_path / "meet")}
    ranks = [script.start(RANKS, RANK=str(rank), **common) for rank in range(2)]
    for process in ranks:
        _, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
    seen = clicked(tmp_path / "trace", tmp_path)
    assert len(seen["titles"]) == 2 and "rank 0" in seen["titles"][0] and "rank 1" in seen["titles"][1]
    assert seen["sections"] >= 2


BREAKS = """
import torch
import opmill

@opmill.disable
def apart(x):
    return x

class Many(torch.nn.Module):
    def forward(self, x):
        BODY
        return x

opmill.compile(Many())(torch.ones(8))
"""


def test_a_model_with_thirty_breaks(tmp_path) -> None:  # type: ignore[no-untyped-def]
    body = "\n        ".join(f"x = apart(x.sin() + {number})" for number in range(30))
    program = tmp_path / "many.py"
    program.write_text(BREAKS.replace("BODY", body))
    environment = {**os.environ, "OPMILL_TRACE": str(tmp_path / "trace")}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    seen = clicked(tmp_path / "trace", tmp_path)
    assert seen["breaks"] == [30] and seen["sections"] >= 30
