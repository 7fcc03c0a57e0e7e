"""Makes the golden MDS files of tests/sources/mds/golden with the public library, mosaicml-streaming 0.13.0.

    python scripts/mds_golden.py              # needs pip and the network; writes the directory anew
    python scripts/mds_golden.py --time DIR   # seconds in which the library reads every row of the dataset in DIR

The whole library brings torch, torchvision and transformers along (5.85 GB), and none of them has a part in writing
or reading a shard. So the script makes a throwaway environment with the library alone and the few packages its MDS
code imports, and runs itself there: the library's own ``format/mds``, ``compression`` and ``hashing`` modules,
unchanged, under parent packages whose ``__init__`` is left out. Two modules are replaced: ``base.util`` (only
`bytes_to_int` is used) and ``storage.upload`` (files are written where they belong).

Beside each dataset stands ``oracle.json``: what the library's own reader makes of every row.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
import types
import venv
from decimal import Decimal
from pathlib import Path
from typing import Any

LIBRARY = "mosaicml-streaming==0.13.0"
NEEDS = ["numpy", "pillow", "brotli", "zstd", "python-snappy", "cramjam", "xxhash", "tqdm", "typing_extensions"]
GOLDEN = Path(__file__).parents[1] / "tests" / "sources" / "mds" / "golden"

SMALL_COLUMNS = {"id": "int", "frames": "list[jpeg]", "prompt": "str"}
COMPRESSIONS = ["br", "br:4", "bz2", "bz2:1", "gz", "gz:1", "snappy", "zstd", "zstd:19"]


def main() -> None:
    """Makes the environment and runs this script in it."""
    if sys.argv[1:2] == ["--inside"]:
        load_library()
        time_reading(Path(sys.argv[3])) if sys.argv[2] == "--time" else write_all(GOLDEN)
        return
    with tempfile.TemporaryDirectory() as home:
        venv.create(home, with_pip=True)
        python = str(Path(home) / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", LIBRARY, *NEEDS], check=True)
        subprocess.run([python, __file__, "--inside", *(sys.argv[1:] or ["--write"])], check=True)


def write_all(out: Path) -> None:
    """Writes every golden dataset and its oracle."""
    from streaming.base.hashing import get_hashes

    shutil.rmtree(out, ignore_errors=True)
    fixed = sorted(name for name in get_hashes() if name.startswith(("sha", "md5", "blake", "xxh")) and "-" not in name)
    write(out / "encodings", {name: columns for name, (columns, _) in samples().items()}, encoding_rows(), hashes=fixed)
    write(out / "odd", {"data": "json", "text": "str", "views": "jpegarray"}, odd_rows())
    write(out / "pickled", {"id": "int", "thing": "pkl"}, [{"id": i, "thing": {"n": i}} for i in range(3)])
    for name in COMPRESSIONS:
        place = out / f"compressed-{name.replace(':', '-')}"
        write(place, SMALL_COLUMNS, small_rows(), compression=name, hashes=["sha1", "xxh64"], size_limit=3000)


def load_library() -> None:
    """Makes the library's format modules importable without its ``__init__`` files, which import all the rest."""
    home = importlib.util.find_spec("streaming")
    assert home is not None
    assert home.submodule_search_locations
    root = Path(home.submodule_search_locations[0])
    for name in ["streaming", "streaming.base", "streaming.base.format", "streaming.base.storage"]:
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    util: Any = types.ModuleType("streaming.base.util")
    util.bytes_to_int = int
    upload: Any = types.ModuleType("streaming.base.storage.upload")
    upload.CloudUploader = LocalUploader
    sys.modules.update({util.__name__: util, upload.__name__: upload})


def time_reading(path: Path) -> None:
    """Prints how long the library's reader takes for every row, as dicts."""
    from streaming.base.format.mds.reader import MDSReader

    start, rows = time.perf_counter(), 0
    for shard in json.loads((path / "index.json").read_text())["shards"]:
        reader = MDSReader.from_json(str(path), None, shard)
        rows += len([reader.get_item(row) for row in range(shard["samples"])])
    seconds = time.perf_counter() - start
    print(f"{rows:,} rows in {seconds:.3f} s: {rows / seconds:,.0f} rows/s")


