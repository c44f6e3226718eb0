"""Every step of a compile is a text: what it gives is printed, read back, obeys the laws of its kind, and prints the same again."""

from functools import partial

import pytest
import torch

import opmill
import zoo
from opmill_graph_ir import pipeline
from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.options import GraphOptions
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store
from test_models import MODELS, SMALL

MORE = {
    "roberta": zoo.text_model("RobertaModel", "RobertaConfig", 2, 16, **SMALL),
    "opt": zoo.text_model("OPTForCausalLM", "OPTConfig", 2, 16, ffn_dim=128, word_embed_proj_dim=64, **SMALL),
    "electra": zoo.text_model("ElectraModel", "ElectraConfig", 2, 16, embedding_size=64, **SMALL),
    "mistral": zoo.text_model("MistralForCausalLM", "MistralConfig", 2, 16, num_key_value_heads=2, **SMALL),
    "gemma": zoo.text_model("GemmaForCausalLM", "GemmaConfig", 2, 16, num_key_value_heads=2, head_dim=16, **SMALL),
    "phi": zoo.text_model("PhiForCausalLM", "PhiConfig", 2, 16, num_key_value_heads=2, **SMALL),
    "shufflenet": zoo.vision_model("shufflenet_v2_x0_5"),
    "mixer": zoo.timm_model("mixer_s32_224"),
}


class Claims:
    """A generator that takes every kernel and builds none."""

    name = "claims"

    def available(self):
        return None

    def claims(self, kernel, options):
        return None

    def build(self, kernels, options, store):
        return [KernelRef("none", "none", f"{kernel.name} {hash(kernel)}", "k") for kernel in kernels]


def _read_back(seen, step, made, seconds, show):
    form = pipeline.REPRESENTATIONS[step.gives]
    for part, program in made:
        if not form.parse:
            continue
        text = show(program)
        again = pipeline.found(form.parse)(text)
        pipeline.found(form.verify)(again)
        assert show(again) == text, (step.name, part)
        if step.gives == "schedule":
            assert again == program, (step.name, part)
        seen.add(step.name)


def _compiled(model, args, kwargs, folder, seen, **settings):
    def backend(gm, inputs, **_):
        binder = lambda plan, held, store: lambda *inputs: ()  # noqa: E731
        observe = partial(_read_back, seen)
        compile_graph(gm, inputs, options=GraphOptions(), store=Store(folder), generators=[Claims()], binder=binder, observe=observe)
        return gm

    opmill.compile(model, backend=backend, **settings)(*args, **kwargs)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", [*MODELS, *MORE])
def test_every_step_of_a_model_is_read_back(name, training, tmp_path):
    model, args, kwargs = {**MODELS, **MORE}[name]()
    seen = set()
    with torch.set_grad_enabled(training):
        _compiled(model, args, kwargs, tmp_path, seen)
    assert {"graph", "lower", "statements", "inline", "fuse", "emit", "schedule", "plan", "joint" if training else "functionalize"} <= seen


@pytest.mark.parametrize("name", ["mlp", "bert", "gpt2"])
def test_so_is_that_of_sizes_that_are_no_numbers(name, tmp_path):
    model, args, kwargs = MODELS[name]()
    seen = set()
    with torch.no_grad():
        _compiled(model, args, kwargs, tmp_path, seen, dynamic=True)
    assert {"functionalize", "lower", "fuse", "schedule", "plan"} <= seen
