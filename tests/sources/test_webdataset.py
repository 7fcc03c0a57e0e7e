from __future__ import annotations

import io
import pickle
import random
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.base import BLOCK_BYTES
from proctor.sources.jsonrows import JSON_METADATA
from proctor.sources.webdataset import WebDatasetSource
from tests.sources.support import Members, column, errors, picture, read_blocks, read_rows, write_tar

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def compress(path: Path, codec: str, ending: str) -> Path:
    packed = path.with_name(path.name + ending)
    with pa.output_stream(packed, compression=codec) as out:
        out.write(path.read_bytes())
    path.unlink()
    return packed


def scenes(count: int, first: int = 0) -> Members:
    return [
        member
        for n in range(first, first + count)
        for member in (
            (f"train/{n:06}.jpg", picture(n % 250, "JPEG")),
            (f"train/{n:06}.json", b'{"n": %d}' % n),
            (f"train/{n:06}.cls", b"%d\n" % n),
            (f"train/{n:06}.txt", f"scéne {n}".encode()),
        )
    ]


def header_of(content: bytes, name: str) -> int:
    """Where the header of a member begins."""
    at = content.index(name.encode())
    assert at % 512 == 0
    return at


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".zst"])
def test_members_with_one_key_are_a_row(tmp_path: Path, ending: str) -> None:
    for name, first in (("b", 30), ("a", 0)):
        path = write_tar(tmp_path / f"{name}.tar", scenes(30, first))
        if ending:
            compress(path, {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}[ending], ending)
    source = WebDatasetSource(tmp_path, images=["jpg"])
    assert source.columns().names == ["__key__", "jpg", "json", "cls", "txt"]
    assert source.columns().field("json").metadata == JSON_METADATA
    assert source.columns().field("cls").type == pa.int64()
    rows = read_rows(source)
    assert errors(rows) == {}
    assert column(rows, "notice") == [None] * 60
    assert column(rows, "__key__") == [f"train/{n:06}" for n in range(60)]
    assert column(rows, "jpg") == [picture(n, "JPEG") for n in range(60)]
    assert column(rows, "cls") == list(range(60))
    assert column(rows, "txt") == [f"scéne {n}" for n in range(60)]
    some = read_rows(pickle.loads(pickle.dumps(source)), BitMap64([3, 4, 29, 30, 59]), max_rows=2)
    assert column(some, "cls") == [3, 4, 29, 30, 59]


@pytest.mark.parametrize("format_", FORMATS)
def test_names_are_split_as_the_convention_says(format_: str, tmp_path: Path) -> None:
    long = "d/" * 40 + "n" * 60 + "é"
    members = [
        ("./a.b/one.JPG", b"1"),
        ("./a.b/one.seg.png", b"2"),
        ("README", b"no extension"),
        (".hidden.jpg", b"no key"),
        ("__meta__.json", b"{}"),
        ("two.JPG", b"3"),
        *([] if format_ == "ustar" else [(f"{long}.jpg", b"4"), (f"{long}.cls", b"5")]),
    ]
    path = write_tar(tmp_path / "a.tar", members, FORMATS[format_])
    rows = read_rows(WebDatasetSource(path))
    assert column(rows, "__key__") == ["./a.b/one", "two", *([] if format_ == "ustar" else [long])]
    assert column(rows, "jpg")[:2] == [b"1", b"3"]
    assert column(rows, "seg.png")[:2] == [b"2", None]
    if format_ != "ustar":
        assert (rows[2]["jpg"], rows[2]["cls"]) == (b"4", 5)


def test_what_is_no_file_is_passed_over_and_archives_may_follow_one_another(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for kind in (tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE):
            info = tarfile.TarInfo("evil.jpg")
            info.type = kind
            archive.addfile(info)
        info = tarfile.TarInfo("../../etc/cron.d/x.jpg")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    second = write_tar(tmp_path / "b.tar", [("k.jpg", b"y")]).read_bytes()
    (tmp_path / "b.tar").unlink()
    with (tmp_path / "a.tar").open("ab") as file:
        file.write(second)
    before = sorted(tmp_path.rglob("*"))
    rows = read_rows(WebDatasetSource(tmp_path))
    assert [(row["__key__"], row["jpg"]) for row in rows] == [("../../etc/cron.d/x", b"x"), ("k", b"y")]
    assert errors(rows) == {}
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("k.cls", b"seven")], "member 'k.cls': invalid literal for int() with base 10: 'seven'"),
        ([("k.cls", b"9" * 30)], "member 'k.cls': no whole number of 64 bits"),
        (
            [("k.txt", b"\xff")],
            "member 'k.txt': 'utf-8' codec can't decode byte 0xff in position 0: invalid " + "start byte",
        ),
        ([("k.jpg", b"1"), ("k.JPG", b"2")], "there are two members 'k.JPG'"),
    ],
)
def test_a_wrong_member_costs_its_row(members: Members, message: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [*scenes(2), *members, *scenes(2, 2)])
    rows = read_rows(WebDatasetSource(path))
    assert errors(rows) == {2: "read.corrupt"}
    assert rows[2]["error_message"] == f"a.tar, sample 2: {message}"
    assert column(rows, "notice") == [None] * 5


