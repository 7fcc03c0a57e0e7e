"""Decodes cells of numpy arrays: [dtype byte] [shape header] values, where the first two depend on the encoding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from proctor.sources.mds.cells import MAX_WINDOW, Cells, Faults, Ints, binary_array, read_numbers
from proctor.sources.mds.encodings import NDARRAY_CODES, Encoding


@dataclass(slots=True)
class _Shapes:
    """Shape headers of many cells, decoded.

    Attributes:
        offsets: `len(cells) + 1` positions into `dims`.
        dims: all axes of all cells, one after another.
        header_sizes: bytes of each header.
        products: number of values that each shape holds; anything beyond a shard counts as `MAX_WINDOW`.
    """

    offsets: Ints
    dims: Ints
    header_sizes: Ints
    products: Ints


def decode_ndarray(encoding: Encoding, cells: Cells, faults: Faults) -> pa.Array:
    """Arrays as lists of values in C order, with the shape (and dtype) beside them where cells differ in it."""
    if encoding.dtype is None:
        return _any_dtype(cells, faults)
    if encoding.shape is None:
        return _any_shape(encoding.dtype, cells, faults)
    return _fixed(encoding, cells, faults)


def _fixed(encoding: Encoding, cells: Cells, faults: Faults) -> pa.Array:
    assert encoding.dtype is not None
    sound = cells.sizes == encoding.size
    for row in np.flatnonzero(~sound):
        faults[int(row)] = f"{encoding.text} takes {encoding.size} bytes, this has {cells.sizes[row]}"
    return _lists(_blank(cells, ~sound), encoding.dtype)


def _any_shape(dtype: str, cells: Cells, faults: Faults) -> pa.Array:
    shapes = _read_shapes(cells, faults)
    values = _blank(cells.tail(shapes.header_sizes), _bad_rows(cells, faults))
    _check_sizes(values, shapes.products * np.dtype(dtype).itemsize, faults)
    values = _blank(values, _bad_rows(cells, faults))
    fields = [pa.field("shape", pa.list_(pa.int64())), pa.field("values", pa.list_(pa.from_numpy_dtype(dtype)))]
    return pa.StructArray.from_arrays([_shape_lists(shapes), _lists(values, dtype)], fields=fields)


def _any_dtype(cells: Cells, faults: Faults) -> pa.Array:
    codes = np.zeros(len(cells), np.uint8)
    has_code = cells.sizes > 0
    codes[has_code] = read_numbers(cells.window, cells.starts[has_code], np.uint8)
    items = np.zeros(256, np.int64)
    items[list(NDARRAY_CODES)] = [np.dtype(name).itemsize for name in NDARRAY_CODES.values()]
    for row in np.flatnonzero(items[codes] == 0):
        faults[int(row)] = f"byte {codes[row]} is no dtype of MDS arrays" if has_code[row] else "is empty"
    rest = _blank(cells.tail(1), _bad_rows(cells, faults))
    shapes = _read_shapes(rest, faults)
    data = _blank(rest.tail(shapes.header_sizes), _bad_rows(cells, faults))
    _check_sizes(data, shapes.products * items[codes], faults)
    data = _blank(data, _bad_rows(cells, faults))
    dtypes = pa.array([NDARRAY_CODES.get(int(code)) for code in codes], pa.string())
    fields = [("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("data", pa.large_binary())]
    arrays = [dtypes, _shape_lists(shapes), binary_array(data)]
    return pa.StructArray.from_arrays(arrays, fields=[pa.field(*field) for field in fields])


def _read_shapes(cells: Cells, faults: Faults) -> _Shapes:
    """Reads [ndim << 2 | log2 of the axes' width] [axes] at the start of each cell that has no fault yet."""
    heads = np.zeros(len(cells), np.uint8)
    readable = (cells.sizes > 0) & ~_bad_rows(cells, faults)
    heads[readable] = read_numbers(cells.window, cells.starts[readable], np.uint8)
    ndims = (heads >> 2).astype(np.int64)
    header_sizes = np.where(readable, 1 + (ndims << (heads & 3)), 0)
    complete = readable & (header_sizes <= cells.sizes)
    for row in np.flatnonzero(~complete & ~_bad_rows(cells, faults)):
        faults[int(row)] = "ends inside its shape"
    ndims[~complete] = 0
    header_sizes[~complete] = 0
    offsets = np.concatenate([[0], np.cumsum(ndims)])
    dims = np.zeros(int(offsets[-1]), np.int64)
    products = np.ones(len(cells), np.int64)
    for head in np.unique(heads[complete]):  # one round for each kind of header; files have one or two kinds
        rows = np.flatnonzero(complete & (heads == head))
        for axis in range(int(head) >> 2):
            width = 1 << (int(head) & 3)
            lengths = read_numbers(cells.window, cells.starts[rows] + 1 + axis * width, f"<u{width}")
            dims[offsets[rows] + axis] = np.minimum(lengths, np.uint64(MAX_WINDOW)).astype(np.int64)
            products[rows] = np.minimum(products[rows] * dims[offsets[rows] + axis], MAX_WINDOW)
    return _Shapes(offsets, dims, header_sizes, products)


def _check_sizes(values: Cells, expected: Ints, faults: Faults) -> None:
    for row in np.flatnonzero(values.sizes != expected):
        if int(row) not in faults:
            faults[int(row)] = f"its shape takes {expected[row]} bytes of values, there are {values.sizes[row]}"


def _bad_rows(cells: Cells, faults: Faults) -> NDArray[np.bool_]:
    bad = np.zeros(len(cells), bool)
    bad[list(faults)] = True
    return bad


def _blank(cells: Cells, rows: NDArray[np.bool_]) -> Cells:
    """The cells with those of `rows` empty, so that nothing is read for them."""
    return Cells(cells.window, np.where(rows, 0, cells.starts), np.where(rows, 0, cells.sizes))


def _lists(cells: Cells, dtype: str) -> pa.ListArray:
    ends = np.concatenate([[0], np.cumsum(cells.sizes)])
    data = np.frombuffer(binary_array(cells).buffers()[2] or b"", np.uint8)[: ends[-1]]
    offsets = pa.array(ends // np.dtype(dtype).itemsize, pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(data.view(dtype)))


def _shape_lists(shapes: _Shapes) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(shapes.offsets, pa.int32()), pa.array(shapes.dims, pa.int64()))
