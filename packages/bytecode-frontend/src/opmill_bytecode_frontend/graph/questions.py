"""What is said of questions about tensors that nobody can answer while a graph is made."""

from __future__ import annotations

UNKNOWN = "a graph is made from what results look like, before anything has run"


def is_the_programs(op: str) -> bool:
    """Whether an operator, by its full name, is of a library of the program."""
    return "::" in op and op.partition("::")[0] not in ("aten", "prims", "prim")


def register(op: str) -> str:
    """What to do about an operator without a fake kernel."""
    return (
        f'tell what it gives: @torch.library.register_fake("{op}") '
        "over a function of the same arguments that returns, say, torch.empty_like(x)"
    )


def name_of(function: object) -> str:
    """What a torch function is called in messages."""
    return getattr(function, "__name__", None) or str(function)


def refused(name: str, why: str) -> tuple[str, str, str]:
    """What to say of a question about a tensor that only its data answer: what was met, why the graph ends, what to do."""
    if name == "__bool__":
        what, why = "a branch on the values of a tensor", "which way it goes depends on data, which a graph does not have while it is made"
        return (
            what,
            why,
            "choose between values with torch.where, or between computations with torch.cond; or branch outside of the compiled function",
        )
    return f"{name} of a tensor", why, "compute it outside of the compiled function, or with tensor operations such as torch.where"
