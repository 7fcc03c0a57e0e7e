"""Blank images in the place of a row's own tell a model that looks from one that does not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from proctor.audit.blank import blank
from tests.audit.planted import audited
from tests.engines.tiny import picture

PICTURES = [picture(8 + row, 8, format_="PNG") for row in range(4)]
ARMS = {"arms": ["repeat", "images"]}


@pytest.mark.parametrize("format_", ["PNG", "JPEG"])
def test_a_blank_image_has_the_size_of_the_real_one_and_nothing_on_it(format_: str) -> None:
    with Image.open(io.BytesIO(blank(picture(40, 30, format_=format_)))) as found:
        assert found.size == (40, 30)
        assert found.getcolors() == [(40 * 30, (128, 128, 128))]
    assert blank(picture(40, 30, "red")) == blank(picture(40, 30, "blue"))


def test_what_is_no_image_stays_as_it_is() -> None:
    assert blank(b"nothing to see") == b"nothing to see"


def test_a_model_that_looks_at_its_images_is_not_suspected(tmp_path: Path) -> None:
    audit, _ = audited(tmp_path, pictures=PICTURES, rows=4, audit=ARMS)
    assert audit.verdict.kind == "no effect found"
    assert "images" not in audit.verdict.sentence.partition("Not tried")[0]
    assert not any("blank" in line for line in audit.verdict.evidence)


def test_a_model_that_looks_at_none_is_told(tmp_path: Path) -> None:
    audit, _ = audited(tmp_path, {"blind": True}, pictures=PICTURES, rows=4, audit=ARMS)
    assert "No answer depends on the images." in audit.verdict.sentence
    assert "control images=blank was not seen: no answer depends on the images" in audit.verdict.evidence


def test_rows_that_alone_are_not_looked_at_are_named(tmp_path: Path) -> None:
    audit, _ = audited(tmp_path, {"blind": True, "every": 4, "below": 2}, pictures=PICTURES, rows=4, audit=ARMS)
    assert "rows 0, 1 get the same answer, bit for bit, with blank images" in audit.verdict.evidence
    assert "No answer depends" not in audit.verdict.sentence


def test_rows_without_images_are_not_turned(tmp_path: Path) -> None:
    audit, lab = audited(tmp_path, rows=4, audit=ARMS)
    assert not lab.has_sat("images=blank")
    assert dict(audit.verdict.untried)["images"] == "no other value to try here"
