"""The safetensors format: files by its own library, files that are wrong, and files that were mutated."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from proctor.rows import UserError
from proctor.transfer.errors import TransferError
from proctor.transfer.reading import read_checkpoint
from proctor.transfer.safetensors import (
    INDEX,
    LONGEST_HEADER,
    header_bytes,
    parse_header,
    parse_index,
    read_header,
    weight_files,
)
from tests.transfer.test_published import same, some

DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "F8_E4M3FNUZ": torch.float8_e4m3fnuz, "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu, "U16": torch.uint16, "I16": torch.int16, "F16": torch.float16,
    "BF16": torch.bfloat16, "U32": torch.uint32, "I32": torch.int32, "F32": torch.float32, "U64": torch.uint64,
    "I64": torch.int64, "F64": torch.float64, "C64": torch.complex64,
}  # fmt: skip


def golden() -> dict[str, torch.Tensor]:
    return {
        f"{name}.{number}": some(dtype, shape, number)
        for name, dtype in DTYPES.items()
        for number, shape in enumerate([(), (0, 3), (1,), (3,), (5, 7)])
    } | {'ä"\n': torch.ones(3), "": torch.ones(2)}


def file_of(header: object, data: bytes = b"", *, pad: bytes = b"") -> bytes:
    text = (header if isinstance(header, bytes) else json.dumps(header).encode()) + pad
    return struct.pack("<Q", len(text)) + text + data


def read(path: Path) -> dict[str, torch.Tensor]:
    with read_checkpoint(str(path)) as published:
        published.verify()
        return published.tensors()


def refused(tmp_path: Path, content: bytes) -> UserError:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(path)
    assert caught.value.where == str(path)
    assert "\n" not in str(caught.value)
    return caught.value


def test_what_its_own_library_wrote(tmp_path: Path) -> None:
    tensors = golden()
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    for path in (tmp_path, tmp_path / "model.safetensors"):
        found = read(path)
        assert found.keys() == tensors.keys()
        assert all(same(found[name], tensors[name]) for name in tensors)


def test_no_tensors_at_all(tmp_path: Path) -> None:
    save_file({}, tmp_path / "model.safetensors")
    assert read(tmp_path) == {}


def tensor(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


BYTES = bytes(range(8))
EMPTY = b'{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'


def test_a_header_with_spaces_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of({"a": tensor()}, BYTES, pad=b"     "))
    assert read(path)["a"].view(torch.uint8).tolist() == list(BYTES)


@pytest.mark.parametrize(
    ("header", "data", "why"),
    [
        ({"a": tensor()}, BYTES[:7], "cut short: its tensors end at byte"),
        ({"a": tensor()}, BYTES + b"x", "1 bytes behind its last tensor"),
        ({"a": tensor(offsets=[0, 4])}, BYTES[:4], "does not have 4 bytes"),
        ({"a": tensor(offsets=[8, 0])}, BYTES, "does not have -8 bytes"),
        ({"a": tensor(offsets=[4, 12])}, BYTES + BYTES, "has a hole before it"),
        ({"a": tensor(), "b": tensor(offsets=[4, 12])}, BYTES + BYTES, "overlaps"),
        ({"a": tensor(), "b": tensor()}, BYTES, "overlaps"),
        ({"a": tensor(), "b": tensor(offsets=[9, 17])}, BYTES + BYTES + b"x", "hole"),
        ({"a": tensor(offsets=[-8, 0])}, BYTES, "cannot be"),
        ({"a": tensor(offsets=[0, 8, 8])}, BYTES, "cannot be"),
        ({"a": tensor(offsets=[0.0, 8.0])}, BYTES, "cannot be"),
        ({"a": tensor(offsets=[False, 8])}, BYTES, "cannot be"),
        ({"a": tensor(offsets={"0": 8})}, BYTES, "cannot be"),
        ({"a": tensor(shape=[-2])}, BYTES, "cannot be"),
        ({"a": tensor(shape=["2"])}, BYTES, "cannot be"),
        ({"a": tensor(shape=2)}, BYTES, "cannot be"),
        ({"a": tensor(shape=[1 << 63, 0], offsets=[0, 0])}, b"", "cannot be"),
        ({"a": tensor(shape=[1 << 62, 1 << 62, 0], offsets=[0, 0])}, b"", "does not have 0 bytes"),
        ({"a": tensor(shape=[1 << 32, 1 << 32], offsets=[0, 0])}, b"", "does not have 0 bytes"),
        ({"a": tensor(shape=[1 << 62], offsets=[0, 1 << 62])}, b"", "does not have"),
        ({"a": tensor(dtype="U8", shape=[1 << 40], offsets=[0, 1 << 40])}, BYTES, "cut short"),
        ({"a": tensor(dtype="F4")}, BYTES, "is not known"),
        ({"a": tensor(dtype="C128")}, BYTES, "is not known"),
        ({"a": tensor(dtype=["F32"])}, BYTES, "is not known"),
        ({"a": tensor(more=1)}, BYTES, "or with more"),
        ({"a": {"dtype": "F32", "shape": [2]}}, BYTES, "without"),
        ({"a": [1]}, BYTES, "without"),
        ({"\ud800": tensor()}, BYTES, "cannot be"),
        ({"__metadata__": {"a": 1}}, b"", "more than texts"),
        ({"__metadata__": ["a"]}, b"", "more than texts"),
        (b'{"a":' + EMPTY + b',"a":' + EMPTY + b"}", b"", "'a' is there twice"),
        (b'{"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}', b"", "'dtype' is there twice"),
        (b'{"a":', b"", "cannot be read"),
        (b"[]", b"", "no object"),
        (b" {}", b"", "no object"),
        (b"", b"", "cannot be read"),
        (b'{"a": NaN}', b"", "NaN is no number"),
        (b'{"a": 1' + b"0" * 5000 + b"}", b"", "cannot be read"),
        (b'{"\xff": 1}', b"", "cannot be read"),
        (b'{"a":' * 100_000, b"", "nested too deep"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path: Path, header: object, data: bytes, why: str) -> None:
    assert why in refused(tmp_path, file_of(header, data)).what


@pytest.mark.parametrize("content", [b"", b"1234567", struct.pack("<Q", 100) + b"{}"])
def test_what_is_too_short_is_refused(tmp_path: Path, content: bytes) -> None:
    assert any(word in refused(tmp_path, content).what for word in ("no safetensors file", "cut short"))


def test_a_header_that_claims_too_much_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", LONGEST_HEADER + 1))
        file.truncate(1 << 33)  # sparse: the file really is as long as that
    with pytest.raises(UserError, match="is the most"):
        read(path)
    assert "is the most" in refused(tmp_path, b"\xff" * 8 + b"{}").what


@pytest.mark.parametrize(
    "index",
    [b"", b"[]", b"{}", b'{"weight_map": {}}', b'{"weight_map": ["a"]}', b'{"weight_map": {"a": 1}}',
     b'{"weight_map": {"a": "x.bin"}}', b'{"weight_map": {"a": "../x.safetensors"}}',
     b'{"weight_map": {"a": "/x.safetensors"}}', b'{"weight_map": {"a": "x\\u0000.safetensors"}}',
     b'{"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}}'],
)  # fmt: skip
def test_an_index_that_is_none_is_refused(index: bytes) -> None:
    with pytest.raises(UserError):
        parse_index(index, "here")


def test_a_header_tells_of_data_that_are_not_there_if_nobody_wants_them(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(file_of({"a": tensor(), "packed": tensor("F4", (5, 3), (8, 16))}))
    with pytest.raises(UserError, match="'F4', which is not known"):
        read_header(file)
    assert [(held.name, held.stop - held.start) for held in read_header(file, complete=False)] == [
        ("a", 8),
        ("packed", 8),
    ]
    file.write_bytes(file_of({"a": tensor()}, bytes(7)))
    with pytest.raises(UserError, match="cut short"):
        read_header(file)
    assert len(read_header(file, complete=False)) == 1
    for wrong in (tensor(offsets=(0, 4)), tensor("F4", offsets=(8, 0))):
        file.write_bytes(file_of({"a": wrong}))
        with pytest.raises(UserError, match="does not have"):
            read_header(file, complete=False)


def test_files_that_are_no_part_of_the_model_are_not_counted(tmp_path: Path) -> None:
    assert weight_files(tmp_path) == []
    for name in ("b", "a", "consolidated"):
        (tmp_path / f"{name}.safetensors").write_bytes(file_of({}))
    assert [file.stem for file in weight_files(tmp_path)] == ["a", "b", "consolidated"]
    (tmp_path / "model.safetensors").write_bytes(file_of({}))
    assert [file.stem for file in weight_files(tmp_path)] == ["model"]
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"y": "b.safetensors", "x": "not-there.safetensors"}}))
    assert [file.stem for file in weight_files(tmp_path)] == ["b", "not-there"]


THREE = {"a": tensor(), "b.c": tensor("U8", (3,), (8, 11)), "d": tensor("I64", (), (11, 19))}
SMALL = file_of({"__metadata__": {"k": "v"}, **THREE}, bytes(19))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        length = header_bytes(content[:8], len(content), "here")
        stored = parse_header(content[8 : 8 + length], len(content), "here")
    except UserError:
        return
    assert sum(tensor.stop - tensor.start for tensor in stored) == len(content) - 8 - length


MUTATIONS = st.lists(
    st.tuples(st.sampled_from(["flip", "set", "cut", "add", "drop"]), st.integers(0, len(SMALL)), st.integers(0, 255)),
    min_size=1, max_size=4,
)  # fmt: skip


def mutated(content: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    data = bytearray(content)
    for kind, at, value in changes:
        at = min(at, max(0, len(data) - 1))
        if kind == "cut":
            del data[at:]
        elif kind == "add":
            data[at:at] = bytes([value])
        elif data and kind == "drop":
            del data[at]
        elif data:
            data[at] = value if kind == "set" else data[at] ^ (1 << value % 8)
    return bytes(data)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=MUTATIONS)
def test_a_mutated_file_is_read_as_its_own_library_reads_it_or_refused(
    tmp_path: Path, changes: list[tuple[str, int, int]]
) -> None:
    """Stricter than the library is allowed: names twice, other fields, a name that is no text. Laxer never."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(mutated(SMALL, changes))
    try:
        found = read(path)
    except UserError:
        return
    try:
        with safe_open(path, "pt") as file:
            theirs = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except SafetensorError as error:
        pytest.fail(f"read here, and the library says: {error}")
    assert found.keys() == theirs.keys()
    assert all(same(found[name], theirs[name]) for name in found)


KEYS = st.sampled_from(["a", "dtype", "shape", "data_offsets", "__metadata__", "weight_map"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))


@settings(max_examples=200)
@given(JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    text = json.dumps(value).encode()
    for parse in (lambda: parse_header(text, 8 + len(text), "here"), lambda: parse_index(text, "here")):
        try:
            found = parse()
        except UserError:
            continue
        assert isinstance(value, dict)
        assert len(found) in (len(value) - ("__metadata__" in value), len(value.get("weight_map") or ()))


def test_errors_are_of_two_kinds_only(tmp_path: Path) -> None:
    """What a user can mend is no transfer that failed."""
    assert not issubclass(UserError, TransferError)
    with pytest.raises(UserError, match="no such folder"):
        read(tmp_path / "nowhere")
