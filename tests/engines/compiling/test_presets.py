"""The presets against the classes that transformers has: every target is one graph for any number of images."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")
pytest.importorskip("transformers", reason="needs the `transformers` extra")

from proctor.engines.compiling.apply import compile_in_place, undo  # noqa: E402
from proctor.engines.compiling.attention import NAME, REPLACED, packed_attention  # noqa: E402
from proctor.engines.compiling.presets import PRESETS, preset_of  # noqa: E402
from proctor.engines.compiling.settings import Compile  # noqa: E402
from proctor.engines.compiling.targets import encoder_of, find_targets  # noqa: E402
from proctor.rows import UserError  # noqa: E402
from tests.engines.compiling.towers import TOWERS, batch, outputs, tower  # noqa: E402

EAGER = Compile(backend="eager")


@pytest.fixture(autouse=True)
def as_an_engine_runs_it() -> Iterator[None]:
    """Elsewhere a block whose input is a view has a graph of its own."""
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("family", TOWERS)
def test_a_family_has_its_targets(family: str):
    encoder = tower(family)
    assert encoder_of(encoder) == ""
    assert {target.name: len(target.modules) for target in find_targets(encoder)} == TOWERS[family].targets


@pytest.mark.parametrize("family", TOWERS)
def test_they_are_found_inside_of_a_model_too(family: str):
    model = torch.nn.ModuleDict({"language": torch.nn.Linear(2, 2), "eyes": tower(family)})
    assert encoder_of(model) == "eyes"
    found = find_targets(model)
    assert {target.name: len(target.modules) for target in found} == TOWERS[family].targets
    assert all(name.startswith("eyes.") for target in found for name in target.modules)


def test_its_language_model_is_refused():
    """As transformers' own class has it; without weights."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = TOWERS["Qwen3-VL"].arguments | {"out_hidden_size": 32}
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=text, vision_config=vision))
    assert find_targets(model, ["model.visual.blocks.*"])[0].modules == find_targets(model)[1].modules
    for pattern in ("lm_head", "model.language_model.layers.*", "*.embed_tokens"):
        with pytest.raises(UserError, match="is the language model"):
            find_targets(model, [pattern])


def test_a_projector_beside_the_encoder_is_a_target():
    model = torch.nn.ModuleDict({"tower": tower("InternVL"), "multi_modal_projector": torch.nn.Linear(2, 2)})
    assert find_targets(model, ["projector"])[0].modules == ("multi_modal_projector",)


@pytest.mark.slow
@pytest.mark.parametrize("family", TOWERS)
def test_every_target_is_one_graph_for_any_number_of_images(family: str):
    """One more for a batch of a single image, where the images are a dimension: a size of 1 is always a constant."""
    encoder = tower(family)
    names, counts = list(encoder.state_dict()), (2, 3, 5, 1, 4)
    expected = {images: outputs(encoder, batch(family, images)) for images in counts}
    targets = find_targets(encoder)
    watch = compile_in_place(encoder, targets, EAGER)
    for images in counts:
        found = outputs(encoder, batch(family, images))
        assert all(map(torch.equal, found, expected[images]))
        assert len(found) == len(expected[images])
    most = 1 if TOWERS[family].inputs == "packed" else 2
    assert {name: (seen.graphs, seen.breaks) for name, seen in watch.counters.items()} == {
        target.name: (most, ()) for target in targets
    }
    assert list(encoder.state_dict()) == names
    undo(encoder, targets)
    again = outputs(encoder, batch(family, 2))
    assert all(map(torch.equal, again, expected[2]))
    assert encoder.config._attn_implementation == REPLACED


def test_the_configuration_that_the_model_was_made_with_stays_as_it_is():
    """So another model can be made with it; the operator is in a copy, of which the modules alone know."""
    encoder = tower("Qwen3-VL")
    config = encoder.config
    targets = find_targets(encoder, ["blocks"])
    compile_in_place(encoder, targets, EAGER)
    assert config._attn_implementation == REPLACED
    assert encoder.config._attn_implementation == encoder.blocks[0].attn.config._attn_implementation == NAME
    assert type(encoder)(config).config._attn_implementation == REPLACED
    undo(encoder, targets)
    assert encoder.config is config


@pytest.mark.slow
def test_without_blocks_the_attention_is_left_alone():
    encoder = tower("Qwen3-VL")
    compile_in_place(encoder, find_targets(encoder, ["merger"]), EAGER)
    outputs(encoder, batch("Qwen3-VL", 2))
    assert encoder.config._attn_implementation == REPLACED


@pytest.mark.slow
def test_an_attention_of_another_kind_stays_and_takes_a_graph_for_each_number_of_images():
    """`eager` goes through the images one by one, and there is no operator for it."""
    encoder = tower("Qwen3-VL", attn_implementation="eager")
    expected = {images: outputs(encoder, batch("Qwen3-VL", images)) for images in (1, 2)}
    watch = compile_in_place(encoder, find_targets(encoder, ["blocks"]), EAGER)
    for images in (1, 2):
        found = outputs(encoder, batch("Qwen3-VL", images))
        assert all(map(torch.equal, found, expected[images]))
        assert watch.changes()["blocks"].graphs == 1
    assert encoder.config._attn_implementation == "eager"


@pytest.mark.parametrize("lengths", [(5,), (3, 4), (1, 2, 6)])
def test_packed_attention_is_that_of_each_image(lengths: tuple[int, ...]):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, sum(lengths), 8, generator=generator) for _ in range(3))
    starts = torch.tensor([0, *lengths]).cumsum(0)
    found = packed_attention(query, key, value, starts, 0.25)
    assert found.is_contiguous()
    begin = 0
    for length in lengths:
        rows = slice(begin, begin + length)
        scores = query[:, :, rows] @ key[:, :, rows].transpose(2, 3) * 0.25
        expected = (scores.softmax(-1) @ value[:, :, rows]).transpose(1, 2)
        torch.testing.assert_close(found[:, rows], expected)
        begin += length


def test_the_compiler_knows_the_shape_and_the_layout_of_packed_attention():
    """PyTorch's own check of an operator: its fake answer is laid out as its real one."""
    query, key, value = (torch.randn(1, 2, 7, 8) for _ in range(3))
    arguments = (query, key, value, torch.tensor([0, 3, 7]), None)
    torch.library.opcheck(packed_attention, arguments, test_utils=("test_schema", "test_faketensor"))


def test_no_class_has_two_presets():
    classes = [name for preset in PRESETS for name in preset.encoders]
    assert len(set(classes)) == len(classes)
    assert preset_of("SomethingElse") is None
