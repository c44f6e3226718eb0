"""Metrics of torchmetrics inside a compiled evaluation step."""

import torch
import torchmetrics

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).eval()
metrics = torchmetrics.MetricCollection(
    {
        "accuracy": torchmetrics.Accuracy(task="multiclass", num_classes=4),
        "f1": torchmetrics.F1Score(task="multiclass", num_classes=4, average="macro"),
        "confusion": torchmetrics.ConfusionMatrix(task="multiclass", num_classes=4),
    }
)
errors = torchmetrics.MeanSquaredError()


@torch.compile
def evaluate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = model(x)
    metrics.update(logits, y)
    errors.update(logits.softmax(1), torch.nn.functional.one_hot(y, 4).float())
    return torch.nn.functional.cross_entropy(logits, y)


with torch.no_grad():
    for size in (8, 8, 8, 5):
        x = torch.randn(size, 6)
        print("loss", evaluate(x, x[:, :4].argmax(1)).item())
for name, value in metrics.compute().items():
    print(name, value.tolist())
print("squared error", errors.compute().item())
