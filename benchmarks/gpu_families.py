"""Models of further families on a GPU, read and trained, beside torch.compile; a line of JSON for each model.

usage: gpu_families.py all|inference|training|NAME[,NAME...] [COMPILER...] [--once] [--jobs 8]

Those of INFERENCE are called in bfloat16 without gradients, those of TRAINING with their loss's gradients and fused AdamW under autocast.
A row has, by compiler, ``ms`` (median, the device waited for), ``first_s``, ``gpu`` (milliseconds that the device works), ``peak`` (GB),
``error`` (the largest distance to the eager result as a share of the largest value; of losses in training), and the costliest kernels.
Several take a process each; with ``--once`` these fill the compilers' caches, ``--jobs`` at a time, and say nothing.
COMPILER: eager, torch, opmill, each with ``-MODE``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from gpu_decode import seconds
from gpu_measure import compiled, moved
from gpu_steps import profiled
from measure import distance, tensors_of
from processes import measured

COMPILERS = ("eager", "torch", "opmill")
Workload = tuple[torch.nn.Module, dict[str, torch.Tensor]]
"""A model and its arguments."""


def text(name: str, length: int, batch: int = 1, *, labels: bool = False, **sizes: Any) -> Callable[[], Workload]:
    """A model of transformers by the name of its class, with a configuration of these sizes."""

    def make() -> Workload:
        import transformers

        model = getattr(transformers, name)
        model = model(model.config_class(**sizes))
        ids = torch.randint(0, model.config.vocab_size, (batch, length))
        return model, {"input_ids": ids, **({"labels": ids} if labels else {"use_cache": False})}

    return make


def image(name: str, batch: int, side: int = 224, **more: Any) -> Callable[[], Workload]:
    """A model of timm."""

    def make() -> Workload:
        import timm

        return timm.create_model(name, **more), {"x": torch.randn(batch, 3, side, side)}

    return make


def flux() -> Workload:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(num_layers=3, num_single_layers=6, guidance_embeds=True)
    given = {
        "hidden_states": torch.randn(1, 1024, 64),
        "encoder_hidden_states": torch.randn(1, 512, 4096),
        "pooled_projections": torch.randn(1, 768),
        "timestep": torch.tensor([0.5]),
        "guidance": torch.tensor([3.5]),
        "img_ids": torch.zeros(1024, 3),
        "txt_ids": torch.zeros(512, 3),
    }
    return model, given


def sd3() -> Workload:
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(sample_size=64, num_layers=8, num_attention_heads=24, attention_head_dim=64, caption_projection_dim=1536)
    given = {
        "hidden_states": torch.randn(2, 16, 64, 64),
        "encoder_hidden_states": torch.randn(2, 154, 4096),
        "pooled_projections": torch.randn(2, 2048),
        "timestep": torch.tensor([10.0, 10.0]),
    }
    return model, given


class Decoded(torch.nn.Module):
    """Images of latents."""

    def __init__(self) -> None:
        super().__init__()
        from diffusers import AutoencoderKL

        channels = (128, 256, 512, 512)
        self.vae = AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=channels,
            layers_per_block=2,
            latent_channels=4,
        )

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.vae.decode(z, return_dict=False)[0]


class Spoken(torch.nn.Module):
    """Texts of sounds: the loss."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import WhisperConfig, WhisperForConditionalGeneration

        sizes = {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "dropout": 0.0}
        layers = {f"{part}_{what}": 12 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
        self.model = WhisperForConditionalGeneration(WhisperConfig(**sizes, **layers))

    def forward(self, sounds: torch.Tensor, labels: torch.Tensor) -> Any:
        return self.model(input_features=sounds, labels=labels, use_cache=False)


class Heard(torch.nn.Module):
    """A loss of what a model makes of sounds."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import Wav2Vec2Config, Wav2Vec2Model

        still = {f"{name}_dropout": 0.0 for name in ("hidden", "attention", "activation", "feat_proj")}
        self.model = Wav2Vec2Model(Wav2Vec2Config(**still, layerdrop=0.0, apply_spec_augment=False))

    def forward(self, x: torch.Tensor) -> Any:
        return types.SimpleNamespace(loss=self.model(x).last_hidden_state.float().square().mean())


class Denoised(torch.nn.Module):
    """The loss of a network that is to tell noise."""

    def __init__(self) -> None:
        super().__init__()
        from diffusers import UNet2DConditionModel

        self.model = UNet2DConditionModel(cross_attention_dim=768, block_out_channels=(192, 384, 768, 768))

    def forward(self, x: torch.Tensor, t: torch.Tensor, text: torch.Tensor) -> Any:
        return types.SimpleNamespace(loss=(self.model(x, t, text, return_dict=False)[0].float() - x).square().mean())


class UpscaledNoise(torch.nn.Module):
    """A network of the size of Stable Diffusion XL's, of two of its three levels' depth."""

    def __init__(self) -> None:
        super().__init__()
        from diffusers import UNet2DConditionModel

        self.model = UNet2DConditionModel(
            cross_attention_dim=2048,
            block_out_channels=(320, 640, 1280),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            transformer_layers_per_block=(1, 2, 4),
            attention_head_dim=(5, 10, 20),
            use_linear_projection=True,
        )

    def forward(self, x: torch.Tensor, t: torch.Tensor, text: torch.Tensor) -> Any:
        return self.model(x, t, text, return_dict=False)[0]


MISTRAL = {"hidden_size": 2048, "intermediate_size": 7168, "num_attention_heads": 32}
_GPT2 = {"n_embd": 1024, "n_layer": 24, "n_head": 16, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
GEMMA = {"hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256}
DEEPSEEK = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "moe_intermediate_size": 704,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "q_lora_rank": 512,
    "kv_lora_rank": 256,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
    "vocab_size": 32000,
}
QWEN3_MOE = {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000}
INFERENCE: dict[str, Callable[[], Workload]] = {
    "deepseek": text("DeepseekV3ForCausalLM", 2048, **DEEPSEEK),
    "qwen3_moe": text("Qwen3MoeForCausalLM", 2048, **QWEN3_MOE, moe_intermediate_size=512, num_hidden_layers=8, num_experts=32),
    "gemma3": text("Gemma3ForCausalLM", 4096, **GEMMA, num_hidden_layers=12, vocab_size=65536, sliding_window=512),
    "mistral": text(
        "MistralForCausalLM",
        8192,
        hidden_size=2048,
        intermediate_size=7168,
        num_hidden_layers=8,
        num_attention_heads=32,
        sliding_window=1024,
    ),
    "mixtral": text(
        "MixtralForCausalLM",
        1024,
        hidden_size=1024,
        intermediate_size=3584,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_local_experts=8,
    ),
    "modernbert": text("ModernBertForMaskedLM", 512, 16),
    "t5": text("T5EncoderModel", 512, 8, d_model=768, d_ff=3072, num_layers=12, num_heads=12),
    "flux": flux,
    "sd3": sd3,
    "vae": lambda: (Decoded(), {"z": torch.randn(1, 4, 64, 64)}),
    "convnext": image("convnext_large", 32),
    "swin": image("swin_base_patch4_window7_224", 32),
    "eva": image("eva02_large_patch14_224", 16),
    "maxvit": image("maxvit_tiny_tf_224", 16),
    "regnet": image("regnety_160", 32),
    "resnet50": image("resnet50", 64),
    "vit_h": image("vit_huge_patch14_224", 16),
    "wav2vec": lambda: (Heard(), {"x": torch.randn(8, 80_000)}),
    "unet_xl": lambda: (
        UpscaledNoise(),
        {"x": torch.randn(2, 4, 64, 64), "t": torch.tensor([10.0, 10.0]), "text": torch.randn(2, 77, 2048)},
    ),
}
TRAINING: dict[str, Callable[[], Workload]] = {
    "bert_large": text(
        "BertForMaskedLM", 512, 16, labels=True, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    ),
    "qwen_step": text(
        "Qwen2ForCausalLM",
        1024,
        4,
        labels=True,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=12,
        num_attention_heads=14,
        num_key_value_heads=2,
        vocab_size=151936,
    ),
    "t5_step": text(
        "T5ForConditionalGeneration",
        512,
        8,
        labels=True,
        d_model=768,
        d_ff=3072,
        num_layers=6,
        num_heads=12,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    ),
    "whisper_step": lambda: (Spoken(), {"sounds": torch.randn(8, 80, 3000), "labels": torch.randint(0, 51865, (8, 224))}),
    "resnet50_step": image("resnet50", 128),
    "convnext_step": image("convnext_base", 64),
    "efficientnet_step": image("efficientnet_b0", 128),
    "swin_step": image("swin_small_patch4_window7_224", 64),
    "mistral_step": text("MistralForCausalLM", 4096, 1, labels=True, **MISTRAL, num_hidden_layers=6, sliding_window=1024),
    "gemma3_step": text("Gemma3ForCausalLM", 2048, 2, labels=True, **GEMMA, num_hidden_layers=8, vocab_size=65536, sliding_window=512),
    "gemma2_step": text("Gemma2ForCausalLM", 1024, 2, labels=True, **GEMMA, num_hidden_layers=8, vocab_size=65536, sliding_window=4096),
    "llama_step": text("LlamaForCausalLM", 2048, 2, labels=True, **MISTRAL, num_hidden_layers=8, vocab_size=32000, num_key_value_heads=8),
    "gpt2_medium_step": text("GPT2LMHeadModel", 1024, 4, labels=True, **_GPT2),
    "bert_base_step": text("BertForMaskedLM", 128, 64, labels=True),
    "wav2vec_step": lambda: (Heard(), {"x": torch.randn(8, 80_000)}),
    "unet_step": lambda: (Denoised(), {"x": torch.randn(8, 4, 64, 64), "t": torch.randint(0, 1000, (8,)), "text": torch.randn(8, 77, 768)}),
    "deepseek_step": text("DeepseekV3ForCausalLM", 1024, 2, labels=True, **DEEPSEEK),
    "qwen3_moe_step": text(
        "Qwen3MoeForCausalLM", 1024, 2, labels=True, **QWEN3_MOE, moe_intermediate_size=512, num_hidden_layers=8, num_experts=32
    ),
    "olmo2_step": text(
        "Olmo2ForCausalLM", 2048, 2, labels=True, **MISTRAL, num_hidden_layers=6, vocab_size=100352, pad_token_id=0, eos_token_id=1
    ),
    "mamba2_step": text(
        "Mamba2ForCausalLM",
        1024,
        2,
        labels=True,
        hidden_size=768,
        num_hidden_layers=6,
        num_heads=24,
        head_dim=64,
        n_groups=1,
        vocab_size=32000,
    ),
    "coatnet_step": image("coatnet_0_rw_224", 64),
    "mixer_step": image("mixer_b16_224", 64),
    "densenet_step": image("densenet121", 64),
    "mobilenet_step": image("mobilenetv3_large_100", 128),
    "deit_step": image("deit3_base_patch16_224", 64),
}


def called(name: str, compiler: str) -> tuple[Callable[[], Any], Callable[[], list[torch.Tensor]]]:
    """What is timed, and what is compared of it."""
    torch.manual_seed(0)
    with torch.device("cuda"):  # where a billion numbers are drawn at once
        made = (INFERENCE | TRAINING)[name]()
    if name in INFERENCE:
        model, given = moved(made, torch.bfloat16)
        function = compiled(compiler, model.eval())

        def call() -> Any:
            with torch.no_grad():
                return function(**given)

        return call, lambda: tensors_of(call())[:1]
    model, given = moved(made, None)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    targets = torch.randint(0, 1000, (len(next(iter(given.values()))),), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    function = compiled(compiler, model.train())

    def step() -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            result = function(**given)
            loss = result.loss if hasattr(result, "loss") else torch.nn.functional.cross_entropy(result, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step, lambda: [torch.stack([step() for _ in range(4)])]


def row_of(name: str, compiler: str, expected: list[list[torch.Tensor]], once: bool) -> dict[str, Any]:
    torch._dynamo.reset()
    call, seen = called(name, compiler)
    first = seconds(call)
    if once:
        return {}
    found = [t.float().clone() for t in seen()]
    if not expected:
        expected.append(found)
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    ms = 1e3 * statistics.median(seconds(call) for _ in range(15))
    row = {"ms": round(ms, 3), "first_s": round(first, 1), "peak": round(torch.cuda.max_memory_allocated() / 2**30, 2)}
    work = profiled(call)
    top = [[kernel[:60], us, count] for kernel, us, count in work["top"][:14]]
    return {**row, "gpu": work["kernels_ms"], "error": round(distance(found, expected[0]), 5), "top": top}


def of_one(name: str, compilers: list[str], once: bool) -> dict[str, Any]:
    torch.set_float32_matmul_precision("high")
    expected: list[list[torch.Tensor]] = []
    row: dict[str, Any] = {"name": name}
    for compiler in compilers:
        try:
            row[compiler] = row_of(name, compiler, expected, once)
        except Exception as error:  # one compiler's failure is a row of the table
            row[compiler] = {"failed": f"{type(error).__name__}: {error}"[:400]}
        torch.cuda.empty_cache()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", help="with commas between; or all, inference, training")
    parser.add_argument("compilers", nargs="*", default=list(COMPILERS))
    parser.add_argument("--once", action="store_true", help="compiles, and says nothing")
    parser.add_argument("--jobs", type=int, default=1, help="models at once")
    options = parser.parse_args()
    groups = {"all": [*INFERENCE, *TRAINING], "inference": [*INFERENCE], "training": [*TRAINING]}
    names = groups.get(options.names) or options.names.split(",")
    if len(names) == 1:
        print(json.dumps(of_one(names[0], options.compilers, options.once)), flush=True)
        return
    started = time.perf_counter()

    def run(name: str) -> None:
        more = ["--once"] if options.once else []
        row = measured([sys.executable, "-W", "ignore", __file__, name, *options.compilers, *more], timeout=600)
        if not options.once or "failed" in row:
            print(json.dumps({"name": name, **row}), flush=True)

    with ThreadPoolExecutor(options.jobs) as threads:
        list(threads.map(run, names))
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
