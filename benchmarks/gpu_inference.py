"""Inference on a GPU without a cache of keys: a prompt that is read, and steps of diffusion; a line of JSON for each compiler.

usage: gpu_inference.py WORKLOAD [COMPILER...] [--once]

WORKLOAD: prefill (the Llama of gpu_decode.py, 2,048 tokens), qwen (another family: biases, 4 sequences of 1,024), unet (of Stable Diffusion
1.5, 2 images, float16; needs diffusers), dit (DiT-XL/2, 8 images, float16; diffusers), encoder (of Whisper small, 8 pieces of 30 s).
``ms``: median of calls, the device waited for after each; ``kernels_ms`` and ``top`` as in gpu_steps.py; ``error``: the largest distance to
float32 as a share of the largest value, beside eager's. COMPILER: eager, torch, opmill, each with ``-MODE``. ``--once`` compiles, and says
nothing.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from collections.abc import Callable
from typing import Any

import torch

from gpu_decode import LLAMA, seconds
from gpu_measure import compiled, moved
from gpu_steps import profiled
from measure import distance

COMPILERS = ("eager", "torch", "torch-reduce-overhead", "opmill", "opmill-reduce-overhead")
Workload = tuple[torch.nn.Module, dict[str, Any], Callable[[Any], torch.Tensor]]
"""A model, its arguments, and what is looked at of its result."""


def prefill() -> Workload:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**LLAMA)).to(torch.bfloat16)
    return model, {"input_ids": torch.randint(0, LLAMA["vocab_size"], (1, 2048)), "use_cache": False}, lambda result: result.logits


def qwen() -> Workload:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=2,
        vocab_size=65536,
    )
    model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    return model, {"input_ids": torch.randint(0, 65536, (4, 1024)), "use_cache": False}, lambda result: result.logits


def unet() -> Workload:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=64, cross_attention_dim=768).to(torch.float16)
    given = {
        "sample": torch.randn(2, 4, 64, 64).half(),
        "timestep": torch.tensor(10),
        "encoder_hidden_states": torch.randn(2, 77, 768).half(),
        "return_dict": False,
    }
    return model, given, lambda result: result[0]


def dit() -> Workload:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(num_attention_heads=16, attention_head_dim=72, num_layers=28, sample_size=32, out_channels=8).half()
    given = {
        "hidden_states": torch.randn(8, 4, 32, 32).half(),
        "timestep": torch.full((8,), 10),
        "class_labels": torch.arange(8),
        "return_dict": False,
    }
    return model, given, lambda result: result[0]


def encoder() -> Workload:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        d_model=768, encoder_layers=12, encoder_attention_heads=12, encoder_ffn_dim=3072, decoder_layers=1, decoder_attention_heads=12
    )
    model = WhisperModel(config).encoder.to(torch.bfloat16)
    return model, {"input_features": torch.randn(8, 80, 3000).bfloat16()}, lambda result: result.last_hidden_state


WORKLOADS: dict[str, Callable[[], Workload]] = {"prefill": prefill, "qwen": qwen, "unet": unet, "dit": dit, "encoder": encoder}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("compilers", nargs="*", default=list(COMPILERS))
    parser.add_argument("--once", action="store_true", help="compiles, and says nothing")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model, given, seen = WORKLOADS[options.workload]()
    model, given = moved(model.eval(), None), moved(given, None)
    with torch.no_grad():
        wide = {
            name: value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for name, value in given.items()
        }
        exact = seen(copy.deepcopy(model).float()(**wide)).clone() if not options.once else None
        for name in options.compilers:
            row = _row(name, model, given, seen, exact)
            if row is not None:
                print(json.dumps({"workload": options.workload, "compiler": name, **row}), flush=True)


def _row(
    name: str, model: torch.nn.Module, given: dict[str, Any], seen: Callable[[Any], torch.Tensor], exact: torch.Tensor | None
) -> dict[str, Any] | None:
    """None without ``exact``, which ``--once`` does not make."""
    torch._dynamo.reset()
    function = compiled(name, model)

    def call() -> torch.Tensor:
        return seen(function(**given))

    first = seconds(call)
    if exact is None:
        return None
    error = distance([call().clone()], [exact])
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    ms = 1e3 * statistics.median(seconds(call) for _ in range(20))
    return {"ms": round(ms, 3), "first_s": round(first, 1), "error": round(error, 5), **profiled(call)}


if __name__ == "__main__":
    main()
