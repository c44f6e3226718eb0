"""Tokens that a language model generates one by one on a GPU: milliseconds a token, compilers one after the other, a process each.

usage: gpu_decode.py [COMPILER...] [--model llama,qwen2] [--cache 256,8192] [--batch 1,8] [--tokens 64] [--steps] [--int8]

The model is one of MODELS, by default a Llama of a billion parameters (16 layers of 2048, 32 heads over 8, 8192, vocabulary 32,000), with
random weights in bfloat16 and a static cache, greedy, after a prompt of 64 tokens that the model itself reads. ``error``: of the logits of four steps, the largest
distance to float32 as a share of the largest logit, beside eager's. ``host``: microseconds until a call returns; ``graph``: until
opmill's CUDA graph is started, and until it has run, the device idle before and nothing else in the way. ``--steps``: what one token
runs on the device is a field of its row. ``--int8``: weights of one byte and a scale a row, as torchao's weight-only ones are computed.
COMPILER: eager, torch, torch-reduce-overhead, opmill, opmill-reduce-overhead.
"""

from __future__ import annotations

import argparse
import copy
import gc
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from gpu_measure import compiled
from measure import distance
from processes import measured

COMPILERS = ("eager", "torch-reduce-overhead", "opmill", "opmill-reduce-overhead")
PROMPT = 64
LLAMA = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "head_dim": 64,
}
"""A billion parameters."""


