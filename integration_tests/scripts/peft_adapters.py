"""A language model with adapters of peft: trained, switched, merged; compiled once."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
base = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
)
model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
model.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
compiled = torch.compile(model)
tokens = torch.randint(0, 64, (2, 10))

optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
for _ in range(4):
    loss = compiled(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
model.eval()
with torch.no_grad():
    for name in ("other", "default"):
        model.set_adapter(name)
        print(name, compiled(input_ids=tokens).logits.double().std().item())
    with model.disable_adapter():
        print("none", compiled(input_ids=tokens).logits.double().std().item())
    merged = torch.compile(model.merge_and_unload())
    print("merged", merged(input_ids=tokens).logits.double().std().item())
