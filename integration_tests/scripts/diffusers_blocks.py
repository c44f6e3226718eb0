"""A diffusion transformer of diffusers, whose repeated blocks are compiled, and a few steps of a scheduler."""

import torch
from diffusers import DDIMScheduler, FluxTransformer2DModel

torch.manual_seed(0)
model = FluxTransformer2DModel(
    patch_size=1,
    in_channels=4,
    num_layers=2,
    num_single_layers=2,
    attention_head_dim=16,
    num_attention_heads=2,
    joint_attention_dim=32,
    pooled_projection_dim=32,
    axes_dims_rope=(4, 4, 8),
).eval()
model.compile_repeated_blocks(fullgraph=True)

scheduler = DDIMScheduler(num_train_timesteps=100)
scheduler.set_timesteps(3)
latents = torch.randn(1, 16, 4)
given = {
    "encoder_hidden_states": torch.randn(1, 6, 32),
    "pooled_projections": torch.randn(1, 32),
    "img_ids": torch.arange(16.0)[:, None].repeat(1, 3),
    "txt_ids": torch.zeros(6, 3),
}
with torch.no_grad():
    for step in scheduler.timesteps:
        predicted = model(latents, timestep=step[None] / 100, return_dict=False, **given)[0]
        latents = scheduler.step(predicted, step, latents).prev_sample
        print(int(step), predicted.mean().item(), latents.std().item())
