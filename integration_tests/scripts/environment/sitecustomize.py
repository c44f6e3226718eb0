"""The environment that the scripts find. The wheel of torchvision is built for GPUs; beside a torch for CPUs it imports once the operators
are defined that its own library would define. With ``PLAINLY`` set nothing is compiled."""

import os

import torch

library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
if os.environ.get("PLAINLY"):
    torch.compile = lambda model=None, **arguments: model if model is not None else lambda function: function
