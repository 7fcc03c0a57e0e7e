"""Questions of a run, without the run: rows spread evenly over the source, prepared as a run prepares them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from pyroaring import BitMap64

from proctor.prepare import prepare_sample
from proctor.prepare.material import Material
from proctor.rows import Request, Sample, Sampling, UserError
from proctor.sources.samples import Unprepared, to_samples
from proctor.spec import RunSpec


class Probe(NamedTuple):
    """One question.

    Attributes:
        request: as a run would send it; its id is the row's.
        target: what the answer is marked against; None where the row has none.
    """

    request: Request
    target: object


def probes_of(material: Material, sampling: Sampling, sample: int) -> list[Probe]:
    """At most `sample` rows, in source order; rows that cannot be read or prepared are left out.

    Raises:
        UserError: none of the rows can be asked, with the first reason.
    """
    probes: list[Probe] = []
    trouble = ""
    for row in _rows(material, _spread(material.expected, sample)):
        outcome = prepare_sample(row, material.task, material.images) if isinstance(row, Sample) else row.failure
        if isinstance(outcome, tuple):
            target = None if outcome.target is None else msgspec.json.decode(outcome.target)
            probes.append(Probe(outcome.request(row.row_id, sampling), target))
        else:
            trouble = trouble or f"row {row.row_id}: {outcome.kind}: {outcome.message}"
    if not probes:
        raise UserError(f"no row of the sample can be asked; {trouble}", where=material.spec.source.path)
    return sorted(probes, key=lambda probe: probe.request.id)


def sampling_of(spec: RunSpec) -> Sampling:
    """How the run's tokens are chosen, as engines take it."""
    return Sampling(**{**spec.sampling.model_dump(), "stop": tuple(spec.sampling.stop)})


def _spread(expected: BitMap64, sample: int) -> BitMap64:
    """Ids at equal distances: neighbours in the source are often alike."""
    count = len(expected)
    if count <= sample:
        return expected
    return BitMap64(expected[position * count // sample] for position in range(sample))


def _rows(material: Material, ids: BitMap64) -> Iterator[Sample | Unprepared]:
    columns = material.spec.source.columns
    for group in material.source.groups(ids, max_rows=len(ids)):
        for block in material.source.read(group):
            yield from to_samples(block, columns)
