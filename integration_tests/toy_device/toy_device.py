"""A device that no package here knows of: its plug-in, and a generator of kernels for it. Both join by their entry points alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import toy_backend

from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.ir import LoopKernel
from opmill_runtime_cache.devices.cpu import load_library
from opmill_runtime_cache.devices.protocol import Device, HostKernel
from opmill_runtime_cache.plan.model import KernelRef
from opmill_runtime_cache.store import Store
from toy_generator import ToyGenerator


class ToyDevice(Device):
    """``loaded`` lists the kernels that this process made ready."""

    type = toy_backend.NAME
    number = toy_backend.NUMBER
    loaded: list[str] = []

    def __init__(self) -> None:
        self.kinds = {"toy-device": self._load}

    def _load(self, ref: KernelRef, store: Store) -> HostKernel:
        ToyDevice.loaded.append(ref.key)
        return load_library(ref, store, self.number)


class ToyDeviceGenerator:
    """Pointwise kernels for the device, of the toy generator's C."""

    name = "toy device"

    def available(self) -> str | None:
        return ToyGenerator().available()

    def claims(self, kernel: LoopKernel, options: GeneratorOptions) -> str | None:
        if options.device.partition(":")[0] != toy_backend.NAME:
            return "for the toy device only"
        return ToyGenerator().claims(kernel, replace(options, device="cpu"))

    def build(self, kernels: Sequence[LoopKernel], options: GeneratorOptions, store: Store) -> list[KernelRef]:
        refs = ToyGenerator().build(kernels, replace(options, device="cpu"), store)
        return [msgspec.structs.replace(ref, kind="toy-device") for ref in refs]
