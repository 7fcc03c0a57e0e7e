from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")

from proctor.engines.compiling.targets import encoder_of, find_targets  # noqa: E402
from proctor.rows import UserError  # noqa: E402
from tests.engines.compiling.toy import Encoder, Model  # noqa: E402


def blocks(prefix: str, count: int = 4) -> tuple[str, ...]:
    return tuple(f"{prefix}.{number}" for number in range(count))


def test_an_unknown_family_has_the_repeated_blocks_of_its_encoder():
    """Not those of its language model, though that has more of them."""
    model = Model()
    assert encoder_of(model) == "visual"
    found = {target.name: target.modules for target in find_targets(model)}
    assert found == {"blocks": blocks("visual.blocks"), "visual.deep": blocks("visual.deep", 2)}


def test_a_bare_encoder_has_its_repeated_blocks():
    encoder = Encoder()
    assert encoder_of(encoder) == ""
    assert [target.name for target in find_targets(encoder)] == ["blocks", "deep"]


def test_a_list_called_blocks_that_is_not_the_longest_keeps_its_own_name():
    encoder = Encoder(blocks=2)
    encoder.other = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
    found = {target.name: target.modules for target in find_targets(encoder)}
    assert found["blocks"] == blocks("other", 3)
    assert found["blocks.*"] == blocks("blocks", 2)


def test_targets_are_named_or_given_by_patterns():
    found = find_targets(Model(), ["visual.merger", "visual.blocks.*.mlp", "visual.deep"])
    assert [target.name for target in found] == ["visual.merger", "visual.blocks.*.mlp", "visual.deep"]
    assert found[0].modules == ("visual.merger",)
    assert found[1].modules == tuple(f"visual.blocks.{number}.mlp" for number in range(4))


def test_a_pattern_takes_the_outermost_of_what_fits_it():
    (found,) = find_targets(Model(), ["visual.blocks.*"])
    assert found.modules == blocks("visual.blocks")


def test_a_name_that_fits_nothing_is_answered_with_what_there_is():
    with pytest.raises(UserError, match="'block'") as caught:
        find_targets(Model(), ["block"])
    assert caught.value.where == "engine.compile.targets"
    assert "blocks, visual.deep" in (caught.value.fix or "")
    assert "visual.blocks.*" in (caught.value.fix or "")


def test_a_pattern_that_takes_in_more_than_the_encoder_is_refused():
    model = torch.nn.Sequential()
    model.add_module("model", Model())
    with pytest.raises(UserError, match=r"\* takes in model, which is more than the vision encoder \(model\.visual\)"):
        find_targets(model, ["*"])
    assert find_targets(model, ["model.visual"])[0].modules == ("model.visual",)


class Speaking(torch.nn.Module):
    """Says of itself what of it is the language model, as transformers' models do."""

    def __init__(self, encoder: str = "visual") -> None:
        super().__init__()
        self.model = torch.nn.Module()
        self.model.add_module(encoder, Encoder(blocks=2))
        self.model.add_module("bridge", torch.nn.Linear(2, 2))
        self.model.add_module("text", torch.nn.ModuleDict({"layers": torch.nn.ModuleList(map(_layer, range(6)))}))
        self.head = torch.nn.Linear(2, 2)

    def get_decoder(self) -> torch.nn.Module:
        return self.model.get_submodule("text")

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.head


def _layer(_: int) -> torch.nn.Module:
    return torch.nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("pattern", "part"),
    [("head", "head"), ("model.text.layers.*", "model.text"), ("model.text", "model.text"), ("*.layers", "model.text")],
)
def test_parts_of_the_language_model_are_refused(pattern: str, part: str):
    with pytest.raises(UserError, match=f"but {part} is the language model, which is not compiled here") as caught:
        find_targets(Speaking(), ["blocks", pattern])
    assert caught.value.where == "engine.compile.targets"
    assert caught.value.fix == "name parts of the vision encoder, such as model.visual.*"


def test_what_stands_between_the_encoder_and_the_language_model_is_a_target():
    assert find_targets(Speaking(), ["model.bridge"])[0].modules == ("model.bridge",)


def test_the_layers_of_the_language_model_are_no_blocks_where_no_encoder_is_found():
    model = Speaking(encoder="somewhere")
    assert encoder_of(model) == ""
    found = {target.name: target.modules for target in find_targets(model)}
    assert found["blocks"] == blocks("model.somewhere.blocks", 2)
    assert not any(name.startswith("model.text") for modules in found.values() for name in modules)


def test_what_holds_the_encoder_too_is_not_the_language_model():
    """A model that says no more of itself is believed."""

    class Whole(Speaking):
        def get_decoder(self) -> torch.nn.Module:
            return self.model

    assert find_targets(Whole(), ["model.visual.blocks.*"])[0].modules == blocks("model.visual.blocks", 2)


@pytest.mark.parametrize("other", ["visual.blocks.1", "*.mlp", "visual"])
def test_targets_that_overlap_are_refused(other: str):
    with pytest.raises(UserError, match="is in two targets"):
        find_targets(Model(), ["blocks", other])


def test_a_model_with_nothing_repeated_is_refused():
    with pytest.raises(UserError, match="no repeated blocks"):
        find_targets(torch.nn.Sequential(torch.nn.Linear(2, 2)))
