"""A training loop with accelerate, which compiles the model when it prepares it."""

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin, set_seed

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, dynamo_plugin=TorchDynamoPlugin(backend="inductor"))
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
inputs = torch.randn(32, 8)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, inputs.argmax(1) % 3), batch_size=4)
model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)

for x, y in data:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            print("norm", norm.item(), "rate", scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    print("loss", accelerator.gather(loss.detach()).mean().item())
print(sorted(name for name in accelerator.unwrap_model(model).state_dict()))
