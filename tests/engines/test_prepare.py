from __future__ import annotations

import pytest

from proctor.engines.prepare import MAX_ASPECT, MIN_SIDE, decode_images
from proctor.engines.refusal import Refused, check_length
from proctor.rows import ErrorKind
from tests.engines.tiny import ask, picture


def test_images_come_out_as_rgb_in_order():
    images = decode_images(ask(1, [picture(128, 96), picture(64, 48, format_="PNG")]))
    assert [(image.mode, image.size) for image in images] == [("RGB", (128, 96)), ("RGB", (64, 48))]


def test_an_undecodable_image_is_named_by_its_place():
    with pytest.raises(Refused) as caught:
        decode_images(ask(1, [picture(), b"no image"]))
    assert caught.value.failure.kind is ErrorKind.PREPARE_DECODE
    assert caught.value.failure.message.startswith("image 2 of 2: ")


@pytest.mark.parametrize(("width", "height"), [(4000, 4), (1, 1), (3, 100), (100, 3), (4 * MAX_ASPECT + 1, 4)])
def test_degenerate_images_are_refused(width: int, height: int):
    with pytest.raises(Refused) as caught:
        decode_images(ask(1, [picture(width, height)]))
    assert caught.value.failure.kind is ErrorKind.INFER_REJECTED
    assert f"{width} x {height}" in caught.value.failure.message


def test_the_smallest_and_the_thinnest_image_pass():
    shapes = [(MIN_SIDE, MIN_SIDE), (4 * MAX_ASPECT, 4)]
    assert [image.size for image in decode_images(ask(1, [picture(*shape) for shape in shapes]))] == shapes


def test_prompt_and_answer_must_fit_together():
    check_length(200, 56, 256)
    with pytest.raises(Refused, match="200 prompt tokens and up to 57 answer tokens are more than 256"):
        check_length(200, 57, 256)
