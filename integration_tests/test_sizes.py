"""Small real models called with many sizes: at most two compilations, right each time."""

import itertools

import pytest
import torch

import opmill
import zoo
from measure import distance, in_double, tensors_of
from opmill.explain import explanation_of

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 200}
TEXT = {
    "bert": zoo.text_model("BertModel", "BertConfig", 2, 16, **SMALL),
    "gpt2": zoo.text_model("GPT2LMHeadModel", "GPT2Config", 2, 16, n_embd=64, n_layer=2, n_head=4, vocab_size=200),
    "llama": zoo.text_model("LlamaForCausalLM", "LlamaConfig", 2, 16, num_key_value_heads=2, **SMALL),
    "t5": zoo.text_model(
        "T5ForConditionalGeneration", "T5Config", 2, 16, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=200
    ),
}
IMAGES = {"resnet18": zoo.vision_model("resnet18"), "vit_tiny": zoo.timm_model("vit_tiny_patch16_224")}
BATCHES = (2, 3, 7, 4, 12, 5, 9, 2, 6, 8, 3, 13, 10, 16, 11, 5, 4, 7, 15, 14)
LENGTHS = (16, 9, 33, 17, 8, 40, 5, 24, 31, 7, 2, 12, 19, 3, 26, 48, 16, 11, 6, 21)


def checked(model, compiled, args, kwargs):
    """The compiled outputs, as near to float64 as eager's, in its layout."""
    with torch.no_grad():
        theirs = tensors_of(model(*args, **kwargs))
        ours = tensors_of(compiled(*args, **kwargs))
        exact = tensors_of(in_double(model)(*in_double(args), **in_double(kwargs)))
    assert distance(ours, exact) <= 3 * max(distance(theirs, exact), 1e-7)
    assert [t.stride() for t in ours] == [t.stride() for t in theirs]


def compilations(compiled):
    told = explanation_of(compiled)
    assert not [g.fallback for g in told.graphs if g.fallback] and all(g.report.kernels for g in told.graphs)
    return len(told.graphs)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", TEXT)
def test_twenty_batches_and_lengths(name, dynamic):
    model, args, kwargs = TEXT[name]()
    compiled = opmill.compile(model, fullgraph=True, dynamic=dynamic)
    for batch, length in zip(BATCHES, LENGTHS, strict=True):
        checked(model, compiled, args, {n: torch.randint(3, 199, (batch, length)) for n in kwargs})
    assert compilations(compiled) == (1 if dynamic else 2)


@pytest.mark.parametrize("name", IMAGES)
def test_batches_of_images(name):
    model, (image,), kwargs = IMAGES[name]()
    compiled = opmill.compile(model, fullgraph=True)
    for batch in (2, 3, 6, 4, 9):
        checked(model, compiled, (torch.randn(batch, *image.shape[1:]),), kwargs)
    assert compilations(compiled) == 2


def test_training_at_many_sizes():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    compiled = opmill.compile(model, fullgraph=True, dynamic=True)
    for rows, columns in itertools.product((2, 5, 17), (3, 8)):
        x = torch.randn(rows, columns, 8)
        gradients = []
        for run in (model, compiled):
            model.zero_grad()
            run(x).square().mean().backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        for ours, theirs in zip(*reversed(gradients), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert compilations(compiled) == 1


def test_a_size_outside_of_what_was_assumed_compiles_again():
    def upper(x):
        return x[:4] + 1 if x.shape[0] > 6 else x * 2

    compiled = opmill.compile(upper, dynamic=True)
    for n in (9, 12, 7, 3, 6, 2, 30, 5):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), upper(x))
    assert compilations(compiled) == 2


def test_labels_behind_the_first_that_is_none_do_not_count():
    """torch's Python twin of the operator, which symbolic sizes lead to, counts them."""
    labels = torch.tensor([[1, 2, -1, 0, 0]])
    compiled = opmill.compile(torch.nn.functional.multilabel_margin_loss, dynamic=True)
    for rows in (4, 7):
        mine, theirs = (torch.randn(rows, 5, generator=torch.Generator().manual_seed(rows)).requires_grad_() for _ in range(2))
        got, want = compiled(mine, labels.repeat(rows, 1)), torch.nn.functional.multilabel_margin_loss(theirs, labels.repeat(rows, 1))
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(*(torch.autograd.grad(loss, x)[0] for loss, x in ((got, mine), (want, theirs))))
