"""Which calls are replayed, and that no tensor that was given out ever changes. The graphs are functions here: recording is replaced."""

import ctypes
import itertools
import warnings

import pytest
import torch
from runtime_kernels import kernel

from opmill_runtime_cache.devices.cuda import graphs
from opmill_runtime_cache.errors import ExecutorWarning
from opmill_runtime_cache.executor import bind
from opmill_runtime_cache.executor.recording import bind_recorded
from opmill_runtime_cache.plan import parse
from opmill_runtime_cache.plan.model import Alloc, Call, Launch, Literal, Plan, SizeOf, Slot, SlotOutput, TensorInput, TensorSpec, View

SPEC = TensorSpec("float32", (4,), (1,))


def address(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor, whoever owns it."""
    words = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    return torch.frombuffer(words, dtype=torch.float32).view(tensor.shape)


class Recorded:
    """A graph that runs what it was recorded from. It knows addresses, and holds no tensor."""

    def __init__(self, run, apart: bool) -> None:
        self.run, self.replays = run, 0
        cell = run.__closure__[run.__code__.co_freevars.index("read")]
        cell.cell_contents = tuple(map(address, cell.cell_contents))
        if apart:
            run()  # recording makes the results, without filling them

    def replay(self) -> None:
        self.replays += 1
        made = self.cell("made")
        before = dict(made)
        self.run()
        for k, tensor in before.items():  # a graph writes what it makes to the same place each time
            made[k] = tensor.copy_(made[k])

    def cell(self, name: str):
        return self.run.__closure__[self.run.__code__.co_freevars.index(name)].cell_contents


@pytest.fixture
def recorded(monkeypatch):
    """All graphs that a test records."""
    found: list[Recorded] = []
    monkeypatch.setattr(graphs, "capture", lambda run, device, apart: found.append(Recorded(run, apart)) or found[-1])
    graphs._warn.cache_clear()
    return found


def graphed(plan: Plan, held, store) -> graphs.GraphedExecutable:
    return graphs.GraphedExecutable(plan, held, bind(plan, held, store))


def known_of(run: graphs.GraphedExecutable):
    """What is known of calls without sizes, whose parameters all lie at one set of places."""
    [[(key, known)]] = [sizes.items() for sizes in run.known.values()]
    assert key == ()
    return known


def addition(held: bool) -> Plan:
    """``out = a + b``; with ``held``, b is."""
    steps = (Alloc(2, SPEC), Launch(0, (0, 1, 2), ("4",), (2,)))
    return Plan("p", 3, (TensorInput(0, SPEC), TensorInput(1, SPEC, held)), (SlotOutput(2),), steps, kernels=(kernel("add"),))


def test_calls_are_replayed_after_warming_up(recorded, store):
    run = graphed(addition(False), [], store)
    for k in range(10):
        a, b = torch.randn(4), torch.randn(4)
        assert torch.equal(run(a, b)[0], a + b)
        assert len(recorded) == (k >= graphs.WARM_UP)
    assert recorded[0].replays == 10 - graphs.WARM_UP - 1


def test_a_profiler_is_shown_each_replay(recorded, store):
    run, a = graphed(addition(False), [], store), torch.ones(4)
    for _ in range(graphs.WARM_UP + 1):
        run(a, a)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        for _ in range(3):
            run(a, a)
    assert sum(each.name == "opmill::p (CUDA graph)" for each in seen.events()) == recorded[0].replays == 3


@pytest.mark.parametrize("view", [lambda t: t, lambda t: t[1:3], lambda t: t.detach(), lambda t: t.untyped_storage()])
def test_results_that_are_kept_do_not_change(recorded, store, view):
    run = graphed(addition(False), [], store)
    kept, wanted = [], []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for k in range(12):
            a = torch.full((4,), float(k))
            kept.append(view(run(a, a)[0]))
            wanted.append(view(a + a))
    for x, y in zip(kept, wanted, strict=True):
        assert list(x) == list(y)
    assert len(recorded) == graphs.RECORDINGS
    assert [w.category for w in found] == [ExecutorWarning] and "RC073" in str(found[0].message)
    del x, kept
    a = torch.ones(4)
    assert torch.equal(run(a, a)[0], a + a)
    replays = sum(r.replays for r in recorded)
    assert replays == 1 or (replays == 0 and isinstance(wanted[0], torch.UntypedStorage))  # torch keeps a storage's Python object for good


def test_results_in_turns_need_two_graphs(recorded, store):
    run = graphed(addition(False), [], store)
    given = [(torch.full((4,), float(k)), torch.ones(4)) for k in range(20)]  # all at once: what lies where another lay is read in place
    out = None
    for k in range(20):
        before, expected = out, None if out is None else out.clone()
        out = run(*given[k])[0]
        assert before is None or torch.equal(before, expected)
        assert torch.equal(out, torch.full((4,), k + 1.0))
    assert len(recorded) == 2


def test_parameters_are_read_where_they_are(recorded, store):
    weight = torch.ones(4)
    run = graphed(addition(True), [weight], store)
    a = torch.randn(4)
    for _ in range(5):
        run(a)
    weight.mul_(3)
    assert torch.equal(run(a)[0], a + 3)
    weight.data = torch.full((4,), 7.0)
    assert torch.equal(run(a)[0], a + 7)
    assert torch.equal(run(a)[0], a + 7)
    assert len(recorded) == 2 and len(known_of(run).recordings) == 1


def test_parameters_of_modules_in_turn_have_graphs_of_their_own(recorded, store):
    """One plan serves the blocks of a network: none of their weights is copied, nor recorded again with every turn."""
    run = graphed(addition(False), [], store)
    weights = [torch.nn.Parameter(torch.full((4,), float(k))) for k in range(5)]
    for step in range(8):
        for k, weight in enumerate(weights):
            a = torch.randn(4)
            with torch.no_grad():
                weight += 1
            assert torch.equal(run(a, weight)[0], a + weight) and weight[0] == k + step + 1
    assert len(recorded) == len(weights) and all(r.replays for r in recorded)
    for sizes in run.known.values():
        [known] = sizes.values()
        assert not known.moving & {1} and all([k for k, _ in r.copied] == [0] for r in known.recordings)
    weights[0].data = torch.full((4,), 50.0)
    a = torch.randn(4)
    for _ in range(4):
        assert torch.equal(run(a, weights[0])[0], a + 50)


def test_places_of_parameters_that_are_gone_make_room(recorded, store, monkeypatch):
    monkeypatch.setattr(graphs, "MODULES", 4)
    run = graphed(addition(False), [], store)
    kept = [torch.nn.Parameter(torch.full((4,), float(k))) for k in range(12)]
    for weight in kept:
        for _ in range(4):
            a = torch.randn(4)
            assert torch.equal(run(a, weight)[0], a + weight)
    assert len(run.known) <= 4


def test_inputs_that_stay_are_read_where_they_are_until_they_move(recorded, store):
    run = graphed(addition(False), [], store)
    stays, other = torch.ones(4), torch.full((4,), 5.0)
    for k in range(6):
        a = torch.full((8,), float(k))[k % 2 : k % 2 + 4]
        stays += 1
        assert torch.equal(run(a, stays)[0], a + stays)
    known = known_of(run)
    assert 1 in known.recordings[0].fixed and 1 not in known.moving
    for k in range(6):
        second = (stays, other)[k % 2]
        assert torch.equal(run(torch.full((4,), float(k)), second)[0], k + second)
    assert 1 in known.moving and len(known.recordings) == 1 and 1 not in known.recordings[0].fixed
    assert len(recorded) <= 4


def test_another_layout_at_the_same_place_is_refused_as_ever(recorded, store):
    spec = TensorSpec("float32", (2, 2), (2, 1))
    steps = (Alloc(2, spec), Launch(0, (0, 1, 2), ("4",), (2,)))
    run = graphed(Plan("p", 3, (TensorInput(0, spec), TensorInput(1, spec)), (SlotOutput(2),), steps, kernels=(kernel("add"),)), [], store)
    a, b = torch.arange(4.0).view(2, 2), torch.ones(2, 2)
    for _ in range(5):
        assert torch.equal(run(a, b)[0], a + 1)
    assert 0 in known_of(run).recordings[0].fixed
    with pytest.raises(TypeError, match="RC052"):
        run(a.t(), b)


def test_results_of_operators_stay_where_these_have_put_them(recorded, store):
    steps = (
        Call("aten::mul.Scalar", (Slot(0), Literal(2.0)), {}, (1,)),
        View(2, 1, (2,), (1,), 1),
        Alloc(3, SPEC),
        Launch(0, (0, 1, 3), ("4",), (2,)),
    )
    outputs = (SlotOutput(1), SlotOutput(2), SlotOutput(3))
    run = graphed(Plan("p", 4, (TensorInput(0, SPEC),), outputs, steps, kernels=(kernel("add"),)), [], store)
    assert run.apart and not graphed(addition(False), [], store).apart
    kept = []
    for k in range(9):
        x = torch.arange(4.0) + k
        kept.append((x, run(x)))
        if k % 3 == 2:
            for given, (double, part, sum_) in kept:
                assert torch.equal(double, 2 * given) and torch.equal(part, 2 * given[1:3]) and torch.equal(sum_, 3 * given)
            kept.clear()
    assert recorded[0].replays > 0 and len(recorded[0].cell("made")) == 2


def test_inputs_that_are_written_are_written(recorded, store):
    steps = (Launch(0, (0, 0), ("4", "2"), (1,)), Alloc(1, SPEC), Launch(0, (0, 1), ("4", "1"), (1,)))
    plan = Plan("p", 2, (TensorInput(0, SPEC),), (SlotOutput(1),), steps, kernels=(kernel("affine"),), exclusive=(0,))
    run = graphed(plan, [], store)
    x = torch.ones(4)
    expected = 1.0
    for _ in range(8):
        version = x._version
        out = run(x)[0]
        expected = 2 * expected + 1
        assert torch.equal(x, torch.full((4,), expected)) and torch.equal(out, x + 1) and x._version > version
        del out
    [recording] = known_of(run).recordings
    assert recording.copied == [] and recorded[0].replays > 0, "what stays where it is is changed there"
    moved = [torch.ones(4) for _ in range(3)]
    for k in range(9):
        x = moved[k % 3]
        before = x.clone()
        assert torch.equal(run(x)[0], 2 * before + 2) and torch.equal(x, 2 * before + 1)
    assert any(r.copied for r in known_of(run).recordings), "what moves is copied there and back"


def test_an_input_that_shall_stay_is_used_where_it_is(recorded, store):
    """Also where calls before came with another tensor."""
    steps = (Launch(0, (0, 0), ("4", "2"), (1,)), Alloc(1, SPEC), Launch(0, (0, 1), ("4", "1"), (1,)))
    plan = Plan("p", 2, (TensorInput(0, SPEC),), (SlotOutput(1),), steps, kernels=(kernel("affine"),), exclusive=(0,))
    run = graphed(plan, [], store)
    for _ in range(graphs.WARM_UP):
        run(torch.ones(4))
    x = torch.ones(4)
    x._dynamo_static_input_type = "unguarded"
    run(x)
    [recording] = known_of(run).recordings
    assert list(recording.fixed) == [0] and torch.equal(x, torch.full((4,), 3.0))


def test_sizes_are_recorded_apart(recorded, store):
    spec = TensorSpec("float32", ("s0",), (1,))
    plan = Plan(
        "p", 2, (TensorInput(0, spec),), (SlotOutput(1),), (Alloc(1, spec), Launch(0, (0, 1), ("s0", "3"), (1,))), (SizeOf("s0", 0, 0),),
        kernels=(kernel("affine"),),
    )  # fmt: skip
    run = graphed(plan, [], store)
    given = [torch.randn(n) for _, n in itertools.product(range(6), range(1, graphs.SIZES + 3))]
    with pytest.warns(ExecutorWarning, match="RC072"):
        for x in given:
            assert torch.allclose(run(x)[0], 3 * x + 1)
    assert len(recorded) == graphs.SIZES


def test_what_a_graph_gives_another_reads_in_place(recorded, store):
    first, second = graphed(addition(False), [], store), graphed(addition(False), [], store)
    for k in range(12):
        a = torch.full((4,), float(k))
        middle = first(a, a)[0]
        assert torch.equal(second(middle, a)[0], 3 * a)
        if k == 8:
            kept = middle
    assert torch.equal(kept, torch.full((4,), 16.0))
    assert all(0 in r.fixed for r in known_of(second).recordings)
    assert 0 < len(recorded) <= 8


def test_results_that_are_inputs_are_not_recorded(recorded, store):
    run = graphed(parse("plan('p', slots=1, arena=0)\nt0 = input(float32[4](1), name='x')\noutput(t0)\n"), [], store)
    x = torch.ones(4)
    with pytest.warns(ExecutorWarning, match="RC071.*shares memory"):
        for _ in range(5):
            assert run(x)[0] is x
    assert not recorded


def test_a_graph_that_cannot_be_recorded(monkeypatch, store):
    graphs._warn.cache_clear()

    def refuse(run, device, apart) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(graphs, "capture", refuse)
    run = graphed(addition(False), [], store)
    a = torch.ones(4)
    with pytest.warns(ExecutorWarning, match="RC071.*not permitted"):
        for _ in range(5):
            assert torch.equal(run(a, a)[0], a + a)


def test_views_of_what_the_plan_allocates_lie_where_they_were_given(store):
    """As gradients do, which are mostly other shapes of what a product or a sum has written."""
    whole = TensorSpec("float32", (4,), (1,))
    steps = (Alloc(2, whole), Launch(0, (0, 1, 2), ("4",), (2,)), View(3, 2, (2,), (1,), 2), View(4, 2, (2, 2), (2, 1), 0))
    plan = Plan("p", 5, (TensorInput(0, SPEC), TensorInput(1, SPEC)), (SlotOutput(3), SlotOutput(4)), steps, kernels=(kernel("add"),))
    run = bind(plan, [], store)
    a, b = torch.arange(4.0), torch.ones(4)
    part, square = run(a, b)
    part.zero_()
    made = run.into((a, b), (part, square))
    assert [t.data_ptr() for t in made] == [part.data_ptr(), square.data_ptr()]
    assert part.tolist() == [3, 4] and square.tolist() == [[1, 2], [3, 4]]
    small = torch.zeros(2)  # what it is a view of does not fit around it
    made = run.into((a, b), (small, torch.zeros(2, 2)))
    assert made[0].tolist() == [3, 4] and made[0].data_ptr() != small.data_ptr() and made[1].tolist() == [[1, 2], [3, 4]]


def test_gradients_stay_outside(recorded, store):
    run = graphed(addition(False), [], store)
    a = torch.ones(4, requires_grad=True)
    for _ in range(6):
        out = run(a, a)[0]
        assert not out.requires_grad and torch.equal(out, torch.full((4,), 2.0))


def test_other_shapes_are_refused_as_ever(recorded, store):
    run = graphed(addition(False), [], store)
    for _ in range(5):
        run(torch.ones(4), torch.ones(4))
    for bad in (torch.ones(1), torch.ones(4, dtype=torch.float64)):
        with pytest.raises(TypeError, match="RC052"):
            run(bad, torch.ones(4))


def test_plans_that_have_no_graph(store):
    plan = addition(False)
    assert not isinstance(bind_recorded(plan, [], store), graphs.GraphedExecutable)
    text = "plan('p', slots=2, arena=0)\nt0 = input(int64[()](device='cuda:0'), name='x')\ns0 = item(t0)\noutput(t0)\n"
    assert "depend on data" in (graphs.not_recordable(parse(text)) or "")
    mixed = "plan('p', slots=2, arena=0)\nt0 = input(float32[4](1, device='cuda:0'), name='x')\nt1 = alloc(float32[4](1))\noutput(t1)\n"
    assert "cpu and cuda:0" in (graphs.not_recordable(parse(mixed)) or "")
