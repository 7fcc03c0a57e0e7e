"""What a sample measures: real data, read and prepared in a real process of its own."""

from __future__ import annotations

import json
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proctor.capacity.memory import measured
from proctor.capacity.sample import Sample, choose, take_sample
from proctor.sources.mds import MDSWriter
from proctor.sources.registry import make_source
from proctor.spec import RunSpec
from tests.capacity.facts import spec

pytestmark = pytest.mark.slow


def picture(height: int, width: int) -> bytes:
    """A JPEG that does not compress well."""
    out = BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, "JPEG", quality=85)
    return out.getvalue()


def sampled(run: RunSpec, seconds: float = 20.0) -> Sample:
    source = make_source(run.source)
    groups = source.groups(source.expected(), run.stream.block_rows, int(run.stream.block_mb * 1e6))
    return take_sample(run, source, groups, seconds)


def mds(path: Path, rows: int, **parts: Any) -> RunSpec:
    """A data set of rows with two pictures each; row 7 has twenty."""
    small = picture(120, 160)
    with MDSWriter(path, {"frames": "list[jpeg]", "q": "str"}, size_limit=1 << 21) as writer:
        for row in range(rows):
            writer.write({"frames": [small] * (20 if row == 7 else 2), "q": "what is there?"})
    columns = {"images": ["frames"], "prompt": "q"}
    return spec(source={"kind": "mds", "path": str(path), "columns": columns}, **parts)


def test_a_sample_of_mds_shards(tmp_path: Path) -> None:
    run = mds(tmp_path / "data", 1200)
    found = sampled(run)
    assert found.trouble is None
    size = len(picture(120, 160))
    shards = len(json.loads((tmp_path / "data" / "index.json").read_text())["shards"])
    assert shards > 3
    assert [block.shard for block in found.blocks] == [0, shards // 2, shards - 1]
    assert found.mean_row == pytest.approx(2 * size, rel=0.1)
    assert found.largest_row == pytest.approx(20 * size, rel=0.05)
    assert found.images_per_row == pytest.approx(2, abs=0.2)
    assert found.f_arrow == pytest.approx(1.0, abs=0.02)
    # the mapped file and the block: never many times the rows, and never less than a part of them
    assert 0.4 < found.f_heap < 4
    assert 0.9 < found.f_prepared < 1.2
    assert found.image_rows[0][0].height == 120
    assert found.image_rows[0][0].width == 160
    assert found.per_row("prepare_cpu") > 1e-4  # two pictures are decoded
    assert found.per_row("prepare_cpu") > found.per_row("read_cpu")
    assert found.read_mb_s
    assert not any(block.failed for block in found.blocks)


def test_the_largest_row_of_a_shard_is_known_without_reading_it(tmp_path: Path) -> None:
    run = mds(tmp_path / "data", 200, stream={"block_rows": 4})
    found = sampled(run)  # reads rows 0 to 3 of the first shard, not row 7
    assert sum(block.rows for block in found.blocks) < 20
    assert found.largest_row == pytest.approx(20 * len(picture(120, 160)), rel=0.05)


def test_images_are_prepared_as_the_spec_asks(tmp_path: Path) -> None:
    found = sampled(mds(tmp_path / "data", 40, images={"resize": 1200}))
    assert found.trouble is None
    size = found.image_rows[0][0]
    assert size.height * size.width <= 1200
    # resized images travel as their pixels, three bytes each, and are fewer bytes than the JPEGs here
    assert found.f_prepared == pytest.approx(3 * size.height * size.width / len(picture(120, 160)), rel=0.1)


def test_base64_in_json_lines_shrinks_in_arrow(tmp_path: Path) -> None:
    import base64

    data = base64.b64encode(picture(300, 400)).decode()
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"image": data, "n": n}) + "\n" for n in range(30)))
    source = {"kind": "jsonl", "path": str(file), "columns": {"images": ["image"]}}
    found = sampled(spec(source=source, task={"kind": "exact", "prompt": "What is {n}?"}))
    assert found.trouble is None
    assert found.f_arrow == pytest.approx(0.75, abs=0.01)
    assert found.rows == 30
    assert found.prompt_chars > len("What is 0?")


