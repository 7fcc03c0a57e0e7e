"""References in float64, and the calls that a compiled module is tried with besides the caught ones."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")

from torch import nn  # noqa: E402

from proctor.compile.captured import Caught  # noqa: E402
from proctor.compile.reference import made, references  # noqa: E402
from proctor.compile.rule import same_bits  # noqa: E402
from proctor.compile.variants import given, variants  # noqa: E402
from tests.compile.toys import Block, Merger, tower  # noqa: E402


class Downcast(nn.Module):
    """Goes through float32 in every way there is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 1 / 3))

    def forward(self, rows: Any) -> Any:
        narrow = rows.float() * self.weight.to(torch.float32)
        narrow = torch.softmax(narrow, -1, dtype=torch.float32).type(torch.float32)
        return narrow + torch.zeros(1) + torch.arange(3, dtype=torch.float32) / 3


class Only(nn.Module):
    """Runs in some formats only."""

    def __init__(self, *formats: Any) -> None:
        super().__init__()
        self.formats = formats
        self.weight = nn.Parameter(torch.ones(3, dtype=formats[0]))

    def forward(self, rows: Any) -> Any:
        if rows.dtype not in self.formats:
            raise RuntimeError(f"no kernel for {rows.dtype}\nand more")
        return rows * self.weight


class Careless(nn.Module):
    """Writes into its input, and draws."""

    def forward(self, rows: Any) -> Any:
        return rows.add_(1) + torch.rand(3)


