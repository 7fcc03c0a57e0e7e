from __future__ import annotations

import base64
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.rows import ErrorKind
from proctor.sources.cells import IMAGE, IMAGES, CellError, image_bytes, image_type
from proctor.sources.files import LocalFolder
from tests.sources.support import picture

PNG = picture()
TEXT = base64.b64encode(PNG).decode()


def fault(cell: Any, root: Path | None) -> tuple[ErrorKind, str]:
    with pytest.raises(CellError) as caught:
        image_bytes(cell, None if root is None else LocalFolder(root))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.kind, again.message) == (caught.value.kind, caught.value.message)
    return caught.value.kind, caught.value.message


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "0001").write_bytes(PNG)
    (folder / "a b.png").write_bytes(PNG)
    (tmp_path / "secret.png").write_bytes(PNG)
    return folder


@pytest.mark.parametrize(
    "cell",
    [
        PNG,
        TEXT,
        f"data:image/png;base64,{TEXT}",
        "\r\n".join(TEXT[start : start + 76] for start in range(0, len(TEXT), 76)),
        base64.urlsafe_b64encode(PNG).decode(),
        "a b.png",
        "images/0001",
        "./images//0001",
        {"bytes": PNG, "path": "elsewhere.png"},
        {"bytes": None, "path": "a b.png"},
        {"path": "a b.png"},
    ],
)
def test_every_form_gives_the_same_bytes(cell: Any, root: Path) -> None:
    assert image_bytes(cell, LocalFolder(root)) == PNG


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF"])
def test_base64_of_every_format_is_known_from_a_path(format_: str) -> None:
    data = picture(format_=format_)
    assert image_bytes(base64.b64encode(data).decode(), None) == data


@given(st.binary(min_size=3072))
@settings(max_examples=20)
def test_long_text_is_base64(data: bytes) -> None:
    assert image_bytes(base64.b64encode(data).decode(), None) == data


def test_null_stays_null_and_a_data_uri_may_be_plain(root: Path) -> None:
    assert image_bytes(None, LocalFolder(root)) is None
    assert image_bytes({"bytes": None, "path": None}, LocalFolder(root)) is None
    assert image_bytes("data:text/plain,a%20b", LocalFolder(root)) == b"a b"


@pytest.mark.parametrize(
    "name", ["../secret.png", "images/../../secret.png", "/etc/passwd", "", ".", "/", "link.png", "loop/x.png", "a\0b"]
)
def test_no_path_leaves_the_directory(name: str, root: Path) -> None:
    (root / "link.png").symlink_to(root.parent / "secret.png")
    (root / "loop").symlink_to(root.parent)
    kind, message = fault(name, root)
    assert kind in (ErrorKind.READ_CORRUPT, ErrorKind.READ_MISSING)
    assert repr(name)[1:-1] in message or not name
    assert str(root) not in message


def test_a_link_inside_the_directory_is_followed(root: Path) -> None:
    (root / "inside.png").symlink_to(root / "a b.png")
    assert image_bytes("inside.png", LocalFolder(root)) == PNG


def test_what_is_no_plain_file_is_refused(root: Path) -> None:
    os.mkfifo(root / "pipe.png")
    (root / "circle.png").symlink_to(root / "circle.png")
    assert fault("pipe.png", root) == (ErrorKind.READ_CORRUPT, "not a regular file: 'pipe.png'")
    assert fault("images", root) == (ErrorKind.READ_CORRUPT, "not a regular file: 'images'")
    assert fault("circle.png", root)[0] is ErrorKind.READ_MISSING


def test_a_missing_file_and_one_that_cannot_be_read_now(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault("images/0002.png", root) == (
        ErrorKind.READ_MISSING,
        "No such file or directory: 'images/0002.png'",
    )
    assert fault("x" * 300 + ".png", root)[0] is ErrorKind.READ_MISSING

    def broken(_self: Path) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", broken)
    assert fault("a b.png", root) == (ErrorKind.READ_FAILED, "Input/output error: 'a b.png'")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("data:image/png;base64", "data URI without a comma"),
        ("data:image/png;base64,AB*D", "not base64"),
        (TEXT[:-1], "not base64"),
        ("/data/a.png", "an absolute path: give it relative to the data's directory: '/data/a.png'"),
        ("../a.png", "not a path below the data's directory: '../a.png'"),
        ("s3://bucket/a.png", "URLs are not fetched"),
        (7, "an image cannot be a int"),
    ],
)
def test_a_wrong_cell_says_what_is_wrong(cell: Any, message: str, root: Path) -> None:
    kind, text = fault(cell, root)
    assert kind is ErrorKind.READ_CORRUPT
    assert message in text
    assert len(text) < 250


def test_without_a_directory_paths_are_refused() -> None:
    assert "neither base64 nor a data URI" in fault("a.png", None)[1]


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (pa.binary(), IMAGE),
        (pa.binary(16), IMAGE),
        (pa.binary_view(), IMAGE),
        (pa.string(), IMAGE),
        (pa.dictionary(pa.int32(), pa.string()), IMAGE),
        (pa.struct([("bytes", pa.binary()), ("path", pa.string())]), IMAGE),
        (pa.list_(pa.large_binary()), IMAGES),
        (pa.list_(pa.binary(), 2), IMAGES),
        (pa.large_list(pa.string()), IMAGES),
        (pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())])), IMAGES),
        (pa.int64(), None),
        (pa.null(), None),
        (pa.struct([("pixels", pa.list_(pa.uint8()))]), None),
        (pa.list_(pa.list_(pa.binary())), None),
    ],
)
def test_types_of_image_columns(type_: pa.DataType, expected: pa.DataType | None) -> None:
    assert image_type(type_) == expected