def test_a_task_that_fails_and_prints_is_told(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "class Loud:\n"
        "    columns = {}\n"
        "    def prompt(self, sample):\n        print('{}'); raise KeyError('no such field')\n"
        "    def target(self, sample): return None\n"
        "    def parse(self, text): return text\n"
        "    def score(self, parsed, target): return {}\n"
        "    def summary(self, records, expected): return None\n"
    )
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n')
    task = {"kind": "python", "python": "loud:Loud", "directory": str(tmp_path)}
    found = sampled(spec(source={"kind": "jsonl", "path": str(file)}, task=task))
    assert found.trouble is not None
    assert (found.trouble.kind, found.trouble.message) == ("prepare.failed", "KeyError: 'no such field'")


def test_shards_that_are_gone_are_told_and_no_crash(tmp_path: Path) -> None:
    run = mds(tmp_path / "data", 50)
    for shard in (tmp_path / "data").glob("*.mds"):
        shard.unlink()
    found = sampled(run)
    assert found.trouble is not None
    assert found.trouble.kind == "read.missing"


def test_some_damage_is_the_runs_to_tell(tmp_path: Path) -> None:
    run = mds(tmp_path / "data", 1200)
    (tmp_path / "data" / "shard.00000.mds").write_bytes(b"\0" * 100)
    found = sampled(run)
    assert found.trouble is None
    assert found.blocks[0].failed == found.blocks[0].rows
    assert not found.blocks[-1].failed


def test_a_process_that_dies_is_told(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os\nclass Deadly:\n    columns = {}\n"
        "    def prompt(self, sample): os.kill(os.getpid(), 11)\n"
        "    def target(self, sample): return None\n"
        "    def parse(self, text): return text\n"
        "    def score(self, parsed, target): return {}\n"
        "    def summary(self, records, expected): return None\n"
    )
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n')
    task = {"kind": "python", "python": "deadly:Deadly", "directory": str(tmp_path)}
    found = sampled(spec(source={"kind": "jsonl", "path": str(file)}, task=task))
    assert found.trouble is not None
    assert "ended by signal 11" in found.trouble.message


def test_time_is_limited(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\nclass Slow:\n    columns = {}\n"
        "    def prompt(self, sample):\n        time.sleep(0.3); from proctor.rows import Message, TextPart\n"
        "        return (Message('user', (TextPart('?'),)),)\n"
        "    def target(self, sample): return None\n"
        "    def parse(self, text): return text\n"
        "    def score(self, parsed, target): return {}\n"
        "    def summary(self, records, expected): return None\n"
    )
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n' * 200)
    task = {"kind": "python", "python": "slow:Slow", "directory": str(tmp_path)}
    found = sampled(spec(source={"kind": "jsonl", "path": str(file)}, task=task), seconds=1.0)
    (block,) = found.blocks
    assert block.rows == 200
    assert 1 <= block.prepared_rows < 10
    assert block.prepare_source_bytes == pytest.approx(block.source_bytes * block.prepared_rows / 200, abs=1)


def test_blocks_are_chosen_from_the_ends_the_middle_and_the_largest_rows(tmp_path: Path) -> None:
    for number in range(5):
        size = 4000 if number == 3 else 10
        lines = "".join(json.dumps({"text": "x" * size}) + "\n" for _ in range(20))
        (tmp_path / f"{number}.jsonl").write_text(lines)
    run = spec(source={"kind": "jsonl", "path": str(tmp_path)})
    source = make_source(run.source)
    groups = source.groups(source.expected(), 8, 16_000_000)
    assert [group.shard for group in choose(source, groups, run)] == [0, 2, 3, 4]
    assert all(len(group.row_ids) <= 8 for group in choose(source, groups, run))
    assert choose(source, [], run) == []


def test_peaks_are_seen_though_the_memory_is_free_again() -> None:
    with measured() as peak:
        block = bytearray(os.urandom(1 << 20)) * 50
        del block
    assert peak.exact
    assert 50 << 20 <= peak.bytes < 80 << 20
    with measured() as nothing:
        pass
    assert nothing.bytes < 1 << 20


def test_peaks_without_the_kernels_help(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import time

    monkeypatch.setattr("proctor.capacity.memory._CLEAR_REFS", tmp_path / "no" / "such" / "file")
    with measured() as peak:
        block = bytearray(os.urandom(1 << 20)) * 50
        time.sleep(0.1)
        del block
    assert not peak.exact
    assert 45 << 20 <= peak.bytes < 80 << 20
