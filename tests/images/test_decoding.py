from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from proctor.images import MAX_PIXELS, DecodeError, check, decode
from tests.images.corpus import BAD, GOOD, SIZE, encoded, exif, noise


@pytest.mark.parametrize("name", GOOD)
def test_every_format_comes_back_as_plain_rgb(name: str) -> None:
    data = GOOD[name]()
    image = decode(data)
    assert (image.mode, image.size) == ("RGB", SIZE)
    assert check(data).size == SIZE
    assert len(image.tobytes()) == SIZE[0] * SIZE[1] * 3


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_shown_says_why(name: str) -> None:
    make, reason = BAD[name]
    with pytest.raises(DecodeError, match=reason) as caught:
        check(make())
    assert len(str(caught.value)) < 200
    assert "BytesIO" not in str(caught.value)


def test_pixels_of_a_plain_image_are_untouched() -> None:
    image = noise()
    assert decode(encoded(image, "PNG")).tobytes() == image.tobytes()


def test_sixteen_bit_grey_keeps_its_upper_byte() -> None:
    ramp = (np.arange(16, dtype=np.uint16) * 4096).reshape(4, 4)
    seen = np.asarray(decode(encoded(Image.fromarray(ramp), "PNG")))
    assert (seen == (ramp >> 8)[..., None]).all()


def test_transparency_lies_over_white() -> None:
    image = Image.new("RGBA", (3, 1), (200, 0, 0, 0))
    image.putpixel((1, 0), (200, 0, 0, 255))
    image.putpixel((2, 0), (200, 0, 0, 128))
    half = 255 - 128 + 200 * 128 // 255
    pixels = list(decode(encoded(image, "PNG")).get_flattened_data())
    assert pixels[:2] == [(255, 255, 255), (200, 0, 0)]
    assert abs(pixels[2][0] - half) <= 1


def test_transparent_palette_entry_lies_over_white() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    seen = decode(encoded(image, "PNG", transparency=0))
    assert list(seen.get_flattened_data()) == [(255, 255, 255), (40, 50, 60)]


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_once(format_: str, orientation: int) -> None:
    upright = Image.new("RGB", (32, 16), "white")
    upright.paste((255, 0, 0), (0, 0, 16, 8))  # red at the upper left, as a person should see it
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # the transpose that undoes each orientation
    stored = upright.transpose(Image.Transpose(back[orientation])) if orientation > 1 else upright
    seen = decode(encoded(stored, format_, exif=exif(orientation), **({"quality": 95} if format_ == "WEBP" else {})))
    assert seen.size == (32, 16)
    assert np.abs(np.asarray(seen, np.int16) - np.asarray(upright, np.int16)).mean() < 8
    assert seen.getexif().get(0x0112, 1) == 1


def test_damaged_exif_leaves_the_picture_alone() -> None:
    data = encoded(noise(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01\x03\0\xff\xff\xff\xff" * 5)
    assert check(data).size == SIZE


def test_animation_gives_its_first_frame() -> None:
    colours = [Image.new("RGB", (8, 8), name) for name in ("red", "lime", "blue")]
    data = encoded(colours[0], "GIF", save_all=True, append_images=colours[1:])
    assert decode(data).getpixel((3, 3)) == (255, 0, 0)


def test_large_images_below_the_limit_give_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert check(encoded(noise(), "PNG")).size == SIZE
    assert caught == []
    assert MAX_PIXELS == 178_956_970


def test_threads_leave_the_warning_filters_as_they_were() -> None:
    good, bad, before = encoded(noise(), "JPEG"), encoded(noise(), "JPEG")[:-400], list(warnings.filters)

    def work() -> None:
        for _ in range(30):
            check(good)
            with pytest.raises(DecodeError):
                check(bad)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before


@given(name=st.sampled_from(sorted(GOOD)), data=st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_bytes_are_decoded_or_named(name: str, data: st.DataObject) -> None:
    content = bytearray(GOOD[name]())
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content))) :]
    try:
        told = str(check(bytes(content)).size)
    except DecodeError as error:
        told = str(error)
    assert told


def test_nothing_is_needed_beyond_pillow_and_numpy() -> None:
    code = (
        "import sys; from proctor.images import check; "
        "print(sorted({'pyarrow', 'ray', 'pydantic', 'torch', 'pandas'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"
