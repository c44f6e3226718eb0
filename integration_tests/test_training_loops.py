"""Training as users write it: each loop leaves the same weights, gradients and state in eager and compiled."""

import copy
import io
import warnings

import pytest
import torch
from torch import nn

import opmill

F = nn.functional
O = torch.optim
LOOPS = {}


def loop(make, loose=1e-4):
    """Adds ``run(call, module, data)`` to the table: ``call`` is the module, compiled or not; it returns what else is compared."""

    def add(run):
        LOOPS[run.__name__] = make, run, loose
        return run

    return add


class Block(nn.Module):
    """A little of everything that training models have: convolution, batch norm, attention-like products, dropout off."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm1d(8)
        self.inner = nn.Linear(8, 16)
        self.ln = nn.LayerNorm(16)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        h = F.gelu(self.norm(self.conv(x))).transpose(1, 2)
        h = self.ln(torch.tanh(self.inner(h)))
        scores = torch.softmax(h @ h.transpose(1, 2) / 4, -1)
        return self.out((scores @ h).mean(1))


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))


def data(make, count=4):
    g = torch.Generator().manual_seed(5)
    shape = (6, 4, 10) if make is Block else (6, 6)
    return [(torch.randn(shape, generator=g), torch.randint(0, 3, (6,), generator=g)) for _ in range(count)]


def state_of(module):
    return [*module.state_dict().values(), *(p.grad for p in module.parameters())]


def compare(make, run, loose):
    torch.manual_seed(0)
    eager = make()
    ours = copy.deepcopy(eager)
    results = []
    for module, call in ((eager, eager), (ours, opmill.compile(ours))):
        torch.manual_seed(1)
        found = run(call, module, data(make)) or []
        results.append([*found, *state_of(module)])
    assert len(results[0]) == len(results[1])
    for want, got in zip(*results, strict=True):
        if not isinstance(want, torch.Tensor):
            assert want == got
            continue
        assert isinstance(got, torch.Tensor) and want.dtype == got.dtype and want.requires_grad == got.requires_grad
        torch.testing.assert_close(got, want, rtol=loose, atol=loose / 10, equal_nan=True)


def step(call, x, y, optimizer=None, **zero):
    loss = F.cross_entropy(call(x), y)
    loss.backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad(**zero)
    return loss.detach()


@loop(Block)
def zero_to_none(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.1, momentum=0.9)
    return [step(call, x, y, optimizer, set_to_none=True) for x, y in batches]


@loop(Block)
def zero_in_place(call, module, batches):
    """Gradients stay where they are, and views of them show what comes later."""
    optimizer = O.SGD(module.parameters(), 0.1)
    step(call, *batches[0])
    kept = [p.grad for p in module.parameters()]
    optimizer.zero_grad(set_to_none=False)
    losses = [step(call, x, y) for x, y in batches[1:]]
    assert all(p.grad is g for p, g in zip(module.parameters(), kept, strict=True))
    return losses


@loop(mlp)
def accumulated_over_batches(call, module, batches):
    optimizer = O.AdamW(module.parameters(), 0.05)
    for k, (x, y) in enumerate(batches):
        (F.cross_entropy(call(x), y) / 2).backward()
        if k % 2:
            optimizer.step()
            optimizer.zero_grad()


@loop(mlp)
def gradients_given_before(call, module, batches):
    """Gradients that are one flat memory, as some frameworks lay them, are added to and not replaced."""
    flat = torch.zeros(sum(p.numel() for p in module.parameters()))
    at = 0
    for p in module.parameters():
        p.grad = flat[at : at + p.numel()].view_as(p)
        at += p.numel()
    for x, y in batches:
        step(call, x, y)
    return [flat]


@loop(mlp)
def gradients_kept_are_not_written(call, module, batches):
    """What one backward gave stays when the next one runs."""
    kept = []
    for x, y in batches:
        step(call, x, y)
        kept += [p.grad for p in module.parameters()]
        module.zero_grad()
    return kept


@loop(Block)
def clipped(call, module, batches):
    optimizer = O.Adam(module.parameters(), 0.05)
    norms = []
    for x, y in batches:
        step(call, x, y)
        norms.append(nn.utils.clip_grad_norm_(module.parameters(), 0.3))
        nn.utils.clip_grad_value_(module.parameters(), 0.05)
        optimizer.step()
        optimizer.zero_grad()
    return norms


@loop(Block)
def scheduled(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.5, momentum=0.9)
    plans = [
        O.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=20),
        O.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2),
        O.lr_scheduler.LambdaLR(optimizer, lambda k: 0.9**k),
    ]
    for x, y in batches:
        step(call, x, y, optimizer)
        for plan in plans:
            plan.step()


@loop(Block)
def groups_of_parameters(call, module, batches):
    biases = [p for n, p in module.named_parameters() if n.endswith("bias")]
    others = [p for n, p in module.named_parameters() if not n.endswith("bias")]
    optimizer = O.AdamW([{"params": biases, "weight_decay": 0.0}, {"params": others, "lr": 0.01}], 0.1)
    for x, y in batches:
        step(call, x, y, optimizer)


@loop(Block)
def frozen_then_thawed(call, module, batches):
    for k, (x, y) in enumerate(batches):
        module.conv.requires_grad_(k % 2 == 1)
        module.norm.requires_grad_(k >= 2)
        optimizer = O.SGD([p for p in module.parameters() if p.requires_grad], 0.1)
        step(call, x, y, optimizer)


@loop(Block)
def training_and_evaluation_in_turns(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.1)
    seen = []
    for x, y in batches:
        step(call, x, y, optimizer)
        module.eval()
        with torch.no_grad():
            seen.append(call(x))
        with torch.inference_mode():
            seen.append(call(x).clone())
        module.train()
    return seen


@loop(mlp)
def losses_of_two_calls(call, module, batches):
    """Siamese: one module, two inputs, one loss; the second through a detached result."""
    for (a, _), (b, _) in zip(batches, batches[1:], strict=False):
        first, second = call(a), call(b)
        (F.mse_loss(first, second.detach()) + first.mul(second).mean()).backward()


@loop(mlp)
def some_gradients_only(call, module, batches):
    x, y = batches[0]
    x.requires_grad_()
    out = call(x)
    first, last = list(module.parameters())[0], list(module.parameters())[-1]
    loss = F.cross_entropy(out, y)
    parts = [torch.autograd.grad(loss, [first], retain_graph=True), torch.autograd.grad(loss, [x, last], retain_graph=True)]
    parts.append(torch.autograd.grad(out[0, 0], [last, first]))
    return [g for part in parts for g in part]


@loop(mlp)
def inputs_of_backward(call, module, batches):
    for x, y in batches:
        F.cross_entropy(call(x), y).backward(inputs=list(module.parameters())[:2])


@loop(mlp)
def hooks_of_parameters_and_tensors(call, module, batches):
    seen = []
    for n, p in module.named_parameters():
        p.register_hook(lambda g, n=n: g * (1 + len(n) % 3))
        p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.norm()))
    for x, y in batches:
        out = call(x)
        out.register_hook(lambda g: g.clamp(-0.1, 0.1))
        out.retain_grad()
        F.cross_entropy(out, y).backward()
        seen.append(out.grad)
    return [torch.stack([s for s in seen if s.dim() == 0]).sort().values, *(s for s in seen if s.dim())]


@loop(mlp)
def hooks_of_modules(call, module, batches):
    seen = []
    module[0].register_forward_hook(lambda m, i, o: o * 2)
    module[1].register_forward_pre_hook(lambda m, i: (i[0] + 1,))
    module[3].register_full_backward_hook(lambda m, gi, go: seen.append(go[0].sum()) or (gi[0] * 0.5,))
    module[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    for x, y in batches:
        step(call, x, y)
    return seen


@loop(mlp)
def optimizer_in_the_backward(call, module, batches):
    """Each parameter moves as soon as its gradient is there."""
    optimizers = {p: O.SGD([p], 0.1) for p in module.parameters()}

    def move(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in module.parameters():
        p.register_post_accumulate_grad_hook(move)
    return [step(call, x, y) for x, y in batches]


@loop(Block)
def averaged(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.1)
    mean = O.swa_utils.AveragedModel(module, use_buffers=True)
    moving = O.swa_utils.AveragedModel(module, multi_avg_fn=O.swa_utils.get_ema_multi_avg_fn(0.9))
    plan = O.swa_utils.SWALR(optimizer, 0.05)
    for x, y in batches:
        step(call, x, y, optimizer)
        mean.update_parameters(module)
        moving.update_parameters(module)
        plan.step()
    O.swa_utils.update_bn([x for x, _ in batches], mean)
    return [*mean.state_dict().values(), *moving.state_dict().values()]


@loop(mlp)
def average_by_hand(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.1)
    slow = copy.deepcopy(module).requires_grad_(False)
    for x, y in batches:
        step(call, x, y, optimizer)
        with torch.no_grad():
            for a, b in zip(slow.parameters(), module.parameters(), strict=True):
                a.lerp_(b, 0.1)
    return list(slow.parameters())


@loop(mlp)
def quasi_newton(call, module, batches):
    x, y = batches[0]
    optimizer = O.LBFGS(module.parameters(), lr=0.1, max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(call(x), y)
        loss.backward()
        return loss

    return [optimizer.step(closure).detach() for _ in range(2)]


@loop(mlp)
def sharpness_aware(call, module, batches):
    """Climbs, takes the gradient there, climbs down, steps."""
    optimizer = O.SGD(module.parameters(), 0.1)
    for x, y in batches:
        step(call, x, y)
        moves = [p.grad * 0.05 for p in module.parameters()]
        with torch.no_grad():
            for p, m in zip(module.parameters(), moves, strict=True):
                p.add_(m)
        optimizer.zero_grad()
        step(call, x, y)
        with torch.no_grad():
            for p, m in zip(module.parameters(), moves, strict=True):
                p.sub_(m)
        optimizer.step()
        optimizer.zero_grad()


@loop(Block, loose=2e-2)
def mixed_precision(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.1)
    for x, y in batches[:2]:
        with torch.autocast("cpu", torch.bfloat16):
            out = call(x)
            loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@loop(mlp)
def scaled_losses(call, module, batches):
    optimizer, scaler = O.SGD(module.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
    for k, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        loss = F.cross_entropy(call(x), y) * (float("inf") if k == 1 else 1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return [scaler.get_scale()]


def spectral():
    return nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(6, 16)), nn.Tanh(), nn.utils.parametrizations.weight_norm(nn.Linear(16, 3))
    )


@loop(spectral)
def parametrised(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.1)
    return [step(call, x, y, optimizer) for x, y in batches]


def orthogonal():
    return nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 3))


@loop(orthogonal)
def on_a_manifold(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.1)
    return [step(call, x, y, optimizer) for x, y in batches]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))


@loop(Tied)
def shared_weights(call, module, batches):
    optimizer = O.Adam(module.parameters(), 0.05)
    return [step(call, x, y, optimizer) for x, y in batches]


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 3)

    def inside(self, x):
        return self.drop(F.gelu(self.first(x)))

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return self.last(checkpoint(self.inside, x, use_reentrant=False))


@loop(Checkpointed)
def checkpointed_with_dropout(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.1)
    return [step(call, x, y, optimizer) for x, y in batches]


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() < 2, g * ctx.scale, 0), None


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.last(Straight.apply(self.first(x) * 3, 0.5))


@loop(Quantised)
def own_gradient_formula(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.1)
    return [step(call, x, y, optimizer) for x, y in batches]


class Auxiliary(nn.Module):
    """Several results: differentiable, not differentiable, unused, a dict with None."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.unused, self.side = nn.Linear(6, 16), nn.Linear(16, 3), nn.Linear(2, 2), nn.Linear(16, 2)

    def forward(self, x):
        h = torch.relu(self.first(x))
        with torch.no_grad():
            scale = h.abs().mean()
        return {
            "out": self.last(h) / (scale + 1),
            "best": h.argmax(1),
            "side": self.side(h),
            "none": None,
            "frozen": h.detach() * 2,
            "scale": scale,
        }


