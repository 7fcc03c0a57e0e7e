"""Targets are compiled once and switched: what runs is what was asked for, and the model comes back as it was."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")

from torch import nn  # noqa: E402

from proctor.compile.arms import Arms  # noqa: E402
from proctor.compile.captured import catching  # noqa: E402
from proctor.compile.compared import levels_of, some_of  # noqa: E402
from proctor.compile.costs import dispatch_seconds, memory_of, operators  # noqa: E402
from proctor.engines.compiling.settings import Compile  # noqa: E402
from proctor.engines.compiling.targets import Target  # noqa: E402
from tests.compile.toys import WIDTH, Block, Merger  # noqa: E402

BLOCKS = Target("blocks", ("blocks.0", "blocks.1"))
MERGERS = Target("mergers", ("merger", "other"))


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.merger, self.other = Merger(), Merger(after=True)

    def forward(self, rows: object) -> object:
        for block in self.blocks:
            rows = block(rows)
        return self.merger(rows), self.other(rows)


@pytest.fixture
def tower() -> nn.Module:
    torch.compiler.reset()
    torch.manual_seed(0)
    return Tower().eval()


def running(model: nn.Module) -> set[str]:
    return {name for name, module in model.named_modules() if module._compiled_call_impl is not None}


def test_switching_changes_who_runs_and_compiles_nothing_anew(tower: nn.Module) -> None:
    names = set(tower.state_dict())
    with torch.inference_mode():
        rows = torch.randn(24, WIDTH)
        eager = tower(rows)
        arms = Arms(tower, Compile(backend="eager"))
        for target in (BLOCKS, MERGERS):
            arms.add(target)
        arms.to(arms.names)
        assert running(tower) == {*BLOCKS.modules, *MERGERS.modules}
        compiled = tower(rows)
        graphs = {name: arms.seen(name).graphs for name in arms.names}
        assert graphs == {"blocks": 1, "mergers": 2}  # one for each width of the norm: no crash, no sharing
        for _ in range(3):
            arms.to(())
            assert running(tower) == set()
            tower(rows)
            arms.to(("blocks",))
            assert running(tower) == set(BLOCKS.modules)
            tower(rows)
    assert {name: arms.seen(name).graphs for name in arms.names} == graphs
    assert all(torch.equal(one, other) for one, other in zip(eager, compiled, strict=True))
    assert set(tower.state_dict()) == names


def test_a_target_that_is_dropped_stays_eager(tower: nn.Module) -> None:
    arms = Arms(tower, Compile(backend="eager"))
    arms.add(BLOCKS)
    arms.to(("blocks",))
    arms.drop("blocks")
    assert running(tower) == set()
    assert arms.names == ()


def test_inputs_of_one_size_are_kept_once_and_are_copies(tower: nn.Module) -> None:
    rows = torch.randn(24, WIDTH)
    with torch.inference_mode(), catching(tower, {"blocks": BLOCKS.modules, "mergers": MERGERS.modules}) as calls:
        tower(rows)
        tower(rows[:12])
    assert [call.module for call in calls["blocks"]] == [*tower.blocks, *tower.blocks]
    assert [call.rows for call in calls["blocks"]] == [24, 24, 12, 12]
    first, second, third, _ = calls["blocks"]
    assert first.args[0] is second.args[0] is not rows
    assert torch.equal(first.args[0], rows)
    assert third.args[0] is not first.args[0]
    assert not any(module._forward_pre_hooks for module in tower.modules())
    with torch.inference_mode():
        assert first().shape == rows.shape


def test_of_each_kind_of_module_the_first_and_the_last_are_compared(tower: nn.Module) -> None:
    with torch.inference_mode(), catching(tower, {"all": (*MERGERS.modules, *BLOCKS.modules)}) as calls:
        tower(torch.randn(24, WIDTH))
        tower(torch.randn(24, WIDTH))
    chosen = some_of(calls["all"])
    assert [call.module for call in chosen] == [
        tower.blocks[0],
        tower.merger,
        tower.other,
        tower.blocks[1],
        tower.merger,
        tower.other,
    ]


def test_levels_end_with_that_of_the_backend() -> None:
    assert levels_of("eager") == ("eager",)
    assert levels_of("inductor") == ("eager", "aot_eager", "inductor")
    assert levels_of("cudagraphs") == ()


def test_costs_are_those_of_this_process(tower: nn.Module) -> None:
    cpu = torch.device("cpu")
    with torch.inference_mode():
        rows = torch.randn(24, WIDTH)
        once = operators(lambda: tower.merger(rows), cpu)
        twice = operators(lambda: (tower.merger(rows), tower.merger(rows)), cpu)
        assert once is not None
        assert twice == 2 * once >= 6
        assert dispatch_seconds(Compile(backend="eager"), cpu) > 0  # guards are never free
    assert memory_of(cpu) > 10**7
