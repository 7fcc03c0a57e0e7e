from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from proctor.engines.openai_wire import completion_body
from proctor.images import DecodeError, decode, look
from proctor.images.budget import PixelBudget, QwenVLBudget, qwen_vl_budget
from proctor.images.rules import ImageRules, one_line, ppm, treat
from proctor.rows import ImagePart, Message, Request, UserError
from tests.images.corpus import GOOD, encoded, exif, noise

SMALL = QwenVLBudget(patch=16, min_pixels=1024, max_pixels=8192)


def smooth(width: int, height: int) -> Image.Image:
    return noise(size=(9, 7)).resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("name", GOOD)
def test_by_default_bytes_are_left_alone(name: str) -> None:
    data = GOOD[name]()
    assert treat(data, ImageRules()).data is data


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (encoded(noise(), "JPEG"), ()),
        (encoded(noise(), "JPEG", exif=exif(6)), ("EXIF orientation 6 applied",)),
        (encoded(noise(), "TIFF", exif=exif(6)), ("EXIF orientation 6 applied",)),
        (encoded(noise(), "PNG", exif=exif(3)), ("EXIF orientation 3 applied",)),
        (GOOD["CMYK JPEG"](), ("CMYK converted to RGB",)),
        (GOOD["RGBA PNG"](), ("transparency laid over white",)),
        (encoded(noise().convert("RGBA"), "PNG"), ()),
        (GOOD["16-bit grey PNG"](), ("16-bit channels cut to 8 bits",)),
        (GOOD["palette PNG"](), ()),
        (GOOD["grey JPEG"](), ()),
        (
            encoded(smooth(8, 8), "GIF", save_all=True, append_images=[smooth(8, 9).crop((0, 1, 8, 9))]),
            ("first picture of several",),
        ),
        (
            encoded(smooth(8, 8), "TIFF", save_all=True, append_images=[smooth(8, 8)]),
            ("first picture of several",),
        ),
    ],
)
def test_what_changes_the_picture_is_told(data: bytes, changes: tuple[str, ...]) -> None:
    assert look(data).changes == changes
    assert treat(data, ImageRules()).changes == changes


def test_a_row_s_changes_are_one_line() -> None:
    assert one_line([(), ()]) is None
    assert one_line([]) is None
    assert one_line([(), ("EXIF orientation 6 applied",)]) == "image 2: EXIF orientation 6 applied"
    turned = ("turned", "resized")
    assert one_line([turned, turned, turned, ("cut",), turned]) == "images 1-3, 5: turned, resized; image 4: cut"


def test_pixels_survive_the_journey_exactly() -> None:
    for name, make in GOOD.items():
        image = decode(make())
        again = decode(ppm(image))
        assert (again.size, again.tobytes()) == (image.size, image.tobytes()), name


def test_a_pixel_budget_is_kept_and_the_image_is_turned_only_once() -> None:
    data = encoded(smooth(320, 200), "JPEG", exif=exif(6))
    treated = treat(data, ImageRules(budget=PixelBudget(5_000)))
    picture = look(treated.data)
    assert picture.size == (55, 89)  # upright: 200 x 320, in its own proportions
    assert picture.changes == ()
    assert treated.changes == ("EXIF orientation 6 applied", "resized from 200 x 320 to 55 x 89")
    expected = decode(data).resize((55, 89), Image.Resampling.BICUBIC)
    assert picture.image.tobytes() == expected.tobytes()


def test_an_image_within_the_budget_keeps_its_bytes() -> None:
    data = encoded(smooth(320, 200), "JPEG")
    assert treat(data, ImageRules(budget=PixelBudget(320 * 200))).data is data


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1024, 10**7))
def test_a_pixel_budget_is_never_exceeded(width: int, height: int, pixels: int) -> None:
    target = PixelBudget(pixels).target(width, height)
    if target is None:
        assert width * height <= pixels
    else:
        assert min(target) >= 1
        assert target[0] * target[1] <= pixels
        assert target[0] <= width
        assert target[1] <= height


def test_the_model_s_own_size_is_taken_where_fewer_bytes_travel() -> None:
    png = encoded(noise(size=(300, 200)), "PNG")
    treated = treat(png, ImageRules(budget=SMALL))
    assert look(treated.data).size == (96, 64)
    assert len(treated.data) < len(png)
    assert treated.changes == ("resized from 300 x 200 to 96 x 64",)
    jpeg = encoded(smooth(300, 200), "JPEG", quality=30)
    assert len(jpeg) < 3 * 96 * 64
    assert treat(jpeg, ImageRules(budget=SMALL)).data is jpeg