@loop(Auxiliary)
def several_results(call, module, batches):
    optimizer = O.Adam(module.parameters(), 0.05)
    seen = []
    for k, (x, y) in enumerate(batches):
        out = call(x)
        loss = F.cross_entropy(out["out"], y) + (out["side"].pow(2).mean() if k % 2 else 0)
        loss.backward()
        seen += [out["best"], out["frozen"], out["scale"], module.side.weight.grad is None]
        optimizer.step()
        optimizer.zero_grad()
    return seen


@loop(Block)
def from_a_loader(call, module, batches):
    class Set(torch.utils.data.Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, k):
            g = torch.Generator().manual_seed(k)
            return torch.randn(4, 10, generator=g), k % 3

    optimizer = O.SGD(module.parameters(), 0.1)
    loader = torch.utils.data.DataLoader(Set(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
    return [step(call, x, y, optimizer) for _ in range(2) for x, y in loader]  # the last batch of each round is smaller


@loop(Block)
def saved_and_loaded(call, module, batches):
    optimizer = O.Adam(module.parameters(), 0.05)
    step(call, *batches[0], optimizer)
    file = io.BytesIO()
    torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict()}, file)
    step(call, *batches[1], optimizer)
    file.seek(0)
    found = torch.load(file)
    module.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    step(call, *batches[2], optimizer)


