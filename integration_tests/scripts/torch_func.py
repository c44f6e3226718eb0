"""torch.func over modules: an ensemble, gradients of each sample, Jacobians, a step of meta-learning."""

import torch
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

torch.manual_seed(0)
models = [torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)) for _ in range(3)]
model = models[0]
weights = {name: p.detach() for name, p in model.named_parameters()}
stacked, buffers = stack_module_state(models)
x, y = torch.randn(5, 4), torch.randn(5, 2)


def loss_of(weights: dict, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(functional_call(model, weights, (x,)), y)


@torch.compile
def ensemble(stacked: dict, buffers: dict, x: torch.Tensor) -> torch.Tensor:
    return vmap(lambda w, b: functional_call(model, (w, b), (x,)))(stacked, buffers).mean(0)


@torch.compile
def adapted(weights: dict, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    first = grad(loss_of)(weights, x, y)
    return loss_of({name: weights[name] - 0.1 * first[name] for name in weights}, x, y)


each = torch.compile(vmap(grad(loss_of), in_dims=(None, 0, 0)))
jacobian = torch.compile(jacrev(lambda x: functional_call(model, weights, (x,))))

print("ensemble", ensemble(stacked, buffers, x).tolist())
print("of each sample", {name: g.flatten(1).norm(dim=1).tolist() for name, g in each(weights, x, y).items()})
print("jacobian", jacobian(x[0]).tolist())
print("adapted", adapted(weights, x, y).item())
print("its gradient", {name: g.sum().item() for name, g in grad(adapted)(weights, x, y).items()})
