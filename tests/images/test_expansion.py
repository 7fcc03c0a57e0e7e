from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from proctor.images.expansion import (
    BFLOAT16_BYTES,
    Expansion,
    qwen_vl_expansion,
    qwen_vl_resized,
    qwen_vl_video_expansion,
)

QWEN2 = {"patch": 14, "min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280}
SIZES = [(1, 1), (1, 200), (13, 40), (28, 28), (48, 16), (100, 100), (33, 719), (480, 640), (720, 1280), (1500, 30)]


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (1080, 1920, Expansion((1088, 1920), 8_160, 2_040, 50_135_040)),
        (2160, 3840, Expansion((2176, 3840), 32_640, 8_160, 200_540_160)),
        (720, 1280, Expansion((704, 1280), 3_520, 880, 21_626_880)),
        (360, 640, Expansion((352, 640), 880, 220, 5_406_720)),
        (100, 100, Expansion((256, 256), 256, 64, 1_572_864)),
    ],
)
def test_qwen3_vl_at_usual_sizes(height: int, width: int, expected: Expansion) -> None:
    assert qwen_vl_expansion(height, width) == expected
    assert expected.pixel_values_bytes == 24 * expected.resized[0] * expected.resized[1]


def test_bfloat16_is_half() -> None:
    assert qwen_vl_expansion(1080, 1920, value_bytes=BFLOAT16_BYTES).pixel_values_bytes == 12 * 1088 * 1920


def test_qwen2_vl_keeps_to_its_own_budget() -> None:
    expected = Expansion((728, 1316), 4_888, 1_222, 24 * 728 * 1316)
    assert qwen_vl_expansion(1080, 1920, **QWEN2) == expected
    assert QWEN2["max_pixels"] >= 728 * 1316


@pytest.mark.parametrize(("height", "width"), [(402, 2), (2, 402), (1, 201)])
def test_an_image_too_thin_is_refused(height: int, width: int) -> None:
    with pytest.raises(ValueError, match=r"aspect ratio of 201, Qwen-VL takes at most 200"):
        qwen_vl_resized(height, width)
    assert qwen_vl_resized(200, 1) == (3648, 32)


def test_an_image_without_pixels_is_refused() -> None:
    with pytest.raises(ValueError, match="an image of 0 x 5 pixels"):
        qwen_vl_resized(5, 0)


def test_a_thin_image_keeps_at_least_one_merged_patch_of_height() -> None:
    assert qwen_vl_resized(100, 20_000, max_pixels=65_536) == (32, 3616)


def test_video_frames_come_in_pairs() -> None:
    four = qwen_vl_video_expansion(4, 360, 640, max_pixels=10**9)
    assert four == Expansion((352, 640), 2 * 880, 2 * 220, 2 * 5_406_720)
    assert qwen_vl_video_expansion(3, 360, 640, max_pixels=10**9) == four
    with pytest.raises(ValueError, match="1 frames are fewer than the 2"):
        qwen_vl_video_expansion(1, 360, 640)


def test_the_pixel_budget_of_a_video_is_for_all_frames_or_for_each() -> None:
    together = qwen_vl_video_expansion(8, 720, 1280)
    assert together.resized == (224, 416)
    assert 8 * 224 * 416 <= 786_432
    assert qwen_vl_video_expansion(8, 720, 1280, budget_per_frame=True).resized == (640, 1152)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("patch", [14, 16])
@pytest.mark.parametrize("limits", [(56 * 56, 28 * 28 * 1280), (65_536, 400_000), (1024, 65_536)])
def test_it_is_what_the_processor_of_transformers_returns(patch: int, limits: tuple[int, int]) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    size = {"shortest_edge": limits[0], "longest_edge": limits[1]}
    processor = Qwen2VLImageProcessorPil(patch_size=patch, merge_size=2, temporal_patch_size=2, size=size)
    for height, width in SIZES:
        image = Image.fromarray(np.zeros((height, width, 3), np.uint8))
        out = processor(images=[image], return_tensors="np")
        ours = qwen_vl_expansion(height, width, patch=patch, min_pixels=limits[0], max_pixels=limits[1])
        _, rows, columns = (int(n) for n in out["image_grid_thw"][0])
        assert ours.resized == (rows * patch, columns * patch)
        assert (ours.patches, ours.pixel_values_bytes) == (len(out["pixel_values"]), out["pixel_values"].nbytes)
        assert ours.tokens == ours.patches // 4


@pytest.mark.slow
@pytest.mark.model
def test_a_video_is_resized_as_transformers_does() -> None:
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize

    for height, width in SIZES:
        for frames in (2, 3, 5, 64):
            for limits in ((131_072, 786_432), (4_096, 25_165_824)):
                ours = qwen_vl_video_expansion(frames, height, width, min_pixels=limits[0], max_pixels=limits[1])
                assert ours.resized == smart_resize(frames, height, width, 2, 32, *limits)
