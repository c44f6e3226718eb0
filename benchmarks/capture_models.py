"""Small models with random weights of every architecture that transformers, timm and torchvision have, for ``capture.py``.

``names()`` lists them as ``library:name``; ``build(case)`` gives (module, keyword or positional inputs) that runs plainly, or raises
Unbuildable.
"""

from __future__ import annotations

import collections
import copy
import inspect
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from zoo import allow_torchvision

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "num_encoder_layers",
    "num_decoder_layers",
    "depth",
)
WIDTH = ("size", "dim", "hidden", "d_model", "embd", "inner", "ffn", "d_ff", "d_kv", "width", "rank", "channels")
NOT_WIDTH = (
    "vocab",
    "image",
    "patch",
    "kernel",
    "window",
    "position",
    "num_channels",
    "in_channels",
    "batch",
    "max_",
    "chunk",
    "block_size",
    "type_vocab",
    "stride",
    "num_",
)
SEQUENCE = 24
MASKED = ("longt5",)
"""Models that make the mask which they need only where they are not compiled (``torch.compiler.is_compiling()``)."""


class Unbuildable(Exception):
    """No small configuration of the architecture could be built and run plainly."""


def transformers_names() -> list[str]:
    allow_torchvision()
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return sorted(MODEL_MAPPING_NAMES)


def timm_names() -> list[str]:
    """The smallest-named model of each module of timm."""
    allow_torchvision()
    import timm

    families: dict[str, list[str]] = collections.defaultdict(list)
    for module in timm.list_modules():
        families[module] = timm.list_models(module=module)
    order = ("atto", "femto", "pico", "nano", "tiny", "mini", "small", "18", "_s", "base")
    rank = lambda name: next((i for i, word in enumerate(order) if word in name), len(order))
    return sorted(min(models, key=lambda m: (rank(m), len(m), m)) for models in families.values() if models)


def torchvision_names() -> list[str]:
    allow_torchvision()
    import torchvision

    return sorted(torchvision.models.list_models(module=torchvision.models))


LIBRARIES: dict[str, Callable[[], list[str]]] = {"transformers": transformers_names, "timm": timm_names, "torchvision": torchvision_names}


def names(libraries: list[str]) -> list[str]:
    return [f"{library}:{name}" for library in libraries for name in LIBRARIES[library]()]


# --- shrinking configurations -------------------------------------------------------------------------------------------------------


#: (divisor of widths, whether the numbers of attention heads are divided too: the size of a head then stays), in the order tried.
STRATEGIES = ((8, False), (16, True), (8, True), (4, True), (4, False), (2, False), (16, False), (1, False))


def shrink(config: Any, factor: int, heads: bool, seen: set[int] | None = None) -> Any:
    """Divides every width of a configuration (and of those inside it) by ``factor``, leaves two layers and a small vocabulary."""
    seen = set() if seen is None else seen
    if id(config) in seen:
        return config
    seen.add(id(config))
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            shrink(value, factor, heads, seen)
            continue
        smaller = smaller_value(name, value, factor, heads)
        if smaller is not None:
            try:
                setattr(config, name, smaller)
            except Exception:
                continue
    return config