@loop(mlp)
def saved_tensors_elsewhere(call, module, batches):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), torch.from_numpy):
        losses = [F.cross_entropy(call(x), y) for x, y in batches]
    sum(losses).backward()


@loop(mlp)
def anomalies(call, module, batches):
    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step(call, *batches[0])
        with pytest.raises(RuntimeError, match="nan"):
            call(batches[1][0]).mul(0).log().mul(0).sum().backward()
    module.zero_grad()


@loop(mlp)
def a_backward_of_a_backward(call, module, batches):
    for x, y in batches:
        x.requires_grad_()
        out = call(x)
        [g] = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        (F.cross_entropy(out, y) + g.norm()).backward()


@loop(Block)
def gradient_penalty_with_batch_norm(call, module, batches):
    for x, y in batches:
        x.requires_grad_()
        out = call(x)
        [g] = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        (F.cross_entropy(out, y) + g.square().sum()).backward()


def droppy():
    return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Tanh(), nn.Linear(16, 3), nn.AlphaDropout(0.1))


@loop(droppy)
def dropout_draws_as_eager_does(call, module, batches):
    optimizer = O.SGD(module.parameters(), 0.1)
    return [*(step(call, x, y, optimizer) for x, y in batches), torch.rand(2)]


@loop(droppy)
def gradient_penalty_with_dropout(call, module, batches):
    for x, y in batches:
        x.requires_grad_()
        out = call(x)
        [g] = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        (F.cross_entropy(out, y) + g.square().sum()).backward()
    return [torch.rand(2)]


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(11, 6), nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 11)

    def forward(self, words, state=None):
        found, state = self.rnn(self.table(words), state)
        return self.out(found), state


