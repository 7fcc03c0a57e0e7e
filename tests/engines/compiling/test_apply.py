"""Compiling in place. The back end is `eager` (Dynamo alone), so what is compiled computes the same bits."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")

from proctor.engines.compiling.apply import compile_in_place, follow, undo  # noqa: E402
from proctor.engines.compiling.settings import Compile  # noqa: E402
from proctor.engines.compiling.targets import Target, find_targets  # noqa: E402
from proctor.rows import UserError  # noqa: E402
from tests.engines.compiling.toy import WIDTH, Breaks, Model, patches  # noqa: E402

EAGER = Compile(backend="eager")
COUNTS = (64, 8, 512, 16)
MERGERS = ("visual.merger", "visual.deep.0", "visual.deep.1")


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


def check_answers(model: Model, as_of: Model) -> None:
    for count in COUNTS:
        assert torch.equal(model(patches(count)), as_of(patches(count)))


def test_alike_modules_share_a_graph_that_serves_all_sizes(model: Model):
    plain = copy.deepcopy(model)
    watch = compile_in_place(model, find_targets(model), EAGER)
    check_answers(model, plain)
    seen = watch.counters
    assert {name: (one.graphs, one.breaks, one.recompiles) for name, one in seen.items()} == {
        "blocks": (1, (), ()),
        "visual.deep": (1, (), ()),
    }
    assert all(one.seconds > 0 for one in seen.values())


def test_instances_of_one_class_with_weights_of_other_shapes_are_safe(model: Model):
    """Without guards the second one runs the first one's graph: `expected size 1024==4096` in a field report."""
    plain = copy.deepcopy(model)
    apart = [Target("merger", MERGERS[:1]), Target("deep", MERGERS[1:])]
    watch = compile_in_place(model, apart, EAGER)
    check_answers(model, plain)
    assert {name: seen.graphs for name, seen in watch.counters.items()} == {"merger": 1, "deep": 1}
    assert all(seen.recompiles == () for seen in watch.counters.values())


def test_they_are_safe_in_one_target_too(model: Model):
    plain = copy.deepcopy(model)
    watch = compile_in_place(model, [Target("mergers", MERGERS)], EAGER)
    check_answers(model, plain)
    assert watch.counters["mergers"].graphs == 2
    assert len(watch.counters["mergers"].recompiles) == 1


def test_names_of_weights_and_the_modules_themselves_stay(model: Model):
    names, modules = list(model.state_dict()), dict(model.named_modules())
    called = []
    model.visual.blocks[1].register_forward_hook(lambda *_: called.append("before"))
    compile_in_place(model, find_targets(model), EAGER)
    model.visual.blocks[2].register_forward_hook(lambda *_: called.append("after"))
    model(patches(8))
    assert list(model.state_dict()) == names
    assert dict(model.named_modules()) == modules
    assert called == ["before", "after"]


def test_undone_it_is_as_before(model: Model):
    plain = copy.deepcopy(model)
    targets = find_targets(model)
    watch = compile_in_place(model, targets, EAGER)
    undo(model, targets)
    check_answers(model, plain)
    assert all(module._compiled_call_impl is None for module in model.modules())
    assert watch.changes() == {}


def test_a_model_that_takes_the_place_of_another_runs_its_code(model: Model):
    targets = find_targets(model)
    watch = compile_in_place(model, targets, EAGER)
    model(patches(64))
    assert set(watch.changes()) == {"blocks", "visual.deep"}
    torch.manual_seed(1)
    other = Model().eval()
    plain = copy.deepcopy(other)
    follow(other, targets, model)
    check_answers(other, plain)
    assert other.visual.blocks[0]._compiled_call_impl is not None
    assert watch.changes() == {}


def test_weights_that_are_written_over_are_seen(model: Model):
    targets = find_targets(model)
    compile_in_place(model, targets, EAGER)
    model(patches(64))
    torch.manual_seed(1)
    other = Model().eval()
    model.load_state_dict(other.state_dict())
    check_answers(model, other)


def test_a_target_that_breaks_is_refused_with_the_reason():
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), Breaks())
    compile_in_place(model, [Target("tail", ("1",))], EAGER)
    with pytest.raises(UserError, match=r"tail cannot be compiled as one graph: Data-dependent branching") as caught:
        model(torch.ones(3, WIDTH))
    assert "fullgraph: false" in (caught.value.fix or "")


def test_it_runs_in_pieces_where_that_is_allowed():
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), Breaks())
    rows = torch.ones(3, WIDTH)
    expected = model(rows)
    watch = compile_in_place(model, [Target("tail", ("1",))], Compile(backend="eager", fullgraph=False))
    assert torch.equal(model(rows), expected)
    seen = watch.changes()["tail"]
    assert "Data-dependent branching" in seen.breaks[0]
    assert "toy.py" in seen.breaks[0]


def test_a_back_end_that_fails_is_the_users_to_change(monkeypatch: pytest.MonkeyPatch):
    def fails(graph: object, inputs: object) -> object:
        raise RuntimeError("no compiler on this machine")

    from torch._dynamo.backends.registry import register_backend

    register_backend(fails, name="proctor_fails")
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH))
    compile_in_place(model, [Target("all", ("0",))], Compile(backend="proctor_fails"))
    with pytest.raises(UserError, match="no compiler on this machine") as caught:
        model(torch.ones(3, WIDTH))
    assert caught.value.where == "engine.compile.backend"
    assert "take another backend" in (caught.value.fix or "")


def test_a_compiler_that_is_not_installed_is_to_be_installed():
    """Inductor looks for it when it has the first graph to make code of."""
    from torch._dynamo.backends.registry import register_backend
    from torch._inductor.exc import InvalidCxxCompiler

    def looks_for_it(graph: object, inputs: object) -> object:
        raise InvalidCxxCompiler

    register_backend(looks_for_it, name="proctor_without_compiler")
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH))
    compile_in_place(model, [Target("all", ("0",))], Compile(backend="proctor_without_compiler"))
    with pytest.raises(UserError, match="cannot compile all") as caught:
        model(torch.ones(3, WIDTH))
    assert "install a C++ compiler" in (caught.value.fix or "")


def test_memory_that_runs_out_while_compiling_is_no_mistake():
    def starves(graph: object, inputs: object) -> object:
        raise MemoryError("no room")

    from torch._dynamo.backends.registry import register_backend

    register_backend(starves, name="proctor_starves")
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH))
    compile_in_place(model, [Target("all", ("0",))], Compile(backend="proctor_starves"))
    with pytest.raises(MemoryError, match="no room"):
        model(torch.ones(3, WIDTH))


def test_hooks_see_and_change_what_the_compiled_module_gets_and_gives(model: Model):
    """Blocks share a graph; a hook on one of them is no hook on the others, whenever it came."""
    block, plain = model.visual.blocks[1], copy.deepcopy(model)
    watch = compile_in_place(model, find_targets(model, ["blocks"]), EAGER)
    model(patches(8))
    handles = [
        block.register_forward_pre_hook(lambda _, args: (args[0] * 2,)),
        block.register_forward_hook(lambda _, __, rows: rows + 1),
    ]
    plain.visual.blocks[1].register_forward_pre_hook(lambda _, args: (args[0] * 2,))
    plain.visual.blocks[1].register_forward_hook(lambda _, __, rows: rows + 1)
    check_answers(model, plain)
    assert "forward" not in block.__dict__
    for handle in handles:
        handle.remove()
    assert not torch.equal(model(patches(8)), plain(patches(8)))
    assert watch.counters["blocks"].graphs == 1
