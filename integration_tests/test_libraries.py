"""Programs that use what others wrote: validated records, annotated arrays, models that keep notes at their first call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import opmill
from zoo import allow_torchvision


def told(program: Any, *args: Any, calls: int = 4) -> Any:
    """What several calls of the compiled program came to, each compared with the plain one."""
    explained = opmill.explain(opmill.compile(program, backend="eager"))
    for _ in range(calls):
        torch.manual_seed(0)
        want = program(*args), torch.get_rng_state()
        torch.manual_seed(0)
        told = explained(*args)
        torch.testing.assert_close((told.result, torch.get_rng_state()), want)
    return told


def test_a_block_that_draws_for_itself_leaves_the_generator_as_it_was():
    def program(x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            y = torch.rand(3)
        return x * 2 + y + torch.rand(3)

    found = told(program, torch.ones(3))
    assert found.graphs and not found.reasons


def test_records_of_pydantic_that_are_copied_and_made():
    pydantic = pytest.importorskip("pydantic")

    class Settings(pydantic.BaseModel):
        scale: int = 1
        shift: float = 2.0

    settings = Settings()

    def copied(x):
        other = settings.model_copy(update={"scale": 3})
        return x * other.scale + other.shift

    def made(x):
        other = Settings(scale=3)
        return x * other.scale + other.shift

    for program in (copied, made):
        found = told(program, torch.ones(3))
        assert len(found.graphs) == 1 and len(found.breaks) <= 1 and not found.reasons


def test_annotations_of_jaxtyping_cost_no_capture_at_each_call():
    jaxtyping = pytest.importorskip("jaxtyping")
    floats = jaxtyping.Float[torch.Tensor, "rows columns"]

    @jaxtyping.jaxtyped(typechecker=None)
    def doubled(x: floats) -> floats:
        return x * 2

    def annotated(x):
        return doubled(x) + 1

    found = told(annotated, torch.ones(3, 4), calls=12)
    assert len(found.graphs) == 1 and not found.breaks and not found.reasons


def test_the_first_call_of_a_model_that_is_asked_for_hidden_states():
    allow_torchvision()
    transformers = pytest.importorskip("transformers")
    BertConfig, BertModel = transformers.BertConfig, transformers.BertModel
    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100)
    model = BertModel(config).eval()
    ids = torch.arange(6)[None]
    with torch.no_grad():
        first = opmill.explain(lambda ids: model(ids, output_hidden_states=True).hidden_states)(ids)
        assert len(first.breaks) <= 5
        found = told(lambda ids: model(ids, output_hidden_states=True).hidden_states, ids)
    assert len(found.graphs) == 1 and not found.breaks and not found.reasons


#: Of torch.compile (torch 2.13) each has so many: LoHa 2, LoKr, VBLoRA and Shira 3.
ADAPTERS = {
    "LoHaConfig": (2, {"r": 2, "module_dropout": 0.1}),
    "LoKrConfig": (3, {"r": 2, "module_dropout": 0.1}),
    "VBLoRAConfig": (3, {"r": 2, "num_vectors": 8, "vector_length": 4, "topk": 2}),
    "ShiraConfig": (3, {"r": 2}),
}


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.filterwarnings("ignore")
def test_adapters_that_ask_data_end_few_graphs(kind):
    allow_torchvision()
    peft = pytest.importorskip("peft")
    most, settings = ADAPTERS[kind]
    torch.manual_seed(0)
    base = torch.nn.Sequential()
    for name, layer in (("one", torch.nn.Linear(8, 8)), ("act", torch.nn.ReLU()), ("two", torch.nn.Linear(8, 8))):
        base.add_module(name, layer)
    model = peft.get_peft_model(base, getattr(peft, kind)(target_modules=["one", "two"], **settings)).train()

    def step(x):
        return model(x * 2) + 1

    breaks = []
    compiled = opmill.explain(opmill.compile(step, backend="eager"))
    for turn in range(4):
        x = torch.randn(2, 8)
        torch.manual_seed(turn)
        want = step(x), torch.get_rng_state()
        torch.manual_seed(turn)
        found = compiled(x)
        torch.testing.assert_close((found.result, torch.get_rng_state()), want)
        breaks = breaks or [str(each) for each in found.breaks]
    assert len(breaks) <= most, breaks
