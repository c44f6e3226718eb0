"""Modules, with inputs, that several tests train."""

import torch

F = torch.nn.functional


class Of(torch.nn.Module):
    """``fn(self, *inputs)`` with parameters ``w`` (4, 4), ``b`` (4,)."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn
        self.w = torch.nn.Parameter(torch.randn(4, 4))
        self.b = torch.nn.Parameter(torch.randn(4))
        self.register_buffer("s", torch.ones(4))

    def forward(self, x):
        return self.fn(self, x)


class Of2(Of):
    def forward(self, x, y):
        return self.fn(self, x, y)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(10, 4)
        self.out = torch.nn.Linear(4, 10, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, ids):
        return self.out(torch.tanh(self.emb(ids)))


def conv_net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3, padding=1),
        torch.nn.BatchNorm2d(6),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(96, 5),
    )


def mixed(m, x):
    a, b = F.gelu(x @ m.w + m.b).chunk(2, -1)
    return F.softmax(a * torch.sigmoid(b), -1).unsqueeze(0) + F.layer_norm(x, (4,), m.b, None)[..., :2]


class Recurrent(torch.nn.Module):
    """Two layers in both directions; torch runs them by oneDNN while it may."""

    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True)
        self.out = torch.nn.Linear(10, 3)

    def forward(self, x):
        found, (h, c) = self.rnn(torch.tanh(x))
        return self.out(found), h * c.detach()


X = torch.linspace(-2, 2, 12).reshape(3, 4)
XG = X.clone().requires_grad_()
IDS = torch.tensor([[1, 2, 2], [0, 9, 1]])
CASES = {
    "linear": (lambda: torch.nn.Linear(4, 4), XG),
    "mlp": (lambda: torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)), XG),
    "parameters only": (lambda: torch.nn.Linear(4, 4), X),
    "conv and batch norm": (conv_net, torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()),
    "dropout": (lambda: torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Dropout(0.3), torch.nn.Tanh()), XG),
    "tied": (Tied, IDS),
    "unused parameter": (lambda: Of(lambda m, x: x * m.b), XG),
    "parameter used for nothing": (lambda: Of(lambda m, x: (x * m.b, m.w.exp().sum())[0]), XG),
    "unused input": (lambda: Of2(lambda m, x, y: x * m.b), XG, XG.detach().clone().requires_grad_()),
    "integer input": (lambda: Of2(lambda m, x, y: (x * m.b) * y), XG, torch.arange(12).reshape(3, 4)),
    "integer output": (lambda: Of(lambda m, x: ((x * m.b).exp(), x.argmax(1), x > 0)), XG),
    "detached output": (lambda: Of(lambda m, x: (x * m.b, (x.exp() * 2).detach())), XG),
    "same output twice": (lambda: Of(lambda m, x: [o for t in [(x * m.b).sin()] for o in (t, t)]), XG),
    "loss inside": (lambda: Of2(lambda m, x, y: F.cross_entropy(x @ m.w, y)), XG, torch.tensor([1, 0, 3])),
    "mse inside": (lambda: Of2(lambda m, x, y: F.mse_loss(x @ m.w, y)), XG, torch.ones(3, 4)),
    "view of a computed value": (lambda: Of(lambda m, x: (x * m.b).exp().t()), XG),
    "expanded output": (lambda: Of(lambda m, x: (x * m.b)[:1].expand(3, 4)), XG),
    "overlapping output": (lambda: Of(lambda m, x: (x * m.b).flatten().unfold(0, 4, 2)), XG),
    "mixed": (lambda: Of(mixed), XG),
    "reductions": (lambda: Of(lambda m, x: x.std(0) + x.mean(0) * m.b.prod() + torch.logsumexp(x @ m.w, 0) + x.amax(0)), XG),
    "indexing": (lambda: Of(lambda m, x: torch.cat([x[1:, ::2], x[0][None, :2] * m.w[:1, 1:3]]) + x.flip(0)[:, 1:3]), XG),
    "written inside": (lambda: Of(lambda m, x: (x * m.b).mul_(2).add_(m.w[0])), XG),
    "buffer written": (lambda: Of(lambda m, x: (x * m.b) + m.s.mul_(0.5).sum() * 0), XG),
    "bfloat16": (lambda: torch.nn.Linear(4, 4).to(torch.bfloat16), X.bfloat16().requires_grad_()),
    "real parts": (lambda: Of(lambda m, x: torch.fft.hfft(x * m.b).abs() + torch.fft.rfft(x, n=10).real), XG),
    "complex numbers made and taken apart": (lambda: Of(lambda m, x: torch.view_as_real(torch.complex(x, x * m.b) * (1 + 2j))), XG),
    "scalar": (lambda: Of(lambda m, x: x.sum() * m.b[0]), XG),
    "recurrent": (Recurrent, torch.linspace(-2, 2, 24).reshape(2, 3, 4).requires_grad_()),
    "empty": (lambda: Of(lambda m, x: x * m.b), torch.zeros(0, 4, requires_grad=True)),
    "non-contiguous input": (lambda: Of(lambda m, x: F.silu(x @ m.w)), torch.randn(4, 3).t().requires_grad_()),
    "expanded input": (lambda: Of(lambda m, x: F.silu(x @ m.w)), torch.ones(1, 4).expand(3, 4)),
}
