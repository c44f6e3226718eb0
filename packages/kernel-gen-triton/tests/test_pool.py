"""The processes that compile: one that is gone is replaced once."""

import pytest

from opmill_graph_ir.errors import KernelBuildError
from opmill_kernel_gen_triton import pool as module


class Process:
    """Stands for a compiler process that ends when it is asked."""

    def kill(self):
        pass

    def poll(self):
        return 1


@pytest.mark.parametrize("failures", [1, 2])
def test_a_process_that_ends_is_replaced_once(monkeypatch, failures):
    asked, ended = [], []

    def ask(process, job):
        asked.append(process)
        if len(asked) <= failures:
            raise OSError("exit status -9")
        return module.Compiled(b"cubin", {})

    monkeypatch.setattr(module, "_ask", ask)
    monkeypatch.setattr(module, "_end", ended.append)
    pool = module.Pool(1)

    def take():
        pool._all.append(Process())
        return pool._all[-1]

    monkeypatch.setattr(pool, "_take", take)
    if failures == 1:
        assert pool.compile_all([{"name": "k"}])[0].cubin == b"cubin"
    else:
        with pytest.raises(KernelBuildError, match=r"KT002[\s\S]*exit status -9"):
            pool.compile_all([{"name": "k"}])
    assert len(asked) == 2 and ended == asked[:failures]
    pool._all.clear()
