"""Small real models captured whole, without gradients: right against a float64 run, and never stale."""

import pytest
import torch

import opmill
import zoo
from measure import distance, in_double, not_compiled, tensors_of

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 200}
MODELS = {
    "mlp": zoo.mlp,
    "bert": zoo.text_model("BertModel", "BertConfig", 2, 16, **SMALL),
    "gpt2": zoo.text_model("GPT2LMHeadModel", "GPT2Config", 2, 16, n_embd=64, n_layer=2, n_head=4, vocab_size=200),
    "llama": zoo.text_model("LlamaForCausalLM", "LlamaConfig", 2, 16, num_key_value_heads=2, **SMALL),
    "t5": zoo.text_model(
        "T5ForConditionalGeneration", "T5Config", 2, 16, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=200
    ),
    "distilbert": zoo.text_model(
        "DistilBertModel", "DistilBertConfig", 1, 16, dim=64, hidden_dim=128, n_layers=2, n_heads=4, vocab_size=200
    ),
    "qwen2": zoo.text_model("Qwen2ForCausalLM", "Qwen2Config", 1, 16, num_key_value_heads=2, **SMALL),
    "resnet18": zoo.vision_model("resnet18"),
    "mobilenet_v3": zoo.vision_model("mobilenet_v3_small"),
    "squeezenet": zoo.vision_model("squeezenet1_1"),
    "vit_tiny": zoo.timm_model("vit_tiny_patch16_224"),
    "convnext_atto": zoo.timm_model("convnext_atto"),
}


@pytest.mark.parametrize("name", MODELS)
def test_captured_whole_and_right(name):
    model, args, kwargs = MODELS[name]()
    compiled = opmill.compile(model, fullgraph=True)
    with torch.no_grad():
        expected = model(*args, **kwargs)
        first, second = compiled(*args, **kwargs), compiled(*args, **kwargs)
        exact = tensors_of(in_double(model)(*in_double(args), **in_double(kwargs)))
    assert type(first) is type(expected) and not_compiled(compiled) == []
    bound = 3 * max(distance(tensors_of(expected), exact), 1e-7)
    for found in (first, second):
        assert [tensor.dtype for tensor in tensors_of(found)] == [tensor.dtype for tensor in tensors_of(expected)]
        assert distance(tensors_of(found), exact) <= bound


def test_weights_changed_in_place_or_replaced_are_seen():
    model, args, _ = MODELS["mlp"]()
    compiled = opmill.compile(model, fullgraph=True)
    with torch.no_grad():
        before = compiled(*args).clone()
        model[0].weight.mul_(2)
        assert torch.allclose(compiled(*args), model(*args), atol=1e-6) and not torch.allclose(compiled(*args), before)
        model[3].bias.data = torch.ones(8)
        assert torch.allclose(compiled(*args), model(*args), atol=1e-6)
        model[0] = torch.nn.Linear(64, 64)
        assert torch.allclose(compiled(*args), model(*args), atol=1e-6)


def test_results_of_earlier_calls_are_not_overwritten():
    model, (x,), _ = MODELS["mlp"]()
    compiled = opmill.compile(model)
    with torch.no_grad():
        kept = [(compiled(x * k), model(x * k)) for k in range(5)]
    assert all(torch.allclose(found, expected, atol=1e-5) for found, expected in kept)


def test_other_sizes_and_dtypes():
    model, (x,), _ = MODELS["mlp"]()
    compiled = opmill.compile(model)
    with torch.no_grad():
        for rows in (8, 1, 3, 17):
            assert torch.allclose(compiled(x[:1].expand(rows, 64)), model(x[:1].expand(rows, 64)), atol=1e-6)
        compiled.double()
        assert torch.allclose(compiled(x.double()), model(x.double()), atol=1e-12)


def test_gradients_are_eagers_even_where_they_are_not_compiled():
    model, (x,), _ = MODELS["mlp"]()
    compiled = opmill.compile(model)
    compiled(x).sum().backward()
    ours = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    assert all(torch.allclose(one, parameter.grad, atol=1e-5) for one, parameter in zip(ours, model.parameters()))


def test_generation_through_the_compiled_model():
    model, _, kwargs = MODELS["gpt2"]()
    compiled = opmill.compile(model)
    arguments = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad():
        expected = model.generate(kwargs["input_ids"][:1, :5], **arguments)
        assert torch.equal(compiled.generate(kwargs["input_ids"][:1, :5], **arguments), expected)
