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
from proctor.sources.jsonl import JsonlSource
from proctor.sources.mds import MDSSource, MDSWriter
from proctor.sources.parquet import ParquetSource
from proctor.sources.registry import make_source
from proctor.spec import ColumnsSpec, JsonlSourceSpec, MdsSourceSpec, ParquetSourceSpec, SourceSpec
from tests.sources.support import column, picture, read_rows, write_jsonl


def write_all(folder: Path) -> None:
    """The same ten rows in every format."""
    rows = [{"n": n, "image": f"{n}.png"} for n in range(10)]
    for row in rows:
        (folder / row["image"]).write_bytes(picture(row["n"]))
    write_jsonl(folder / "a.jsonl", rows)
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet", row_group_size=3)
    with MDSWriter(folder / "mds", {"n": "int", "image": "png"}) as writer:
        for row in rows:
            writer.write({**row, "image": picture(row["n"])})


def specs(folder: Path, limit: int | None = None) -> list[SourceSpec]:
    columns = ColumnsSpec(images=["image"])
    return [
        MdsSourceSpec(kind="mds", path=str(folder / "mds"), columns=columns, limit=limit),
        ParquetSourceSpec(kind="parquet", path=str(folder / "a.parquet"), columns=columns, limit=limit),
        JsonlSourceSpec(kind="jsonl", path=str(folder), columns=columns, limit=limit),
    ]


def test_every_kind_of_spec_opens_its_source(tmp_path: Path) -> None:
    write_all(tmp_path)
    sources = [make_source(spec) for spec in specs(tmp_path)]
    assert [type(source) for source in sources] == [MDSSource, ParquetSource, JsonlSource]
    for source in sources:
        rows = read_rows(source)
        assert column(rows, "n") == list(range(10))
        images = [picture(n) for n in range(10)]
        assert column(rows, "image") == ([[image] for image in images] if isinstance(source, JsonlSource) else images)


@pytest.mark.parametrize(("limit", "count"), [(4, 4), (10, 10), (99, 10)])
def test_a_limit_takes_the_first_rows(limit: int, count: int, tmp_path: Path) -> None:
    write_all(tmp_path)
    for limited, whole in zip(specs(tmp_path, limit), specs(tmp_path), strict=True):
        source = make_source(limited)
        assert source.expected() == BitMap64(range(count))
        assert column(read_rows(source), "n") == list(range(count))
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
