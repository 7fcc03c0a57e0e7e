from __future__ import annotations

import pyarrow as pa
import pytest

from proctor.rows import UserError
from proctor.sources.columns import check_columns, is_json
from proctor.sources.jsonrows import JSON_METADATA
from proctor.sources.mds.encodings import parse_encoding
from proctor.spec import ColumnsSpec

SCHEMA = pa.schema(
    [
        pa.field("front_camera", pa.large_binary()),
        pa.field("frames", pa.list_(pa.large_binary())),
        pa.field("thumbnail", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("question", pa.large_string()),
        pa.field("answer", pa.struct([("surface", pa.string())])),
        pa.field("extra", pa.large_string(), metadata=JSON_METADATA),
    ]
)


@pytest.mark.parametrize(
    "columns",
    [
        ColumnsSpec(),
        ColumnsSpec(images=["front_camera", "frames", "thumbnail"]),
        ColumnsSpec(sample_id="id", target="answer", prompt="question"),
        ColumnsSpec(sample_id="question", target="extra"),
        ColumnsSpec(sample_id="extra", target="id"),
    ],
)
def test_what_fits_passes(columns: ColumnsSpec) -> None:
    assert check_columns(SCHEMA, columns) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            ColumnsSpec(images=["front_camera", "frame"]),
            "source.columns.images[1]: the source has no column 'frame' (did you mean 'frames'? it has: frames, "
            "front_camera, thumbnail, id, question, answer, extra)",
        ),
        (
            ColumnsSpec(target="zzz"),
            "source.columns.target: the source has no column 'zzz' (it has: front_camera, frames, thumbnail, id, "
            "question, answer, extra)",
        ),
        (
            ColumnsSpec(images=["id"]),
            "source.columns.images[0]: column 'id' is int64, which cannot be an image (images are bytes, text (base64, "
            "data URI, relative path), structs of bytes and path, or lists of these)",
        ),
        (
            ColumnsSpec(sample_id="answer"),
            "source.columns.sample_id: column 'answer' is struct<surface: string>, not text or a number",
        ),
        (
            ColumnsSpec(sample_id="front_camera"),
            "source.columns.sample_id: column 'front_camera' is large_binary, not text or a number",
        ),
        (ColumnsSpec(prompt="id"), "source.columns.prompt: column 'id' is int64, not text"),
        (ColumnsSpec(prompt="extra"), "source.columns.prompt: column 'extra' is JSON, not text"),
        (
            ColumnsSpec(images=["thumbnail"], target="thumbnail"),
            "source.columns.target: column 'thumbnail' is one of source.columns.images already",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_cure(columns: ColumnsSpec, message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_columns(SCHEMA, columns)
    assert str(caught.value) == message


def test_json_is_known_from_either_mark() -> None:
    assert is_json(pa.field("a", pa.large_string(), metadata=JSON_METADATA))
    assert is_json(parse_encoding("json").field("a"))
    assert not is_json(parse_encoding("str").field("a"))