def test_a_damaged_header_costs_the_rows_beside_it_and_makes_the_run_incomplete(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", scenes(10))
    content = bytearray(path.read_bytes())
    at = header_of(content, "train/000004.json")
    content[at + 5] ^= 1
    path.write_bytes(content)
    rows = read_rows(WebDatasetSource(path))
    # The header was of row 4; what comes behind it (its class and text) begins a row of its own, which is beside it.
    assert errors(rows) == {4: "read.corrupt", 5: "read.corrupt"}
    assert column(rows, "cls") == [0, 1, 2, 3, None, None, 5, 6, 7, 8, 9]
    what = f"a.tar is damaged at byte {at:,}: no sound header: bad checksum"
    assert rows[4]["error_message"] == f"a.tar, sample 4: beside damage, some of it may be lost: {what}"
    assert set(column(rows, "notice")) == {what}


@pytest.mark.parametrize("keep", ["in data", "in header", "before the end mark"])
def test_a_cut_off_archive_costs_its_last_row_and_makes_the_run_incomplete(keep: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", scenes(10))
    content = path.read_bytes()
    at = header_of(content, "train/000007.jpg")
    path.write_bytes(content[: at + {"in data": 600, "in header": 100, "before the end mark": 0}[keep]])
    rows = read_rows(WebDatasetSource(path))
    last = 7 if keep == "in data" else 6
    assert errors(rows) == {last: "read.corrupt"}
    assert column(rows, "cls") == [*range(last), None]
    assert all("the archive ends without its end mark" in row["notice"] for row in rows)


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_compressed_archive(damage: str, tmp_path: Path) -> None:
    members = [(f"{n:04}.bin", bytes(range(256)) * 40 + bytes([n])) for n in range(200)]
    path = compress(write_tar(tmp_path / "a.tar", members), "gzip", ".gz")
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2 : len(content) // 2 + 8] = b"\xff" * 8
    path.write_bytes(content)
    source = WebDatasetSource(path)
    rows = read_rows(source, max_rows=7)
    assert 20 < len(rows) <= 200
    lost = list(errors(rows))
    assert lost
    assert set(errors(rows).values()) == {"read.corrupt"}
    assert all(row["bin"] == members[row["row_id"]][1] for row in rows if row["row_id"] not in lost)
    assert all("a.tar.gz is damaged at byte" in row["notice"] for row in rows)


def test_what_is_no_archive_is_the_users_mistake(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    for content, message in (
        (b"<html>403 Forbidden</html>" * 100, r"a\.tar is damaged at byte 0: no sound header"),
        (b"", "the archive ends without its end mark"),
        (write_tar(tmp_path / "b.tar", [("README", b"x")]).read_bytes(), "no members with a name like key.extension"),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            WebDatasetSource(path)


@pytest.mark.parametrize(
    ("size", "lost", "rest"),
    [
        (b"\xff" * 12, [0, 1], [2]),
        (b"\x80" + b"\xff" * 11, [0, 1], [2]),
        (b"\x80" + b"\0" * 5 + b"\x7f" + b"\0" * 5, [0, 1], [2]),
        (b"\x80" + b"\0" * 5 + b"\x02" + b"\0" * 5, [1], [0]),  # 2 TiB
    ],
)
def test_impossible_sizes_are_damage(size: bytes, lost: list[int], rest: list[int], tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", scenes(3))
    content = bytearray(path.read_bytes())
    at = header_of(content, "train/000001.jpg")
    content[at + 124 : at + 136] = size
    content[at + 148 : at + 156] = b" " * 8
    content[at + 148 : at + 156] = b"%06o\0 " % sum(content[at : at + 512])
    path.write_bytes(content)
    rows = read_rows(WebDatasetSource(path))
    assert list(errors(rows)) == lost
    assert [row["cls"] for row in rows if row["error_kind"] is None] == rest
    assert all(row["notice"] for row in rows)


def test_a_file_that_changed_or_went(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", scenes(5))
    source = WebDatasetSource(path)
    write_tar(path, scenes(20))
    rows = read_rows(source)
    assert rows[0]["error_message"] == "a.tar, sample 0: the file has changed since the run was planned"
    assert set(errors(rows).values()) == {"read.corrupt"}
    path.unlink()
    assert set(errors(read_rows(source)).values()) == {"read.missing"}


def test_blocks_are_bounded_and_the_fingerprint_follows_the_headers(tmp_path: Path) -> None:
    sizes = [BLOCK_BYTES // 3] * 7 + [10] * 5
    path = write_tar(tmp_path / "a.tar", [(f"{n}.bin", bytes(size)) for n, size in enumerate(sizes)])
    source = WebDatasetSource(path)
    blocks = read_blocks(source)
    assert [len(cell) for block in blocks for cell in block["bin"].to_pylist()] == sizes
    assert all(block.nbytes <= BLOCK_BYTES for block in blocks)
    path.rename(tmp_path / "b.tar")
    assert WebDatasetSource(tmp_path).fingerprint() == source.fingerprint()
    write_tar(tmp_path / "b.tar", [(f"{n}.bin", bytes(size)) for n, size in enumerate([*sizes[:-1], 11])])
    assert WebDatasetSource(tmp_path).fingerprint() != source.fingerprint()


def test_many_groups_of_a_compressed_archive_unpack_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import proctor.sources.streams as streams

    path = compress(write_tar(tmp_path / "a.tar", scenes(300)), "gzip", ".gz")
    source = WebDatasetSource(path)
    opened: list[Any] = []
    plain = streams._Inflated.__init__

    def counted(self: Any, *args: Any) -> None:
        opened.append(args)
        plain(self, *args)

    monkeypatch.setattr(streams._Inflated, "__init__", counted)
    assert column(read_rows(source, max_rows=10), "cls") == list(range(300))
    assert len(opened) == 1
    assert column(read_rows(source, BitMap64([7])), "cls") == [7]
    assert len(opened) == 2


def test_mutated_archives_lose_no_row_in_silence(tmp_path: Path) -> None:
    names = [f"{'d/' * 60 if n == 3 else ''}{n:03}.{ending}" for n in range(6) for ending in ("cls", "txt")]
    path = write_tar(tmp_path / "a.tar", [(name, b"1") for name in names], tarfile.PAX_FORMAT)
    content, choose, opened = path.read_bytes(), random.Random(0), 0
    for _ in range(150):
        changed = bytearray(content)
        for _ in range(choose.choice([1, 1, 3, 20])):
            changed[choose.randrange(len(changed) - 3000)] = choose.randrange(256)
        if choose.random() < 0.2:
            del changed[choose.randrange(len(changed)) :]
        path.write_bytes(changed)
        try:
            source = WebDatasetSource(path)
        except UserError:
            continue
        rows = read_rows(source)
        whole = [row for row in rows if row["error_kind"] is None]
        assert len(whole) >= 6 or any(row["error_kind"] or row["notice"] for row in rows)
        opened += 1
    assert opened > 100


def test_links_are_rows_with_a_failure_of_their_own(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, type_ in (("0.jpg", tarfile.REGTYPE), ("1.jpg", tarfile.LNKTYPE), ("2.jpg", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = type_, "" if type_ == tarfile.REGTYPE else "0.jpg"
            info.size = 4 if type_ == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(b"data"))
        info = tarfile.TarInfo("3.jpg")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"end"))
    rows = read_rows(WebDatasetSource(tmp_path))
    assert column(rows, "jpg") == [b"data", None, None, b"end"]
    assert errors(rows) == {1: "read.corrupt", 2: "read.corrupt"}
    assert "a.tar, sample 1: member '1.jpg' is a link" in rows[1]["error_message"]


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs GNU tar")
@pytest.mark.parametrize("format_", ["gnu", "posix"])
def test_sparse_members_never_pass_as_their_packed_bytes(format_: str, tmp_path: Path) -> None:
    names = ["0.jpg", "0.txt", "1.jpg", "1.txt"]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    with (tmp_path / "0.txt").open("wb") as file:
        file.truncate(4 << 20)
        for piece in range(40):  # more pieces than the header itself can list
            file.seek(piece * 65536)
            file.write(b"hello")
    command = ["tar", "-S", f"--format={format_}", "-cf", "x.tar", *names]
    if subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("this tar knows no sparse members")
    rows = read_rows(WebDatasetSource(tmp_path / "x.tar"))
    assert column(rows, "__key__") == [None, "1"]
    assert column(rows, "txt") == [None, "1.txt"]
    assert errors(rows) == {0: "read.corrupt"}
    assert "member '0.txt' is stored sparse" in rows[0]["error_message"]
