"""Images between convolutions lie as a GPU's kernels want them."""

from opmill_graph_ir.capture.channels_last import lay_out
from opmill_graph_ir.capture.text import parse_graph, show_graph
from opmill_graph_ir.lowered import Extern
from opmill_graph_ir.ops.lower import lower

CONVOLUTION = "aten::convolution({}, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)"
HEAD = """
input x: float16[2, 4, 8, 8] on cuda:0
input w: float16[4, 4, 3, 3] on cuda:0
"""


def laid_out(lines):
    graph = parse_graph(HEAD + lines)
    lay_out(graph)
    return show_graph(graph).strip()


def test_what_lies_between_two_convolutions():
    first, second = CONVOLUTION.format("x"), CONVOLUTION.format("b")
    assert laid_out(f"""a: float16[2, 4, 8, 8] on cuda:0 = {first}
b: float16[2, 4, 8, 8] on cuda:0 = aten::relu(a)
y: float16[2, 4, 8, 8] on cuda:0 = {second}
return y""") == (
        f"""{HEAD}a: float16[2, 4, 8, 8] strides [256, 1, 32, 4] on cuda:0 = {first}
b: float16[2, 4, 8, 8] strides [256, 1, 32, 4] on cuda:0 = aten::relu(a)
y: float16[2, 4, 8, 8] on cuda:0 = {second}
return y""".strip()
    )


def test_what_the_user_sees_keeps_its_layout():
    text = f"""a: float16[2, 4, 8, 8] on cuda:0 = {CONVOLUTION.format("x")}
return a"""
    assert laid_out(text) == (HEAD + text).strip()


def test_without_a_convolution_nothing_moves():
    text = """a: float16[2, 4, 8, 8] on cuda:0 = aten::relu(x)
y: float16[2, 4, 8, 8] on cuda:0 = aten::exp(a)
return y"""
    assert laid_out(text) == (HEAD + text).strip()


def test_single_precision_stays_as_it_is():
    lines = f"""a: float16[2, 4, 8, 8] on cuda:0 = {CONVOLUTION.format("x")}
b: float16[2, 4, 8, 8] on cuda:0 = aten::relu(a)
return b"""
    graph = parse_graph((HEAD + lines).replace("float16", "float32"))
    before = show_graph(graph)
    lay_out(graph)
    assert show_graph(graph) == before


def test_on_a_processor_nothing_moves():
    lines = f"""a: float16[2, 4, 8, 8] on cuda:0 = {CONVOLUTION.format("x")}
b: float16[2, 4, 8, 8] on cuda:0 = aten::relu(a)
y: float16[2, 4, 8, 8] on cuda:0 = aten::exp(b)
return y"""
    graph = parse_graph((HEAD + lines).replace(" on cuda:0", ""))
    before = show_graph(graph)
    lay_out(graph)
    assert show_graph(graph) == before


def test_what_is_padded_in_front_of_a_convolution():
    """The images that are padded are no operands of a convolution: they lie as what is made of them."""
    first, second = CONVOLUTION.format("x"), CONVOLUTION.format("b")
    found = laid_out(f"""a: float16[2, 4, 8, 8] on cuda:0 = {first}
r: float16[2, 4, 8, 8] on cuda:0 = aten::relu(a)
b: float16[2, 4, 9, 9] on cuda:0 = aten::constant_pad_nd(r, [0, 1, 0, 1], 0.0)
y: float16[2, 4, 9, 9] on cuda:0 = {second}
return y""")
    assert "r: float16[2, 4, 8, 8] strides [256, 1, 32, 4] on cuda:0" in found
    assert "b: float16[2, 4, 9, 9] strides [324, 1, 36, 4] on cuda:0" in found


def test_a_convolution_whose_result_leaves_reads_channels_last():
    """cuDNN would lay out both its operands and its result anew."""
    graph = parse_graph(f"""{HEAD}a: float16[2, 4, 8, 8] on cuda:0 = aten::exp(x)
y: float16[2, 4, 8, 8] on cuda:0 = {CONVOLUTION.format("a")}
return y""")
    program = lower(graph)
    [call] = [node for node in program.nodes if type(node) is Extern]
    images = [program.buffers[name] for name in (call.args[0].buffer, *call.results)]
    assert [[n.constant for n in image.strides] for image in images] == [[256, 1, 32, 4]] * 2
    [output] = program.outputs
    assert [n.constant for n in program.buffers[output.buffer].strides] == [256, 64, 8, 1]


def test_groups_without_a_kernel_for_channels_last_stay_in_rows():
    """Of images that other convolutions want channels last."""
    grouped = "aten::convolution(b, g, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2)"
    head = HEAD.replace("4, 8, 8", "12, 8, 8").replace("4, 4, 3", "12, 12, 3") + "input g: float16[12, 6, 3, 3] on cuda:0\n"
    graph = parse_graph(f"""{head}a: float16[2, 12, 8, 8] on cuda:0 = {CONVOLUTION.format("x")}
b: float16[2, 12, 8, 8] on cuda:0 = aten::relu(a)
c: float16[2, 12, 8, 8] on cuda:0 = {grouped}
d: float16[2, 12, 8, 8] on cuda:0 = aten::relu(c)
y: float16[2, 12, 8, 8] on cuda:0 = {CONVOLUTION.format("d")}
return y""")
    lay_out(graph)
    program = lower(graph)
    last, rows = [768, 1, 96, 12], [768, 64, 8, 1]
    found = [
        [[n.constant for n in program.buffers[name].strides] for name in (node.args[0].buffer, *node.results)]
        for node in program.nodes
        if type(node) is Extern
    ]
    assert found == [[last, last], [rows, rows], [last, last]]