def smaller_value(name: str, value: Any, factor: int, heads: bool) -> Any:
    if isinstance(value, bool) or (heads and "head" in name and "dim" in name):
        return None
    if heads and isinstance(value, int) and name.endswith(("heads", "n_head")) and value > 1:
        return max(1, value // factor)
    if name in LAYERS and isinstance(value, int):
        return min(value, 2)
    if name == "depths" and isinstance(value, (list, tuple)):
        return type(value)([min(v, 2) for v in value])
    if name == "layer_types" and isinstance(value, (list, tuple)):
        return list(value)[:2]
    if name == "vocab_size" and isinstance(value, int):
        return min(value, 1000)
    if name.endswith("token_id") and isinstance(value, int) and value >= 1000:
        return 5 + sum(map(ord, name)) % 900
    if "num_" in name and "experts" in name and isinstance(value, int) and "per" not in name:
        return min(value, 8)
    if not any(w in name for w in WIDTH) or any(w in name for w in NOT_WIDTH):
        return None
    if isinstance(value, int) and value >= 32 and value % factor == 0:
        return value // factor
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, int) and v >= 32 and v % factor == 0 for v in value):
        return type(value)([v // factor for v in value])
    return None


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {seconds} s")

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def parameter_count(make: Callable[[], torch.nn.Module]) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in make().parameters())


def build_transformers(name: str) -> tuple[torch.nn.Module, Inputs]:
    allow_torchvision()
    from transformers import AutoModel
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    failures = []
    for factor, heads in STRATEGIES:
        try:
            torch.manual_seed(0)
            config = shrink(CONFIG_MAPPING[name](), factor, heads)
            config.use_cache = False
            make = lambda config=config: AutoModel.from_config(copy.deepcopy(config))
            with at_most(90):
                count = parameter_count(make)
                if count > 60_000_000:
                    raise MemoryError(f"{count / 1e6:.0f} million parameters")
                module = make().eval()
                return module, find_inputs(module)
        except Exception as error:
            failures.append(f"1/{factor}{' heads' * heads}: {type(error).__name__}: {str(error)[:160]}")
    raise Unbuildable("; ".join(failures))


def find_inputs(module: torch.nn.Module) -> Inputs:
    """Inputs under which the model runs: candidates by the names of its parameters, tried in order."""
    parameters = inspect.signature(module.forward).parameters
    errors = []
    for candidate in candidates(module.config, set(parameters)):
        try:
            with torch.no_grad():
                module(**copy.deepcopy(candidate))
            return (), candidate
        except TimeoutError:
            raise
        except Exception as error:
            errors.append(f"{sorted(candidate)}: {type(error).__name__}: {str(error)[:80]}")
    raise Unbuildable(" | ".join(errors) or "no known inputs")


def setting(config: Any, name: str, default: Any) -> Any:
    for part in (
        config,
        *(getattr(config, n, None) for n in ("vision_config", "audio_config", "text_config", "backbone_config", "encoder")),
    ):
        value = getattr(part, name, None)
        if value is not None:
            return value
    return default


def candidates(config: Any, parameters: set[str]) -> Iterator[dict[str, Any]]:
    torch.manual_seed(1)
    vocabulary = min(1000, setting(config, "vocab_size", 1000))
    text: dict[str, Any] = {}
    if "input_ids" in parameters:
        text["input_ids"] = torch.randint(6, max(7, vocabulary), (1, SEQUENCE))
    if "bbox" in parameters:
        text["bbox"] = torch.zeros(1, SEQUENCE, 4, dtype=torch.long)
    if "decoder_input_ids" in parameters:
        text["decoder_input_ids"] = torch.randint(6, max(7, vocabulary), (1, 8))
    decoder = {k: v for k, v in text.items() if k == "decoder_input_ids"}
    if text and "input_ids" in text:
        if getattr(config, "model_type", "") in MASKED:
            yield {**text, "attention_mask": torch.ones(1, SEQUENCE, dtype=torch.long)}
        yield text
        yield {"input_ids": text["input_ids"]}
        yield {**text, "attention_mask": torch.ones(1, SEQUENCE, dtype=torch.long)}
    sizes = [setting(config, "image_size", 224), 224, 64]
    for size in dict.fromkeys(tuple(s) if isinstance(s, (list, tuple)) else (s, s) for s in sizes if isinstance(s, (int, list, tuple))):
        if "pixel_values" in parameters and len(size) == 2:
            image = {"pixel_values": torch.randn(1, setting(config, "num_channels", 3), *size)}
            yield {**image, **decoder}
            yield {**image, **text}
            yield {**image, **text, "attention_mask": torch.ones(1, SEQUENCE, dtype=torch.long)}
            yield {"pixel_values": torch.randn(1, setting(config, "num_frames", 8), 3, *size)}
    if "input_values" in parameters:
        yield {"input_values": torch.randn(1, 8000), **decoder}
        yield {"input_values": torch.randn(1, 1, 8000)}
        yield {"input_values": torch.randn(1, setting(config, "max_length", 1024), setting(config, "num_mel_bins", 128))}
    if "input_features" in parameters:
        bins = setting(config, "num_mel_bins", 80)
        length = 2 * setting(config, "max_source_positions", 64)
        yield {"input_features": torch.randn(1, bins, length), **decoder}
        yield {"input_features": torch.randn(1, 64, bins), **decoder}
        yield {"input_features": torch.randn(1, 64, setting(config, "feature_projection_input_dim", 160)), **decoder}
    if "past_values" in parameters:
        length = setting(config, "context_length", 32)
        series = {"past_values": torch.randn(1, length, setting(config, "num_input_channels", 1))}
        yield series
        yield {"past_values": torch.randn(1, length)}
    if "inputs_embeds" in parameters:
        yield {"inputs_embeds": torch.randn(1, SEQUENCE, setting(config, "hidden_size", 64))}


# --- the other libraries ------------------------------------------------------------------------------------------------------------


def build_timm(name: str) -> tuple[torch.nn.Module, Inputs]:
    allow_torchvision()
    import timm

    torch.manual_seed(0)
    module = timm.create_model(name).eval()
    return module, ((torch.randn(1, *timm.data.resolve_model_data_config(module)["input_size"]),), {})


def build_torchvision(name: str) -> tuple[torch.nn.Module, Inputs]:
    allow_torchvision()
    import torchvision

    torch.manual_seed(0)
    module = torchvision.models.get_model(
        name, weights=None, **({"init_weights": False} if name in ("googlenet", "inception_v3") else {})
    ).eval()
    return module, ((torch.randn(1, 3, 299 if name == "inception_v3" else 224, 299 if name == "inception_v3" else 224),), {})


BUILDERS = {"transformers": build_transformers, "timm": build_timm, "torchvision": build_torchvision}


def build(case: str) -> tuple[torch.nn.Module, Inputs]:
    """The model of ``library:name`` in eval mode and inputs for it. Raises Unbuildable."""
    library, name = case.split(":", 1)
    random.seed(0)
    return BUILDERS[library](name)