class LocalUploader:
    """Stands in for the library's uploader: the files stay where the writer puts them."""

    remote = None

    def __init__(self, local: str) -> None:
        self.local = local
        Path(local).mkdir(parents=True)

    @classmethod
    def get(cls, out: str, *_args: object) -> LocalUploader:
        return cls(out)

    def upload_file(self, basename: str) -> None:
        """Nothing to do."""


def write(out: Path, columns: dict[str, str], rows: list[dict[str, Any]], **options: Any) -> None:
    """Writes a dataset and what the library reads back from it."""
    from streaming.base.format.mds.reader import MDSReader
    from streaming.base.format.mds.writer import MDSWriter

    with MDSWriter(columns=columns, out=str(out), **options) as writer:
        for row in rows:
            writer.write(row)
    index = json.loads((out / "index.json").read_text())
    oracle = []
    with tempfile.TemporaryDirectory() as unpacked:
        for shard in index["shards"]:
            unpack(out, Path(unpacked), shard)
            reader = MDSReader.from_json(unpacked, None, shard)
            oracle += [read(reader, row) for row in range(shard["samples"])]
    (out / "oracle.json").write_text(json.dumps(oracle, indent=None, sort_keys=True))


def unpack(source: Path, target: Path, shard: dict[str, Any]) -> None:
    """Puts the uncompressed shard into `target`, by the library's own decompression."""
    from streaming.base.compression import decompress

    stored = shard["zip_data"] or shard["raw_data"]
    name = shard["compression"] if shard["zip_data"] else None
    (target / shard["raw_data"]["basename"]).write_bytes(decompress(name, (source / stored["basename"]).read_bytes()))


def read(reader: Any, row: int) -> dict[str, Any]:
    """One row as the library decodes it, in JSON; ``error`` instead where it raises."""
    try:
        return {name: plain(value) for name, value in reader.get_item(row).items()}
    except Exception as error:
        return {"error": type(error).__name__}


def plain(value: Any) -> Any:
    """A decoded value in JSON. Images become their file's digest, or their pixels' where they came from no file."""
    import numpy as np
    from PIL import Image

    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.name, "shape": list(value.shape), "values": value.ravel().tolist()}
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Image.Image):
        file = getattr(value, "fp", None)
        if isinstance(file, io.BytesIO):
            return {"file": hashlib.sha256(file.getvalue()).hexdigest()}
        return {"mode": value.mode, "size": list(value.size), "pixels": hashlib.sha256(value.tobytes()).hexdigest()}
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float):
        return {"float": repr(value)}
    return [plain(item) for item in value] if isinstance(value, list) else value


