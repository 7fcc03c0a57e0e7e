"""simplejpeg and Pillow must give one and the same: pixels, changes, refusals and their words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from proctor.images import DecodeError, decoding, jpeg, look
from proctor.images.decoding import Picture
from tests.images.corpus import BAD, GOOD, encoded, exif, noise


@contextmanager
def pillow_alone() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "exact_pixels", lambda image, data: None)
        yield


def outcome(data: bytes) -> tuple[object, ...]:
    try:
        picture: Picture = look(data)
    except DecodeError as error:
        return ("refused", str(error))
    return (picture.size, picture.changes, picture.image.mode, picture.image.size, picture.image.tobytes())


def same_both_ways(data: bytes) -> tuple[object, ...]:
    fast = outcome(data)
    with pillow_alone():
        assert fast == outcome(data)
    return fast


def test_simplejpeg_is_at_work_here() -> None:
    assert jpeg.is_exact()
    data = encoded(noise(), "JPEG")
    pixels = jpeg.exact_pixels(JpegImageFile(BytesIO(data)), data)
    assert pixels is not None
    assert pixels.shape == (48, 64, 3)


@pytest.mark.parametrize("name", GOOD)
def test_the_corpus_has_the_same_pixels(name: str) -> None:
    assert same_both_ways(GOOD[name]())[0] == (64, 48)


@pytest.mark.parametrize("name", BAD)
def test_the_corpus_is_refused_in_the_same_words(name: str) -> None:
    assert same_both_ways(BAD[name][0]())[0] == "refused"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_images_are_the_same(orientation: int) -> None:
    size = same_both_ways(encoded(noise(), "JPEG", exif=exif(orientation)))[0]
    assert size == ((48, 64) if orientation >= 5 else (64, 48))


@pytest.mark.parametrize("samp", [0, 1, 2])
def test_jpegs_of_another_encoder_are_the_same(samp: int) -> None:
    pixels = np.ascontiguousarray(np.asarray(noise(size=(37, 53))))
    data = simplejpeg.encode_jpeg(pixels, 85, colorsubsampling=["444", "422", "420"][samp])
    assert same_both_ways(data)[0] == (37, 53)


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
    assert same_both_ways(data)[0] == size


@given(data=st.data(), progressive=st.booleans())
@settings(max_examples=250)
def test_damaged_jpegs_end_in_the_same_way(data: st.DataObject, progressive: bool) -> None:
    content = bytearray(encoded(noise(size=(40, 24)), "JPEG", progressive=progressive))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(3, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(len(content) // 2, len(content))) :]
    assert same_both_ways(bytes(content))


def test_pillow_with_another_libjpeg_decodes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jpeg.features, "check_feature", lambda name: False)
    jpeg.is_exact.cache_clear()
    try:
        assert not jpeg.is_exact()
        assert look(GOOD["baseline JPEG"]()).size == (64, 48)
    finally:
        jpeg.is_exact.cache_clear()
