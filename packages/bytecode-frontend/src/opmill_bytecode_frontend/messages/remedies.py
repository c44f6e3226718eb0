"""What to do about each refusal of the frontend, a row for each number: said where the place that refuses knows nothing better."""

from __future__ import annotations

_OUTSIDE = "do it outside of the compiled function"
_BETWEEN = "it runs between two graphs, rightly; compile what comes before and after as functions of their own if the rest suffers"

REMEDIES: dict[str, str] = {
    "FE001": "move the statement into a function marked with @opmill.disable, and please report it: every instruction of Python is meant "
    "to be known",
    "FE010": "call it before or after the compiled function and hand its result over; or, if it computes on tensors, make it an operator "
    "with "
    "@torch.library.custom_op and register_fake; @opmill.disable on the function around it keeps the break where it is expected",
    "FE011": "compute it outside of the compiled function, or use torch's function for it (torch.floor for math.floor, torch.stack for "
    "numpy.array)",
    "FE012": "make it once, outside of the compiled function, and hand it over",
    "FE014": "ask for the signature outside of the compiled function",
    "FE015": "give apply() positional tensors, each once; or register the pair with torch.library.custom_op and register_autograd",
    "FE016": "use torch.utils.checkpoint.checkpoint(..., use_reentrant=False) around a function that takes and returns tensors",
    "FE017": "copy outside of the compiled function, or clone the tensors inside of it one by one",
    "FE018": "keep a reference for as long as the call lasts, or let go of the object outside of the compiled function",
    "FE019": "use torch.rand or torch.randn, which a graph holds; or draw outside and hand the number over in a tensor",
    "FE020": "call it outside of the compiled function and hand over what it gives, as a tensor, a number or a tuple",
    "FE021": "assign outside of the compiled function, or return the value and store it there",
    "FE022": "wrap it in a Python function of tensors, or make it an operator with @torch.library.custom_op and register_fake",
    "FE023": "iterate over a list, a tuple or a dict; or make a tensor of the items and compute on all at once",
    "FE024": "use a key that is a number, a string or a tuple of them, not a tensor or an object made in the call",
    "FE025": "print, format or log after the compiled function has returned the tensor; to look at a value now and then, guard it with "
    "`if not opmill.is_compiling()`",
    "FE026": "index with a tensor (torch.index_select, x[t]), or choose the item outside of the compiled function",
    "FE027": "look up keys that are known before the call, with .get() or `in`",
    "FE028": "compare with ==",
    "FE029": "put the mode around less, so that no graph break is in its block, or around the call: that runs as it is then",
    "FE030": "compute it outside of the compiled function, or with tensor operations such as torch.where",
    "FE031": "read it outside of the compiled function and hand it over",
    "FE032": "make a new tensor, or write with copy_() under torch.no_grad()",
    "FE033": "register hooks before the compiled function is called; a handle that is kept can be taken there too",
    "FE034": "hand over tensors, numbers, or lists, tuples and dicts of these",
    "FE035": "compute it with tensor operations; or make the function an operator with @torch.library.custom_op and register_fake",
    "FE036": "compile the step by itself, opmill.compile(optimizer.step), and call it after the backward",
    "FE037": "torch.where chooses without deciding, torch._check(condition) says what is known of a size; or decide outside of the "
    "compiled function",
    "FE038": "make the tensor outside of the compiled function and hand it over",
    "FE039": "register what the result looks like with torch.library.register_fake",
    "FE040": "read it outside of the compiled function and hand it over",
    "FE041": "use a plain attribute or a property written in Python, or read it outside of the compiled function",
    "FE042": "change the class outside of the compiled function",
    "FE043": "write the type outside of the compiled function",
    "FE044": "look at the traceback or the exception's context outside of the compiled function",
    "FE045": "make the backward an operator of its own (@torch.library.custom_op, register_fake), and call that in register_autograd",
    "FE051": "hand over plain tensors (x.as_subclass(torch.Tensor), x.to_dense()); wrapper subclasses are captured through "
    "__tensor_flatten__",
    "FE060": "compile the functions of tensors that it awaits or yields from, not the coroutine",
    "FE061": "pass the arguments one by one, or from a tuple or a dict",
    "FE062": "move the statement into a function marked with @opmill.disable",
    "FE063": "define the class at the top of the module",
    "FE064": "write the recursion as a loop, or mark the inner function with @opmill.disable",
    "FE065": "compile what a turn does rather than the loop",
    "FE066": "if the graph broke inside of this loop, that is the break to mend: this one goes with it; else hand over a list of what the "
    "iterator gives",
    "FE067": "pass a tensor, or what seldom changes; or decide by it outside of the compiled function",
    "FE068": "warn or log outside of the compiled function, without a traceback",
    "FE069": "call it outside of the compiled function",
    "FE070": "return tensors, numbers, lists, tuples or dicts of these; make a list of an iterator before it is returned",
    "FE071": "move the statement that breaks the graph to a line, or a function, of its own",
    "FE074": "enter the block outside of the compiled function, or mend the break inside of it",
    "FE075": "define the class at the top of the module",
    "FE076": "use the generator up, or close it in the compiled function",
    "FE080": "compile the module inside: DistributedDataParallel(opmill.compile(model))",
    "FE081": "launch it between two compiled functions, or make it an operator with torch.library.triton_op",
    "FE082": _BETWEEN,
    "FE083": "return what changes, and store it behind the loop",
    "FE084": "return tensors of the same types and sizes, in the same structure, from each branch and each turn",
    "FE085": "use torch's function of the same name, or call NumPy outside of the compiled function",
    "FE091": "do not mark it, or take the number from x.shape where the program writes it out",
    "FE092": "call it for these sizes before the stance is set, or mark the sizes that change with opmill.mark_dynamic",
    "FE093": "compile what a turn does rather than the loop, or raise the option graph_limit",
    "FE094": "compute it once, outside of the compiled function, and hand the result over",
    "FE101": "yield outside of the statement that breaks the graph, or make a list of the values first",
    "FE102": "write the comprehension as a for loop",
    "FE103": "give the variable a value before the statement that breaks the graph",
    "FE104": "handle the exception in the function that raises it",
    "FE105": "move the statement that breaks the graph to a line of its own",
}
"""By number."""