def samples() -> dict[str, tuple[str, list[Any]]]:
    """Column name -> encoding and its values, as many for each column."""
    import numpy as np

    integers: dict[str, tuple[str, list[Any]]] = {
        name: (name, [np.iinfo(name).min, 0, np.iinfo(name).max, 7])
        for name in ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
    }
    floats: dict[str, tuple[str, list[Any]]] = {
        name: (name, [0.0, -1.5, float("inf"), float(np.finfo(name).max)]) for name in ["float16", "float32", "float64"]
    }
    dtypes = ["uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64", "int64", "float64"]
    grid = [np.arange(n, dtype=np.float32).reshape(1, n) / 3 for n in (1, 2, 3, 4)]
    long = [np.arange(n) % 251 for n in (1, 255, 256, 300)]
    return {
        **integers,
        **floats,
        "bytes": ("bytes", [b"", b"\0\xff", b"twelve bytes", b"more than twelve bytes"]),
        "str": ("str", ["", "straße", "naïve 路", "a longer text, beyond what a view keeps inside"]),
        "json": ("json", [{"a": [1, 2]}, [], "text", None]),
        "int": ("int", [0, -1, 2**63 - 1, -(2**63)]),
        "str_int": ("str_int", [0, -12, 2**63 - 1, 5]),
        "str_float": ("str_float", [0.1, -1e300, float("nan"), float("-inf")]),
        "str_decimal": ("str_decimal", [Decimal("0.10"), Decimal("1E+30"), Decimal("-7"), Decimal(10) ** 40]),
        "ndarray": ("ndarray", [np.array([[1, 2], [3, 4]], dtype) for dtype in dtypes[:4]]),
        "ndarray_more": ("ndarray", [np.array([5, 6, 7], dtype) for dtype in dtypes[4:8]]),
        "ndarray_rest": ("ndarray", [np.array([8], dtype) for dtype in [*dtypes[8:], "uint8"]]),
        "ndarray_dtype": ("ndarray:float32", grid),
        "ndarray_wide": ("ndarray:uint8", [values.astype(np.uint8) for values in long]),
        "ndarray_shape": ("ndarray:int16:2,3", [np.arange(n, n + 6, dtype=np.int16).reshape(2, 3) for n in range(4)]),
        **image_samples(),
    }


def image_samples() -> dict[str, tuple[str, list[Any]]]:
    """Columns of images: some given as PIL images, some as the bytes of a file."""
    images = [noise(size, mode) for size, mode in [((5, 4), "RGB"), ((1, 1), "L"), ((9, 2), "RGB"), ((3, 7), "L")]]
    lists = [images[:0], images[:1], images[1:3], images]
    full = [images[:1], images[1:3], images, images[:2]]
    files = [[file_of(image, "JPEG") for image in some] for some in full]
    return {
        "jpeg": ("jpeg", [*images[:2], file_of(images[2], "JPEG"), file_of(images[3], "PNG")]),
        "png": ("png", images),
        "pil": ("pil", [*images[:2], images[2].convert("RGBA"), images[3].convert("1")]),
        "jpeg_array": ("jpeg_array", files),
        "jpegarray": ("jpegarray", files[::-1]),
        "list_jpeg": ("list[jpeg]", lists),
        "list_png": ("list[png]", lists),
        "list_pil": ("list[pil]", lists),
    }


def noise(size: tuple[int, int], mode: str) -> Any:
    """A small image whose pixels follow from its size and mode."""
    from PIL import Image

    length = size[0] * size[1] * len(mode)
    digest = b"".join(hashlib.sha256(f"{size}{mode}{n}".encode()).digest() for n in range(length // 32 + 1))
    return Image.frombytes(mode, size, digest[:length])


def file_of(image: Any, image_format: str) -> bytes:
    """The image as the bytes of a file."""
    out = io.BytesIO()
    image.save(out, format=image_format)
    return out.getvalue()


def encoding_rows() -> list[dict[str, Any]]:
    """The samples, row by row."""
    columns = samples()
    return [{name: values[row] for name, (_, values) in columns.items()} for row in range(4)]


def odd_rows() -> list[dict[str, Any]]:
    """Bytes pass through every encoding, so a column may hold what its encoding cannot decode."""
    files = [file_of(noise((4, 4), "RGB"), "JPEG"), file_of(noise((4, 4), "L"), "PNG")]
    sound = {"data": {"n": 1}, "text": "sound", "views": files}
    return [
        sound,
        {**sound, "text": b"\xff\xfe not UTF-8"},
        {**sound, "text": ""},
        {**sound, "data": b"{not JSON"},
        {**sound, "views": []},
    ]


def small_rows() -> list[dict[str, Any]]:
    """Rows like those of a driving dataset, for the compressions."""
    frames = [noise((8, 6), "RGB"), noise((6, 8), "RGB")]
    return [{"id": n, "frames": frames[: n % 3], "prompt": f"What is ahead in scene {n}? " * 3} for n in range(8)]


if __name__ == "__main__":
    main()
