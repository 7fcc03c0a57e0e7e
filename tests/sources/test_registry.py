from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.columns import check_columns
from proctor.sources.huggingface import HuggingFaceSource
from proctor.sources.imagefolder import ImageFolderSource
from proctor.sources.jsonl import JsonlSource
from proctor.sources.lancedata import LanceSource
from proctor.sources.mds import MDSSource, MDSWriter
from proctor.sources.parquet import ParquetSource
from proctor.sources.registry import make_source
from proctor.sources.webdataset import WebDatasetSource
from proctor.spec import (
    ColumnsSpec,
    HuggingFaceSourceSpec,
    ImageFolderSourceSpec,
    JsonlSourceSpec,
    LanceSourceSpec,
    MdsSourceSpec,
    ParquetSourceSpec,
    SourceSpec,
    WebDatasetSourceSpec,
)
from tests.sources.support import column, picture, read_rows, save, write_jsonl, write_tar


def write_all(folder: Path) -> None:
    """The same ten rows in every format."""
    (folder / "images").mkdir()
    rows = [{"n": n, "image": f"images/{n}.png"} for n in range(10)]
    images = [picture(n) for n in range(10)]
    for row, image in zip(rows, images, strict=True):
        (folder / str(row["image"])).write_bytes(image)
    write_jsonl(folder / "images" / "metadata.jsonl", [{"file_name": f"{n}.png", "n": n} for n in range(10)])
    write_jsonl(folder / "a.jsonl", rows)
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet", row_group_size=3)
    with_bytes = [{"n": n, "image": image} for n, image in enumerate(images)]
    with MDSWriter(folder / "mds", {"n": "int", "image": "png"}) as writer:
        for row in with_bytes:
            writer.write(row)
    members = [[(f"{n}.png", image), (f"{n}.n.cls", b"%d" % n)] for n, image in enumerate(images)]
    write_tar(folder / "a.tar", [member for pair in members for member in pair])
    save(folder / "hf" / "test", [pa.Table.from_pylist(with_bytes)])
    (folder / "hf" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    pytest.importorskip("lance").write_dataset(pa.Table.from_pylist(with_bytes), str(folder / "a.lance"))


def specs(folder: Path, limit: int | None = None) -> list[SourceSpec]:
    columns = ColumnsSpec(images=["image"])
    return [
        MdsSourceSpec(kind="mds", path=str(folder / "mds"), columns=columns, limit=limit),
        ParquetSourceSpec(kind="parquet", path=str(folder / "a.parquet"), columns=columns, limit=limit),
        JsonlSourceSpec(kind="jsonl", path=str(folder / "a.jsonl"), columns=columns, limit=limit),
        WebDatasetSourceSpec(kind="webdataset", path=str(folder / "a.tar"), limit=limit),
        ImageFolderSourceSpec(kind="imagefolder", path=str(folder / "images"), columns=columns, limit=limit),
        HuggingFaceSourceSpec(kind="huggingface", path=str(folder / "hf"), split="test", columns=columns, limit=limit),
        LanceSourceSpec(kind="lance", path=str(folder / "a.lance"), version=1, columns=columns, limit=limit),
    ]


def test_every_kind_of_spec_opens_its_source(tmp_path: Path) -> None:
    write_all(tmp_path)
    sources = {spec.kind: make_source(spec) for spec in specs(tmp_path)}
    assert {kind: type(source) for kind, source in sources.items()} == {
        "mds": MDSSource,
        "parquet": ParquetSource,
        "jsonl": JsonlSource,
        "webdataset": WebDatasetSource,
        "imagefolder": ImageFolderSource,
        "huggingface": HuggingFaceSource,
        "lance": LanceSource,
    }
    for kind, source in sources.items():
        rows = read_rows(source)
        assert column(rows, "n.cls" if kind == "webdataset" else "n") == list(range(10))
        images = [picture(n) for n in range(10)]
        wanted = [[image] for image in images] if kind == "jsonl" else images
        assert column(rows, "png" if kind == "webdataset" else "image") == wanted


def test_image_expressions_are_no_columns_of_the_file(tmp_path: Path) -> None:
    write_all(tmp_path)
    columns = ColumnsSpec(images=["=coalesce(png, png)"])
    source = make_source(WebDatasetSourceSpec(kind="webdataset", path=str(tmp_path / "a.tar"), columns=columns))
    check_columns(source.columns(), columns)
    assert "png" in source.columns().names


@pytest.mark.parametrize(("limit", "count"), [(4, 4), (10, 10), (99, 10)])
def test_a_limit_takes_the_first_rows(limit: int, count: int, tmp_path: Path) -> None:
    write_all(tmp_path)
    for limited, whole in zip(specs(tmp_path, limit), specs(tmp_path), strict=True):
        source = make_source(limited)
        assert source.expected() == BitMap64(range(count))
        assert column(read_rows(source), "n.cls" if limited.kind == "webdataset" else "n") == list(range(count))
        assert source.columns() == make_source(whole).columns()
        assert source.fingerprint() == make_source(whole).fingerprint()


def test_no_data_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or directory"):
        make_source(ParquetSourceSpec(kind="parquet", path=str(tmp_path / "x")))


def test_a_format_is_loaded_only_when_it_is_used() -> None:
    code = "import sys, proctor.sources.registry; print('pyarrow.parquet' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "False"
