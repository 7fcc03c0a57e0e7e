from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")

from proctor.engines import news  # noqa: E402
from proctor.engines.compiling.apply import compile_in_place  # noqa: E402
from proctor.engines.compiling.settings import Compile  # noqa: E402
from proctor.engines.compiling.targets import Target, find_targets  # noqa: E402
from proctor.engines.compiling.watch import Seen, Watch  # noqa: E402
from tests.engines.compiling.toy import WIDTH, Choosy, Encoder, patches  # noqa: E402

STATIC = Compile(backend="eager", dynamic=False, recompile_limit=3)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_every_new_size_of_a_static_graph_is_a_recompilation_with_its_reason():
    encoder = Encoder()
    watch = compile_in_place(encoder, find_targets(encoder, ["blocks"]), STATIC)
    encoder(patches(8))
    assert watch.changes()["blocks"].recompiles == ()
    encoder(patches(16))
    seen = watch.changes()["blocks"]
    assert seen.graphs == 1
    assert len(seen.recompiles) == 1
    assert "size mismatch at index 0. expected 8, actual 16" in seen.recompiles[0]
    encoder(patches(8))
    assert watch.changes() == {}
    assert watch.counters["blocks"].graphs == 2


def test_the_beginning_and_the_end_of_a_compilation_are_signalled(monkeypatch: pytest.MonkeyPatch):
    told: list[bool] = []
    monkeypatch.setattr(news, "_signal", told.append)
    encoder = Encoder()
    compile_in_place(encoder, find_targets(encoder, ["blocks"]), STATIC)
    encoder(patches(8))
    encoder(patches(8))
    assert told == [True, False]
    encoder(patches(16))
    assert told == [True, False, True, False]


@pytest.mark.parametrize("full", [True, False], ids=["full graph", "in pieces"])
def test_a_target_that_hits_its_limit_goes_on_eagerly_and_says_so(full: bool):
    """More than eight sizes make PyTorch's own default fall back, with a line in its log and nothing else."""
    encoder = Encoder()
    expected = {count: encoder(patches(count)) for count in range(4, 48, 4)}
    how = Compile(backend="eager", dynamic=False, recompile_limit=3, fullgraph=full)
    watch = compile_in_place(encoder, find_targets(encoder, ["blocks"]), how)
    for count, rows in expected.items():
        assert torch.equal(encoder(patches(count)), rows)
    seen = watch.counters["blocks"]
    assert seen.graphs == 3
    assert len(seen.fallbacks) == 1
    assert seen.fallbacks[0].startswith("recompile_limit of 3 was hit: ")
    assert "expected 12, actual 16" in seen.fallbacks[0]


def test_a_fallback_is_seen_though_the_log_is_silent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logging.getLogger("torch._dynamo.convert_frame"), "disabled", True)
    encoder = Encoder()
    watch = compile_in_place(encoder, find_targets(encoder, ["blocks"]), STATIC)
    for count in (4, 8, 12, 16):
        encoder(patches(count))
    assert watch.counters["blocks"].fallbacks == ("recompile_limit of 3 was hit",)


def test_each_target_has_a_limit_of_its_own():
    """Though both are of one class: the other's graphs do not count."""
    model = torch.nn.Sequential(Choosy(), Choosy())
    watch = compile_in_place(model, [Target("one", ("0",)), Target("other", ("1",))], STATIC)
    for rows in range(3, 9):
        model[0](torch.ones(rows, WIDTH))
    model[1](torch.ones(3, WIDTH))
    assert len(watch.counters["one"].fallbacks) == 1
    assert watch.counters["other"] == Seen(graphs=1, seconds=watch.counters["other"].seconds)


def test_what_others_compile_is_not_counted():
    encoder = Encoder()
    watch = compile_in_place(encoder, find_targets(encoder, ["blocks"]), STATIC)
    torch.compile(lambda rows: rows + 1, backend="eager")(torch.ones(3))
    assert watch.changes() == {}


def test_named_inputs_differ_in_the_named_sizes_only():
    """A size that is not named is a constant of the graph, also where everything else is a symbol."""
    layer = torch.nn.Sequential(torch.nn.ReLU())
    watch = compile_in_place(layer, [Target("relu", ("0",), {"input": (0,)})], Compile(backend="eager"))
    for rows in (3, 5, 7):
        layer(torch.ones(rows, WIDTH))
    assert watch.counters["relu"].graphs == 1
    layer(torch.ones(3, 2 * WIDTH))
    assert watch.counters["relu"].graphs == 2
    assert "index 1" in watch.counters["relu"].recompiles[0]


def test_without_names_every_size_may_differ():
    layer = torch.nn.Sequential(torch.nn.ReLU())
    watch = compile_in_place(layer, [Target("relu", ("0",))], Compile(backend="eager"))
    for rows, width in ((3, 4), (5, 6), (7, 9)):
        layer(torch.ones(rows, width))
    assert watch.counters["relu"].graphs == 1


def test_changes_are_told_once():
    watch = Watch(["a", "b"])
    watch.add("a", Seen(graphs=2, breaks=("x",)))
    assert watch.changes() == {"a": Seen(graphs=2, breaks=("x",))}
    watch.add("a", Seen(seconds=1.5, breaks=("y",)))
    watch.add("b", Seen(cache_hits=1))
    assert watch.changes() == {"a": Seen(seconds=1.5, breaks=("y",)), "b": Seen(cache_hits=1)}
    assert watch.changes() == {}
    assert watch.counters["a"] == Seen(graphs=2, seconds=1.5, breaks=("x", "y"))
