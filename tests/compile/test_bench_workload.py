"""Units stand for the rows of a source: what they look like, how many of them there are, and real rows in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.compile.orders import Workload
from proctor.compile.workload import MOST_KINDS, units_of, workload
from proctor.demo.dataset import write_dataset
from proctor.rows import Request, UserError
from proctor.spec import build_spec
from tests.engines.tiny import ask, picture


def some(number: int, *sizes: tuple[int, int], start: int = 0) -> list[Request]:
    """Rows with images of these heights and widths, each of another colour."""
    made = []
    for row in range(start, start + number):
        images = [picture(width, height, f"#{row % 256:02x}4080") for height, width in sizes]
        made.append(ask(row, images))
    return made


def names(work: Workload) -> list[str]:
    return [unit.shape.name for unit in work.units]


def test_rows_that_look_alike_make_a_unit_of_a_full_batch() -> None:
    requests = [*some(6, (96, 128)), *some(2, (96, 128), (96, 128), start=6)]
    work = units_of(requests, batch=4, rows=800)
    assert names(work) == ["4 rows, each 1 image of 96x128", "4 rows, each 2 images of 96x128"]
    assert [unit.shape.share for unit in work.units] == [0.75, 0.25]
    assert [unit.shape.images for unit in work.units] == [4, 8]
    assert [unit.shape.rows for unit in work.units] == [4, 4]
    first, second = work.units
    assert [request.images for request in first.requests] == [request.images for request in requests[:4]]
    assert [request.images for request in second.requests] == [requests[6].images, requests[7].images] * 2
    assert [request.id for request in second.requests] == [0, 1, 2, 3]


def test_the_last_smaller_batch_of_the_run_is_a_unit_of_its_own() -> None:
    work = units_of(some(4, (96, 128)), batch=16, rows=100)
    assert names(work) == ["16 rows, each 1 image of 96x128", "4 rows, each 1 image of 96x128"]
    assert [unit.shape.share for unit in work.units] == pytest.approx([0.96, 0.04])


def test_a_run_of_less_than_a_batch_has_no_full_one() -> None:
    work = units_of(some(3, (96, 128)), batch=16, rows=3)
    assert names(work) == ["3 rows, each 1 image of 96x128"]
    assert work.units[0].shape.share == 1.0


def test_rare_looks_share_a_unit() -> None:
    sizes = [(32 * (n + 1), 64) for n in range(MOST_KINDS + 3)]
    requests = [
        request for n, size in enumerate(sizes) for request in some(8 if n < MOST_KINDS else 1, size, start=10 * n)
    ]
    work = units_of(requests, batch=3, rows=300)
    assert len(work.units) == MOST_KINDS + 1
    assert names(work)[-1] == "3 rows, 3 images of 3 sizes"
    assert sum(unit.shape.share for unit in work.units) == pytest.approx(1.0)


def test_one_row_is_told_without_each() -> None:
    work = units_of(some(1, (96, 128), (64, 64)), batch=1, rows=1)
    assert names(work) == ["1 row, 1 image of 96x128 and 1 image of 64x64"]


def test_rows_without_images_are_left_out_and_told() -> None:
    work = units_of([*some(3, (96, 128)), ask(9)], batch=2, rows=40)
    assert names(work) == ["2 rows, each 1 image of 96x128"]
    assert work.notes == ("1 of 4 sampled rows have no images: shares are those of the others",)


def test_without_any_image_there_is_nothing_to_measure() -> None:
    with pytest.raises(UserError, match="no row of the sample has images"):
        units_of([ask(0)], batch=2, rows=40)


def test_the_rows_of_a_spec_are_prepared_as_a_run_prepares_them(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", 30, first_scene=50_000, corrupt={})
    spec = build_spec(
        {
            "run_dir": str(tmp_path / "run"),
            "source": {
                "kind": "mds",
                "path": str(tmp_path / "data"),
                "columns": {"images": ["frames"], "target": "target"},
            },
            "engine": {"kind": "scripted", "checkpoints": ["anything"], "batch_size": 8},
            "task": {"kind": "driving"},
            "sampling": {"max_tokens": 7},
        }
    )
    work = workload(spec, sample=15)
    assert work.rows == 30
    assert sum(unit.shape.share for unit in work.units) == pytest.approx(1.0)
    assert {request.sampling.max_tokens for unit in work.units for request in unit.requests} == {7}
    assert all(request.image_slots == len(request.images) for unit in work.units for request in unit.requests)
