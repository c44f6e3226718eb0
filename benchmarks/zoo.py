"""Real models to measure: transformers, timm and torchvision architectures with random weights, on CPU, float32, in eval mode.

``MODELS[name]()`` gives (module, args, kwargs). Needs transformers, pillow and pyyaml, and timm and torchvision installed without their
requirements (these would replace a CPU build of torch).
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch

Case = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]


@functools.cache
def allow_torchvision() -> torch.library.Library | None:
    """Makes torchvision importable beside a CPU build of torch: its compiled operators cannot load there, and its import asks for two of
    them by name. The returned library must stay alive."""
    warnings.filterwarnings("ignore", message="Failed to load image Python extension")
    try:
        import torchvision  # noqa: F401

        return None
    except Exception:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def text_model(model: str, config: str, batch: int = 1, length: int = 128, **settings: Any) -> Callable[[], Case]:
    def build() -> Case:
        allow_torchvision()
        import transformers

        configuration = getattr(transformers, config)(**settings)
        configuration.use_cache = False
        module = getattr(transformers, model)(configuration).eval()
        ids = torch.randint(3, min(1000, configuration.vocab_size), (batch, length))
        inputs = {"input_ids": ids}
        if configuration.is_encoder_decoder:
            inputs["decoder_input_ids"] = ids.clone()
        return module, (), inputs

    return build


def timm_model(name: str) -> Callable[[], Case]:
    def build() -> Case:
        allow_torchvision()
        import timm

        return timm.create_model(name).eval(), (torch.randn(1, 3, 224, 224),), {}

    return build


def vision_model(name: str) -> Callable[[], Case]:
    def build() -> Case:
        allow_torchvision()
        import torchvision

        return getattr(torchvision.models, name)().eval(), (torch.randn(1, 3, 224, 224),), {}

    return build


def mlp() -> Case:
    layers = (torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8))
    return torch.nn.Sequential(*layers).eval(), (torch.randn(8, 64),), {}


_BERT_S = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
_LLAMA_S = {**_BERT_S, "intermediate_size": 688, "num_key_value_heads": 2, "vocab_size": 1000}
_GPT2_S = {"n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": 1000}
_T5_S = {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 3, "num_heads": 4, "vocab_size": 1000}

MODELS: dict[str, Callable[[], Case]] = {
    "mlp": mlp,
    "bert_s": text_model("BertModel", "BertConfig", **_BERT_S),
    "gpt2_s": text_model("GPT2LMHeadModel", "GPT2Config", **_GPT2_S),
    "llama_s": text_model("LlamaForCausalLM", "LlamaConfig", **_LLAMA_S),
    "t5_s": text_model("T5ForConditionalGeneration", "T5Config", **_T5_S),
    "bert_base": text_model("BertModel", "BertConfig"),
    "resnet18": vision_model("resnet18"),
    "resnet50": vision_model("resnet50"),
    "mobilenet_v3": vision_model("mobilenet_v3_large"),
    "vit_tiny": timm_model("vit_tiny_patch16_224"),
    "convnext_atto": timm_model("convnext_atto"),
}