def _sizes(width: int, inner: int, layers: int, heads: int, own: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")
    return {**dict(zip(names, (width, inner, layers, heads, own, vocabulary), strict=True)), **more}


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", LLAMA),
    "llama_3b": ("LlamaForCausalLM", _sizes(3072, 8192, 28, 24, 8, 128256, tie_word_embeddings=True)),
    "smollm": ("LlamaForCausalLM", _sizes(576, 1536, 30, 9, 3, 49152, tie_word_embeddings=True)),
    "qwen2": ("Qwen2ForCausalLM", _sizes(896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True)),
    "qwen3": ("Qwen3ForCausalLM", _sizes(2048, 6144, 28, 16, 8, 151936, head_dim=128, tie_word_embeddings=True)),
    "gemma2": ("Gemma2ForCausalLM", _sizes(2304, 9216, 26, 8, 4, 256000, head_dim=256)),
    "phi3": ("Phi3ForCausalLM", _sizes(3072, 8192, 16, 32, 32, 32064, pad_token_id=0)),
    "mixtral": ("MixtralForCausalLM", _sizes(1024, 3584, 8, 16, 8, 32000, num_local_experts=8)),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "opt": ("OPTForCausalLM", {"hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 24, "num_attention_heads": 32}),
}
"""Classes of transformers and what they are made with."""


class Int8Linear(torch.nn.Module):
    """A linear layer without bias."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        scale = weight.float().abs().amax(1) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale.to(weight.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.mm(x.reshape(-1, x.shape[-1]), self.weight.t().to(x.dtype)) * self.scale
        return y.reshape(*x.shape[:-1], y.shape[-1])


def with_int8_weights(model: torch.nn.Module) -> torch.nn.Module:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, Int8Linear(child.weight.detach()))
    return model


class Decoder:
    """A model, a cache, and the prompt's end: ``step`` gives the logits of the next token."""

    def __init__(self, name: str, length: int, batch: int, int8: bool = False) -> None:
        import transformers

        torch.manual_seed(0)
        self.length = length
        kind, sizes = MODELS[name]
        made = getattr(transformers, kind)
        config = made.config_class(**sizes)
        with torch.device("cuda"):
            self.model = made(config).to(torch.bfloat16).eval()
        self.model = with_int8_weights(self.model) if int8 else self.model
        self.prompt = torch.randint(0, 32000, (batch, PROMPT), device="cuda")
        self.cache = transformers.StaticCache(config=config, max_cache_len=length)

    def begin(self, model: Any = None) -> torch.Tensor:
        """Reads the prompt; the first token."""
        self.cache.reset()
        logits = (model or self.model)(
            input_ids=self.prompt, past_key_values=self.cache, cache_position=torch.arange(PROMPT, device="cuda")
        ).logits
        return logits[:, -1:].argmax(-1)

    def step(self, model: Any, token: torch.Tensor, k: int) -> torch.Tensor:
        place = torch.tensor([PROMPT + k], device="cuda")
        return model(input_ids=token.clone(), past_key_values=self.cache, cache_position=place).logits

    def tokens(self, model: Any, token: torch.Tensor, count: int) -> None:
        for k in range(count):
            token = self.step(model, token, k)[:, -1:].argmax(-1)

    def logits(self, model: Any, token: torch.Tensor, count: int = 4) -> torch.Tensor:
        """Of the same token again and again, so that no choice between near ones matters."""
        return torch.stack([self.step(model, token, k).float().clone() for k in range(count)])


def errors(decoder: Decoder, function: Any) -> tuple[float, float]:
    """Of ``function`` and of eager."""
    token = decoder.begin().clone()
    eager = decoder.logits(decoder.model, token)
    decoder.begin()
    ours = decoder.logits(function, token)
    wide, kept = copy.deepcopy(decoder.model).float(), decoder.cache
    decoder.cache = type(kept)(config=decoder.model.config, max_cache_len=decoder.length)
    decoder.begin(wide)
    exact = decoder.logits(wide, token)
    decoder.cache = kept
    return distance([ours], [exact]), distance([eager], [exact])


def seconds(call: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def host(decoder: Decoder, function: Any) -> tuple[float, list[float]]:
    """Microseconds until a call returns whose device is idle; and those that it takes to start opmill's CUDA graph and that it runs, where
    the call is one: with more of them, one alone would read what others have left in the memory that they share."""
    token, place, found = decoder.begin(), torch.tensor([PROMPT], device="cuda"), []
    for _ in range(30):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function(input_ids=token, past_key_values=decoder.cache, cache_position=place)
        found.append(1e6 * (time.perf_counter() - start))
    torch.cuda.synchronize()
    executables = [o for o in gc.get_objects() if type(o).__name__ == "GraphedExecutable"]
    graphs = [r.graph for e in executables for sizes in e.known.values() for s in sizes.values() for r in s.recordings]
    return statistics.median(found), replayed(graphs[0]) if len(graphs) == 1 else []


def replayed(graph: Any) -> list[float]:
    """Microseconds that it takes to start a CUDA graph, and that it runs, the device idle before."""
    times = []
    for _ in range(30):
        torch.cuda.synchronize()
        start = time.perf_counter()
        graph.replay()
        started = time.perf_counter()
        torch.cuda.synchronize()
        times.append((1e6 * (started - start), 1e6 * (time.perf_counter() - start)))
    return [round(statistics.median(column), 1) for column in zip(*times, strict=True)]


def steps_of(decoder: Decoder, function: Any) -> list[str]:
    """What the second of two tokens runs on the device, with microseconds from its start and those it took, and what the host calls then."""
    from torch.profiler import ProfilerActivity, profile

    decoder.tokens(function, decoder.begin(), 3)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        decoder.tokens(function, decoder.begin(), 2)
        torch.cuda.synchronize()
    events = sorted(found.events(), key=lambda e: e.time_range.start)
    device = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA and not e.name.startswith("opmill::")]
    last = device[len(device) * 3 // 4 :]
    start = last[0].time_range.start
    host = [
        e
        for e in events
        if e.device_type == torch.autograd.DeviceType.CPU and e.name.startswith(("cu", "hip")) and e.time_range.start > start
    ]
    return [
        *(f"{e.time_range.start - start:8.1f} +{e.time_range.elapsed_us():6.1f} us  {e.name[:90]}" for e in last),
        *(f"host {e.time_range.elapsed_us():8.1f} us  {e.name}" for e in host),
    ]


def row_of(name: str, model: str, length: int, batch: int, count: int, steps: bool, int8: bool) -> dict[str, Any]:
    decoder = Decoder(model, length, batch, int8)
    with torch.no_grad():
        function = compiled(name, decoder.model)
        first = seconds(lambda: decoder.tokens(function, decoder.begin(), 2))
        ours, eager = errors(decoder, function)
        torch.cuda.reset_peak_memory_stats()
        times = []
        for _ in range(5):
            token = decoder.begin()
            times.append(1e3 * seconds(lambda token=token: decoder.tokens(function, token, count)) / count)
        row: dict[str, Any] = {
            "ms": round(statistics.median(times), 3),
            "first_s": round(first, 2),
            "error": round(ours, 4),
            "eager": round(eager, 4),
        }
        peak = torch.cuda.max_memory_allocated()
        waited, graph = host(decoder, function)
        row |= {"host": round(waited, 1), "peak_gb": round(peak / 2**30, 2), "graph": graph}
        if steps:
            row["steps"] = steps_of(decoder, function)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("compilers", nargs="*", default=list(COMPILERS))
    parser.add_argument("--model", default="llama", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--cache", default="256", help="lengths of the cache")
    parser.add_argument("--batch", default="1", help="sequences at once")
    parser.add_argument("--tokens", type=int, default=64, help="tokens that are timed, five times")
    parser.add_argument("--steps", action="store_true", help="what one token runs on the device, too")
    parser.add_argument("--int8", action="store_true", help="weights of one byte")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    lengths, batches = ([int(n) for n in text.split(",")] for text in (options.cache, options.batch))
    if options.here:
        own = (options.model, lengths[0], batches[0], options.tokens, options.steps, options.int8)
        print(json.dumps(row_of(options.compilers[0], *own)))
        return
    more = [f"--{name}" for name in ("steps", "int8") if getattr(options, name)]
    for model, length, batch, name in itertools.product(options.model.split(","), lengths, batches, options.compilers):
        own = ["--here", "--model", model, "--cache", str(length), "--batch", str(batch), "--tokens", str(options.tokens), *more]
        found = measured([sys.executable, __file__, name, *own], timeout=600)
        row = {"model": model, "compiler": name, "cache": length, "batch": batch, "int8": options.int8}
        print(json.dumps({**row, **found}), flush=True)


if __name__ == "__main__":
    main()