@loop(Words)
def sentences_of_any_length(call, module, batches):
    """The state goes from batch to batch without its history."""
    optimizer = O.Adam(module.parameters(), 1e-2)
    losses, state = [], None
    for k, (_, y) in enumerate(batches):
        words = (torch.arange(4 + k)[None] * (y[:, None] + 1)) % 11
        out, state = call(words, state)
        loss = F.cross_entropy(out.flatten(0, 1), words.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = tuple(t.detach() for t in state)
        losses.append(loss.detach())
    return losses


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.LSTMCell(4, 8), nn.GRUCell(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = c = g = x.new_zeros(x.size(0), 8)
        for t in range(x.size(2)):
            h, c = self.first(x[:, :, t], (h, c))
            g = self.second(h, g)
        return self.out(g)


@loop(Cells)
def loop_over_time(call, module, batches):
    """Each step is the same kernel, a row further on."""
    optimizer = O.SGD(module.parameters(), 0.1)
    return [
        step(call, torch.stack([x[:, :4], x[:, 2:]]).repeat(1, 1, 4).permute(1, 2, 0).reshape(6, 4, 8), y, optimizer) for x, y in batches
    ]


class Adversaries(nn.Module):
    def __init__(self):
        super().__init__()
        self.made = nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))
        self.judge = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


@loop(Adversaries)
def two_networks_against_each_other(call, module, batches):
    """One step trains both: what one backward frees is not what the other needs."""
    ours, theirs = (O.Adam(m.parameters(), 1e-2, betas=(0.5, 0.9)) for m in (module.made, module.judge))
    bce = F.binary_cross_entropy_with_logits

    def step(x, noise):
        theirs.zero_grad()
        fake = module.made(noise)
        real, found = module.judge(x), module.judge(fake.detach())
        loss = bce(real, torch.ones_like(real)) + bce(found, torch.zeros_like(found))
        loss.backward()
        theirs.step()
        ours.zero_grad()
        found = module.judge(fake)
        other = bce(found, torch.ones_like(found))
        other.backward()
        ours.step()
        return loss.detach(), other.detach()

    run = step if call is module else opmill.compile(step)
    return [o for x, _ in batches for o in run(x, x.flip(0).sin())]


@loop(mlp)
def descent_by_hand(call, module, batches):
    """Gradients are asked for and parameters written inside of what is compiled; then averages of them are."""
    average = copy.deepcopy(module)
    parameters = list(module.parameters())

    def step(x, y, rate):
        loss = F.cross_entropy(module(x), y)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, g in zip(parameters, gradients, strict=True):
                p -= rate * g
        for a, p in zip(average.parameters(), parameters, strict=True):
            a.data.mul_(0.9).add_(p.data, alpha=0.1)
        return loss

    run = step if call is module else opmill.compile(step, fullgraph=True)
    losses = [run(x, y, torch.tensor(0.1 / (k + 1))) for k, (x, y) in enumerate(batches)]
    return [*(loss.detach() for loss in losses), *average.parameters()]


@pytest.mark.filterwarnings("error:OM011", "error:GI0")
@pytest.mark.parametrize("name", LOOPS)
def test_as_eager(name):
    compare(*LOOPS[name])