def of(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return references([Caught(module, args, kwargs)])[0]


def test_a_reference_is_in_float64_throughout() -> None:
    rows = torch.tensor([[0.1, 0.2, 0.3]])
    found = of(Downcast(), rows)
    exact = torch.softmax(rows.double() * Downcast().weight.double(), -1) + torch.arange(3, dtype=torch.float64) / 3
    assert found.remark == ""
    assert found.output[""].dtype == torch.float64
    assert torch.allclose(found.output[""], exact, rtol=1e-15, atol=0)
    assert torch.get_default_dtype() == torch.float32
    assert Downcast()(rows).dtype == torch.float32


def test_a_module_without_float64_is_judged_by_float32_where_that_is_more_than_its_own() -> None:
    found = of(Only(torch.bfloat16, torch.float32), torch.ones(3, dtype=torch.bfloat16))
    assert found.output[""].dtype == torch.float32
    assert found.remark == (
        "it does not run in float64: RuntimeError: no kernel for torch.float64; judged by float32 instead"
    )
    nothing = of(Only(torch.float32), torch.ones(3))
    assert nothing.output is None
    assert "no kernel for torch.float64" in nothing.remark
    assert "float32:" not in nothing.remark


def test_references_come_in_the_order_of_the_calls_and_leave_the_modules_alone() -> None:
    model = tower()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    blocks = [model.blocks[number] for number in (1, 0, 1, 3)]
    found = references([Caught(block, (rows * (number + 1),), {}) for number, block in enumerate(blocks)])
    for number, (block, one) in enumerate(zip(blocks, found, strict=True)):
        assert torch.allclose(one.output[""].float(), block(rows * (number + 1)), atol=1e-5)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.embed.weight.dtype == torch.float32


def test_a_call_is_made_again_with_the_same_numbers_and_the_same_luck() -> None:
    rows = torch.zeros(3)
    state = torch.get_rng_state()
    call = Caught(Careless(), (rows,), {})
    assert same_bits(made(call), made(call))
    assert torch.equal(rows, torch.zeros(3))
    assert torch.equal(state, torch.get_rng_state())


def labels(call: Caught) -> dict[str, Caught]:
    """The variants that the module takes."""
    found = {}
    for variant in variants(call):
        for one in variant.tries:
            try:
                made(one)
            except (RuntimeError, ValueError):
                continue
            found[variant.label] = one
            break
    return found


def test_sizes_values_and_optional_inputs_are_varied() -> None:
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    call = Caught(Block(), (rows,), {"deepstack": rows * 2})
    assert given(call) == ("deepstack",)
    found = labels(call)
    assert list(found) == ["fewer rows", "more rows", "other values", "without deepstack"]
    assert [len(found[name].args[0]) for name in found] == [7, 9, 8, 8]
    assert len(found["fewer rows"].kwargs["deepstack"]) == 7
    assert torch.equal(found["more rows"].args[0][8], rows[0])
    assert not (found["other values"].args[0] == rows).any()
    assert found["without deepstack"].kwargs == {"deepstack": None}
    assert given(found["without deepstack"]) == ()
    assert labels(Caught(Block(), (rows, rows), {}))["without deepstack"].args[1] is None


def test_a_merger_takes_another_multiple_of_what_it_merges() -> None:
    found = labels(Caught(Merger(), (torch.ones(8, 16),), {}))
    assert [len(found[name].args[0]) for name in ("fewer rows", "more rows")] == [4, 12]


class Packed(nn.Module):
    """Takes rows of several sequences and where they start."""

    def forward(self, rows: Any, starts: Any) -> Any:
        return torch.cat([part.cumsum(0) for part in rows.split((starts[1:] - starts[:-1]).tolist(), dim=-2)])


class Grid(nn.Module):
    """Takes patches of several images and how large these are."""

    def forward(self, patches: Any, grid_thw: Any) -> Any:
        return torch.cat([part.cumsum(0) for part in patches.split(grid_thw.prod(1).tolist())])


def test_starts_and_sizes_of_images_follow_the_number_of_rows() -> None:
    starts = torch.tensor([0, 3, 8], dtype=torch.int32)
    found = labels(Caught(Packed(), (torch.ones(8, 2), starts), {}))
    assert found["fewer rows"].args[1].tolist() == [0, 3, 7]
    assert found["more rows"].args[1].tolist() == [0, 3, 8, 9]
    assert found["more rows"].args[1].dtype == torch.int32
    grid = torch.tensor([[1, 2, 2], [1, 1, 3]])
    found = labels(Caught(Grid(), (torch.ones(7, 2), grid), {}))
    assert found["fewer rows"].args[1].tolist() == [[1, 2, 2]]
    assert len(found["fewer rows"].args[0]) == 4
    assert found["more rows"].args[1].tolist() == [[1, 2, 2], [1, 1, 3], [1, 2, 2]]
    alone = labels(Caught(Grid(), (torch.ones(4, 2), grid[:1]), {}))
    assert "fewer rows" not in alone


def test_a_batch_of_one_is_varied_along_its_sequence() -> None:
    call = Caught(Block(), (torch.ones(1, 5, 16),), {})
    assert labels(call)["fewer rows"].args[0].shape == (1, 4, 16)
    pictures = Caught(nn.Conv2d(3, 4, 2), (torch.ones(1, 3, 8, 8),), {})
    found = labels(pictures)
    assert found["more rows"].args[0].shape == (2, 3, 8, 8)
    assert "fewer rows" not in found


def test_masks_and_inputs_without_numbers_are_left_as_they_are() -> None:
    mask = torch.tensor([0.0, torch.finfo(torch.float32).min])
    call = Caught(Block(), (torch.ones(4, 16), mask, torch.tensor([1, 2])), {})
    values = next(one for one in variants(call) if one.label == "other values").tries[0]
    assert torch.equal(values.args[1], mask)
    assert torch.equal(values.args[2], torch.tensor([1, 2]))
    empty = Caught(Block(), (), {})
    assert [one.label for one in variants(empty)] == ["other values"]


def test_what_a_module_gives_is_kept_apart_from_what_comes_later() -> None:
    class Reuses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.buffer = torch.zeros(2)

        def forward(self, rows: Any) -> Any:
            return self.buffer.copy_(rows)

    module = Reuses()
    first = made(Caught(module, (torch.ones(2),), {}))
    made(Caught(module, (torch.zeros(2),), {}))
    assert torch.equal(first[""], torch.ones(2))
