from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from proctor.engines.fallback import Batches
from proctor.rows import ErrorKind, Request, Response
from tests.engines.tiny import ask


@dataclass(frozen=True)
class Row:
    request: Request


class BrokenDeviceError(RuntimeError):
    pass


class Model:
    """Answers rows; the numbers say which rows fail alone, and how many rows (or how large a row) memory holds."""

    def __init__(self, poison: Sequence[int] = (), memory: int = 100, large: dict[int, int] | None = None) -> None:
        self.poison, self.memory, self.large = set(poison), memory, large or {}
        self.batches: list[list[int]] = []
        self.freed = 0

    def run(self, rows: Sequence[Row]) -> list[Response]:
        ids = [row.request.id for row in rows]
        self.batches.append(ids)
        if sum(self.large.get(id_, 1) for id_ in ids) > self.memory:
            raise MemoryError("full")
        if self.poison.intersection(ids):
            raise RuntimeError(f"cannot run one of {len(ids)}")
        return [Response(id_, text="fine") for id_ in ids]

    def free(self) -> None:
        self.freed += 1


def batches_of(model: Model) -> Batches[Row]:
    return Batches(
        model.run,
        out_of_memory=lambda error: isinstance(error, MemoryError),
        broken=lambda error: isinstance(error, BrokenDeviceError),
        free=model.free,
    )


def rows(*ids: int) -> list[Row]:
    return [Row(ask(id_)) for id_ in ids]


def kinds(responses: Sequence[Response]) -> dict[int, ErrorKind | None]:
    return {response.id: response.failure and response.failure.kind for response in responses}


def test_a_good_batch_runs_once():
    model = Model()
    assert kinds(list(batches_of(model).answers(rows(1, 2, 3)))) == {1: None, 2: None, 3: None}
    assert model.batches == [[1, 2, 3]]


def test_a_failing_batch_costs_the_guilty_row_only():
    model = Model(poison=[2])
    assert kinds(list(batches_of(model).answers(rows(1, 2, 3)))) == {1: None, 2: ErrorKind.INFER_FAILED, 3: None}
    assert model.batches == [[1, 2, 3], [1], [2], [3]]


def test_the_failure_names_the_error():
    (response,) = batches_of(Model(poison=[2])).answers(rows(2))
    assert response.failure
    assert response.failure.message == "RuntimeError: cannot run one of 1"


def test_out_of_memory_halves_the_batch_and_the_size_is_kept():
    model = Model(memory=2)
    batches = batches_of(model)
    assert set(kinds(list(batches.answers(rows(*range(8))))).values()) == {None}
    assert [len(batch) for batch in model.batches] == [8, 4, 2, 2, 2, 2]
    assert model.freed == 2
    model.batches.clear()
    list(batches.answers(rows(*range(8))))
    assert [len(batch) for batch in model.batches] == [2, 2, 2, 2]


def test_a_row_too_large_alone_does_not_shrink_the_batches_to_come():
    model = Model(memory=8, large={3: 9})
    batches = batches_of(model)
    found = kinds(list(batches.answers(rows(*range(8)))))
    assert found == {id_: (ErrorKind.INFER_OOM if id_ == 3 else None) for id_ in range(8)}
    assert batches.largest is None


def test_a_broken_device_is_not_a_rows_fault():
    model = Model()
    model.run = lambda rows: (_ for _ in ()).throw(BrokenDeviceError("device-side assert"))  # type: ignore[method-assign]
    with pytest.raises(BrokenDeviceError):
        list(batches_of(model).answers(rows(1, 2)))
