"""NumPy in compiled functions: batches of several lengths, running statistics, standardised data for a model of torch."""

import numpy as np
import torch

torch.manual_seed(0)
random = np.random.RandomState(0)


class Running:
    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean = np.zeros(width)
        self.spread = np.zeros(width)

    def update(self, batch: np.ndarray) -> None:
        total = self.count + len(batch)
        off = batch.mean(axis=0) - self.mean
        self.spread = self.spread + ((batch - batch.mean(axis=0)) ** 2).sum(axis=0) + off**2 * self.count * len(batch) / total
        self.mean = self.mean + off * len(batch) / total
        self.count = total


statistics = Running(3)
model = torch.nn.Linear(3, 2)
update = torch.compile(statistics.update)


@torch.compile
def predicted(batch: np.ndarray) -> np.ndarray:
    scaled = (batch - statistics.mean) / np.sqrt(statistics.spread / statistics.count)
    return model(torch.from_numpy(scaled).float()).detach().numpy().round(3)


for length in (4, 7, 9, 5):
    batch = random.randn(length, 3) * 2 + 1
    update(batch)
    print(length, statistics.count, statistics.mean.tolist(), statistics.spread.tolist())
    print(predicted(batch).sum(axis=0).tolist())
