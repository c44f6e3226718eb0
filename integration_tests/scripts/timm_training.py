"""Trains a small vision transformer of timm with timm's optimizer, scheduler and moving average of the weights."""

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3, random_seed

random_seed(0)
model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=5)
average = ModelEmaV3(model, decay=0.9)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
scheduler = CosineLRScheduler(optimizer, t_initial=4, warmup_t=1, warmup_lr_init=1e-4)
mix = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=5)
loss_of = SoftTargetCrossEntropy()
compiled = torch.compile(model)

for epoch in range(3):
    images, targets = mix(torch.randn(4, 3, 32, 32), torch.randint(0, 5, (4,)))
    loss = loss_of(compiled(images), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update(model)
    scheduler.step(epoch + 1)
    print(epoch, "loss", loss.item(), "rate", optimizer.param_groups[0]["lr"])
model.eval()
with torch.no_grad():
    images = torch.randn(2, 3, 32, 32)
    print("model", compiled(images).tolist())
    print("average", average.module.eval()(images).tolist())