@pytest.mark.parametrize("size", [(64, 48), (20, 20), (1, 300)])
def test_what_the_model_would_not_shrink_is_left_to_it(size: tuple[int, int]) -> None:
    assert SMALL.target(*size) is None


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_the_model_leaves_alone_what_was_resized_for_it(width: int, height: int) -> None:
    target = SMALL.target(width, height)
    if target is not None:
        assert SMALL.target(*target) is None
        assert SMALL.expansion(*target).resized == (target[1], target[0])
        assert SMALL.expansion(*target) == SMALL.expansion(width, height)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("size", [(300, 200), (640, 360), (101, 977)])
def test_the_model_gets_the_same_values_whether_resized_early_or_by_its_processor(size: tuple[int, int]) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    limits = {"shortest_edge": SMALL.min_pixels, "longest_edge": SMALL.max_pixels}
    processor = Qwen2VLImageProcessorPil(patch_size=16, merge_size=2, temporal_patch_size=2, size=limits)
    data = encoded(noise(size=size), "PNG")
    early = treat(data, ImageRules(budget=SMALL)).data
    assert early != data
    before, after = (processor(images=[decode(d)], return_tensors="np")["pixel_values"] for d in (data, early))
    assert np.array_equal(before, after)


def test_scaled_decoding_is_near_and_told() -> None:
    data = encoded(smooth(640, 400), "JPEG", quality=95, exif=exif(8))
    whole = ImageRules(budget=PixelBudget(10_000))
    scaled = ImageRules(budget=PixelBudget(10_000), scale_on_decode=True)
    exact, near = treat(data, whole), treat(data, scaled)
    size = "resized from 400 x 640 to 79 x 126"
    assert exact.changes == ("EXIF orientation 8 applied", size)
    assert near.changes == ("EXIF orientation 8 applied", "decoded at 1/4 scale", size)
    one, other = (np.asarray(decode(t.data), np.int16) for t in (exact, near))
    assert one.shape == other.shape == (126, 79, 3)
    assert 0 < np.abs(one - other).mean() < 2


def test_scaled_decoding_leaves_alone_what_no_scale_covers() -> None:
    data = encoded(smooth(640, 400), "JPEG")
    rules = ImageRules(budget=PixelBudget(640 * 400 // 2), scale_on_decode=True)
    exact = treat(data, ImageRules(budget=PixelBudget(640 * 400 // 2)))
    assert treat(data, rules) == exact


def test_a_limit_of_pixels_is_kept() -> None:
    data = encoded(noise(), "PNG")
    assert treat(data, ImageRules(max_pixels=64 * 48)).data is data
    with pytest.raises(DecodeError, match=r"^too large: 64 x 48 = 3,072 pixels, the limit is 3,071$"):
        treat(data, ImageRules(max_pixels=64 * 48 - 1))


def written(directory: Path, name: str, content: Any) -> Path:
    (directory / name).write_text(json.dumps(content))
    return directory


QWEN3 = {
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "size": {"shortest_edge": 65_536, "longest_edge": 16_777_216},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "resample": 3,
}


def test_the_budget_is_read_from_the_checkpoint(tmp_path: Path) -> None:
    written(tmp_path, "preprocessor_config.json", QWEN3)
    assert qwen_vl_budget(tmp_path) == QwenVLBudget(16, 2, 2, 65_536, 16_777_216)
    arguments = {"max_pixels": 501_760}
    assert qwen_vl_budget(tmp_path, arguments) == QwenVLBudget(16, 2, 2, 65_536, 501_760)
    older = {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 12_845_056}
    written(tmp_path, "processor_config.json", {"image_processor": older})
    assert qwen_vl_budget(tmp_path) == QwenVLBudget(14, 2, 2, 3136, 12_845_056)


def test_the_demo_s_checkpoints_have_a_budget() -> None:
    import proctor.demo

    shared = Path(proctor.demo.__file__).parent / "weights" / "shared"
    assert qwen_vl_budget(shared) == QwenVLBudget(16, 2, 2, 1024, 65_536)


@pytest.mark.parametrize("config", [{"image_processor_type": "CLIPImageProcessor"}, {**QWEN3, "do_resize": False}])
def test_other_processors_have_none(tmp_path: Path, config: dict[str, Any]) -> None:
    assert qwen_vl_budget(written(tmp_path, "preprocessor_config.json", config)) is None


def test_a_checkpoint_without_an_image_processor_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no preprocessor_config\.json"):
        qwen_vl_budget(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(UserError, match=r"preprocessor_config\.json cannot be read"):
        qwen_vl_budget(tmp_path)


def test_a_server_gets_a_resized_image_as_png_of_the_same_pixels() -> None:
    image = smooth(33, 21)
    request = Request(0, (Message("user", (ImagePart(),)),), (ppm(image),))
    url = completion_body(request, "model")["messages"][0]["content"][0]["image_url"]["url"]
    head, _, text = url.partition(",")
    assert head == "data:image/png;base64"
    assert Image.open(BytesIO(base64.b64decode(text))).tobytes() == image.tobytes()
