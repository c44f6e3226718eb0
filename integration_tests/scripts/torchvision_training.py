"""Transforms, a convolutional network and post-processing of boxes of torchvision."""

import torch
import torchvision
from torchvision.ops import box_convert, box_iou, sigmoid_focal_loss
from torchvision.transforms import v2

torch.manual_seed(0)
prepare = v2.Compose(
    [v2.Resize((32, 32), antialias=True), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean=[0.5, 0.4, 0.3], std=[0.2, 0.2, 0.3])]
)
images = torch.stack([prepare(torch.randint(0, 256, (3, 40, 48), dtype=torch.uint8)) for _ in range(4)])
labels = torch.tensor([0, 1, 2, 1])

model = torchvision.models.squeezenet1_1(num_classes=3, dropout=0.0)
model.compile()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
for _ in range(3):
    logits = model(images)
    loss = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=0.1)
    loss += sigmoid_focal_loss(logits, torch.nn.functional.one_hot(labels, 3).float(), reduction="mean")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())


@torch.compile(dynamic=True)
def matched(boxes: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    overlaps = box_iou(box_convert(boxes, "cxcywh", "xyxy"), box_convert(others, "cxcywh", "xyxy"))
    return overlaps.max(dim=1)


for count in (3, 5, 8):
    best, which = matched(torch.rand(count, 4) + 0.5, torch.rand(4, 4) + 0.5)
    print(count, best.tolist(), which.tolist())
