"""Lightning trains and validates a compiled module."""

import logging
import warnings

import lightning
import torch

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)

    def training_step(self, batch: list, index: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: list, index: int) -> None:
        self.log("right", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


lightning.seed_everything(0)
inputs = torch.randn(24, 8)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, inputs.argmax(1) % 3), batch_size=8)
model = torch.compile(Classifier())
trainer = lightning.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)
trainer.fit(model, data, data)
print({name: value.item() for name, value in sorted(trainer.callback_metrics.items())})
print({name: value.double().sum().item() for name, value in model.state_dict().items()})
