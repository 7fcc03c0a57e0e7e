"""The difference on its way through a decoder, and after attention is no longer split."""

from __future__ import annotations

import msgspec
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from proctor.audit.attention.decoder import Decoder
from proctor.audit.attention.depth import Grown, grow, tokens
from proctor.audit.attention.plan import Depth
from proctor.audit.attention.switchback import TOY, switch_back
from proctor.audit.attention.ways import single

SHAPE = Depth(layers=16, heads=2, vocabulary=512, steps=4)
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}


@pytest.fixture(scope="module")
def found() -> list[Grown]:
    return list(grow(SHAPE))


def test_the_difference_grows_more_slowly_than_the_layers(found: list[Grown]) -> None:
    for each in found:
        assert len(each.by_layer) == SHAPE.layers
        assert each.growth is not None
        assert 2 < each.growth < SHAPE.layers
        assert 0.3 < each.by_layer[0] / ROUNDING[each.dtype] < 10


def test_split_and_single_pass_are_equally_far_from_the_truth(found: list[Grown]) -> None:
    for each in found:
        assert 0.8 < each.split[-1] / each.single[-1] < 1.25
        assert 0.5 < each.by_layer[-1] / each.single[-1] < 2


def test_in_float64_the_single_pass_is_the_truth_itself(found: list[Grown]) -> None:
    (double,) = grow(msgspec.structs.replace(SHAPE, dtypes=("float64",), layers=3))
    assert double.single == (0, 0, 0)
    assert double.by_layer == double.split
    assert all(1e-17 < each < 1e-13 for each in double.split)
    assert all(each.by_layer != each.split and each.single != each.split for each in found)


def test_half_precision_changes_every_logprob_and_few_answers(found: list[Grown]) -> None:
    full, brain, half = found
    assert full.positions == SHAPE.prompts * SHAPE.positions
    assert full.top1_equal == full.positions
    assert full.shift < 1e-4
    assert full.diverged == (None,) * SHAPE.prompts
    for each, low in ((brain, 1e-3), (half, 1e-4)):
        assert each.logprob_equal < 0.2 * each.positions
        assert each.top1_equal >= 0.8 * each.positions
        assert low < each.shift < 0.5


def test_tokens_part_only_where_two_are_nearly_as_likely(found: list[Grown]) -> None:
    for each in found:
        for step, margin in zip(each.diverged, each.margins, strict=True):
            assert (step is None) == (margin is None)
            if margin is not None:
                assert margin <= 4 * max(each.shift, 1e-6)


def test_greedy_tokens_part_in_bfloat16_over_several_prompts() -> None:
    shape = msgspec.structs.replace(SHAPE, dtypes=("bfloat16",), layers=12, prompts=12, steps=16)
    (found,) = grow(shape)
    parted = [step for step in found.diverged if step is not None]
    assert parted
    assert all(0 <= step < shape.steps for step in parted)


def test_the_decoder_is_one() -> None:
    """One token at a time gives what all at once give, and attention is causal."""
    shape = Depth(layers=3, heads=2, dim=16, vocabulary=64, prefix=1, prompts=2, positions=6)
    decoder = Decoder(shape, "float64")
    _, given = tokens(shape, 6)
    with torch.no_grad():
        start = decoder.empty().repeated(2)
        whole = decoder.run(given, start, single)
        cache, steps = start, []
        for step in range(6):
            passed = decoder.run(given[:, step : step + 1], cache, single)
            cache = passed.cache
            steps.append(passed.logits)
        torch.testing.assert_close(torch.cat(steps, 1), whole.logits)
        changed = given.clone()
        changed[:, -1] = (changed[:, -1] + 1) % 64
        torch.testing.assert_close(decoder.run(changed, start, single).logits[:, :-1], whole.logits[:, :-1])
        causal = decoder.run(given, start, lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True))
        torch.testing.assert_close(causal.logits, whole.logits)


def test_weights_of_a_format_are_those_of_another_rounded() -> None:
    shape = Depth(layers=1, heads=1, dim=16, vocabulary=32)
    full, half = Decoder(shape, "float32"), Decoder(shape, "bfloat16")
    assert torch.equal(full.head.bfloat16(), half.head)
    assert torch.equal(half.double().layers[0].down, half.layers[0].down.double())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_switching_back_does_not_take_the_difference_away(dtype: str) -> None:
    (found,) = switch_back(msgspec.structs.replace(TOY, dtypes=(dtype,)))
    assert found.after.positions == 24
    assert found.during.equal == found.after.equal == 0
    assert 0 < found.after.logits_equal < 0.9
    assert found.after.shift > 0
    assert found.restored.equal == found.restored.logprob_equal == 24
    assert (found.restored.logits_equal, found.restored.shift) == (1, 0)
