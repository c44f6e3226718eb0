"""Fine-tunes a small classifier with transformers' Trainer, which compiles it."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments, set_seed


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(4, 60, (count, 12), generator=generator)
        self.labels = (self.tokens.sum(1) % 2).tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict:
        return {"input_ids": self.tokens[index], "attention_mask": torch.ones(12, dtype=torch.long), "labels": self.labels[index]}


set_seed(0)
config = BertConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        torch_compile=True,
        max_steps=6,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        learning_rate=1e-3,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Sentences(24), eval_dataset=Sentences(8))
    trainer.remove_callback(PrinterCallback)  # it prints times
    trainer.train()
    for entry in trainer.state.log_history:
        print({name: entry[name] for name in ("step", "loss", "grad_norm", "learning_rate") if name in entry})
    print("evaluated", trainer.evaluate()["eval_loss"])
    print("predicted", trainer.predict(Sentences(8)).predictions.tolist())
