"""A JPEG has one set of pixels and one verdict, whichever way it is decoded: wholly, at a glance, by simplejpeg."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from proctor.images import DecodeError, check, jpeg, look, pixels
from tests.images.corpus import BAD, GOOD, encoded, exif, noise


def outcome(way: Callable[[bytes], Any], data: bytes) -> Any:
    """What `way` makes of the image, or the words in which it refuses it."""
    try:
        return way(data)
    except DecodeError as error:
        return str(error)


def same_every_way(data: bytes) -> tuple[int, int] | str:
    """The size of the image, or why it is refused."""
    picture, checked, array = (outcome(way, data) for way in (look, check, pixels))
    if isinstance(picture, str):
        assert checked == array == picture
        return picture
    assert (checked.size, checked.changes) == (picture.size, picture.changes)
    assert picture.image.size == picture.size
    assert np.array_equal(array, np.asarray(picture.image))
    size: tuple[int, int] = picture.size
    return size


def test_simplejpeg_is_at_work_here() -> None:
    assert jpeg.is_exact()
    data = encoded(noise(), "JPEG")
    exact = jpeg.exact_pixels(JpegImageFile(BytesIO(data)), data)
    assert exact is not None
    assert exact.shape == (48, 64, 3)


@pytest.mark.parametrize("name", GOOD)
def test_the_corpus_has_the_same_pixels(name: str) -> None:
    assert same_every_way(GOOD[name]()) == (64, 48)


@pytest.mark.parametrize("name", BAD)
def test_the_corpus_is_refused_in_the_same_words(name: str) -> None:
    assert isinstance(same_every_way(BAD[name][0]()), str)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_images_are_the_same(orientation: int) -> None:
    size = same_every_way(encoded(noise(), "JPEG", exif=exif(orientation)))
    assert size == ((48, 64) if orientation >= 5 else (64, 48))


@pytest.mark.parametrize("samp", [0, 1, 2])
def test_jpegs_of_another_encoder_are_the_same(samp: int) -> None:
    array = np.ascontiguousarray(np.asarray(noise(size=(37, 53))))
    data = simplejpeg.encode_jpeg(array, 85, colorsubsampling=["444", "422", "420"][samp])
    assert same_every_way(data) == (37, 53)


@given(
    size=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    mode=st.sampled_from(["RGB", "L", "CMYK"]),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    progressive=st.booleans(),
    keep_rgb=st.booleans(),
    restart=st.integers(0, 3),
    smooth=st.booleans(),
)
@settings(max_examples=250)
def test_jpegs_of_every_kind_have_the_same_pixels(
    size: tuple[int, int],
    mode: str,
    quality: int,
    subsampling: str,
    progressive: bool,
    keep_rgb: bool,
    restart: int,
    smooth: bool,
) -> None:
    image = noise(mode, size)
    if smooth:
        image = image.resize((7, 5)).resize(size, Image.Resampling.BICUBIC)
    options = {"keep_rgb": True} if keep_rgb and mode == "RGB" else {"subsampling": subsampling}
    data = encoded(image, "JPEG", quality=quality, progressive=progressive, restart_marker_blocks=restart, **options)
    assert same_every_way(data) == size


@given(data=st.data(), progressive=st.booleans())
@settings(max_examples=250)
def test_damaged_jpegs_end_in_the_same_way(data: st.DataObject, progressive: bool) -> None:
    content = bytearray(encoded(noise(size=(40, 24)), "JPEG", progressive=progressive))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(3, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(len(content) // 2, len(content))) :]
    assert same_every_way(bytes(content))


def test_pillow_with_another_libjpeg_decodes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jpeg.features, "check_feature", lambda name: False)
    jpeg.is_exact.cache_clear()
    try:
        assert not jpeg.is_exact()
        assert same_every_way(GOOD["baseline JPEG"]()) == (64, 48)
    finally:
        jpeg.is_exact.cache_clear()
