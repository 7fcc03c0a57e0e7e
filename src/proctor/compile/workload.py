"""The workload of a bench: real rows of a spec's source, sorted by what they look like to the vision encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from itertools import cycle, islice

import msgspec

from proctor.compile.model import Shape
from proctor.compile.orders import Unit, Workload
from proctor.images.formats import OPENERS, sniff
from proctor.prepare.material import material_of
from proctor.prepare.probes import probes_of, sampling_of
from proctor.rows import Request, UserError
from proctor.spec import RunSpec

MOST_KINDS = 3
"""So many kinds of rows have a unit of their own; the others share one."""
Look = tuple[tuple[int, int], ...]
"""Height and width of each image of a row, in pixels."""


def workload(spec: RunSpec, sample: int) -> Workload:
    """Units that stand for the rows of the spec's source, each a batch of real rows.

    Rows whose images have the same sizes make a unit of the engine's batch size; where the sample has too few of them
    they are repeated. What a run of this length leaves for its last, smaller batch makes one more unit.

    Args:
        spec: the run that is planned.
        sample: rows of the source that are looked at, at equal distances.

    Raises:
        UserError: the source cannot be read, or its rows bring no images.
    """
    material = material_of(spec)
    probes = probes_of(material, sampling_of(material.spec), sample)
    return units_of([probe.request for probe in probes], spec.engine.batch_size, len(material.expected))


def units_of(requests: Sequence[Request], batch: int, rows: int) -> Workload:
    """The units of sampled requests; see `workload`.

    Args:
        requests: the sample.
        batch: rows of a full batch.
        rows: of the whole source.

    Raises:
        UserError: none of them has an image.
    """
    looks = {request.id: look_of(request) for request in requests if request.images}
    if not looks:
        raise UserError(
            "no row of the sample has images: there is nothing for a vision encoder to do", where="source.columns"
        )
    groups = _groups([request for request in requests if request.id in looks], looks)
    ragged = rows % batch / rows if rows > batch else 0.0
    batch = min(batch, rows)
    units = [_unit(group, looks, batch, len(group) / len(looks) * (1 - ragged)) for group in groups]
    if ragged:
        units.append(_unit(groups[0], looks, rows % batch, ragged))
    notes = []
    if left := len(requests) - len(looks):
        notes.append(f"{left} of {len(requests)} sampled rows have no images: shares are those of the others")
    return Workload(tuple(units), rows, tuple(notes))


def look_of(request: Request) -> Look:
    """The sizes of a request's images, from their headers."""
    opened = (OPENERS[sniff(image) or ""](BytesIO(image)) for image in request.images)
    return tuple((image.height, image.width) for image in opened)


def _groups(requests: Sequence[Request], looks: dict[int, Look]) -> list[list[Request]]:
    """Rows that look alike, the most frequent look first; rare looks are one group."""
    counted = Counter(looks[request.id] for request in requests)
    order = [look for look, _ in counted.most_common()]
    kept = order if len(order) <= MOST_KINDS + 1 else order[:MOST_KINDS]
    groups = [[request for request in requests if looks[request.id] == look] for look in kept]
    rest = [request for request in requests if looks[request.id] not in kept]
    return sorted(filter(None, (*groups, rest)), key=len, reverse=True)


def _unit(group: Sequence[Request], looks: dict[int, Look], rows: int, share: float) -> Unit:
    chosen = list(islice(cycle(group), rows))
    seen = [looks[request.id] for request in chosen]
    requests = tuple(msgspec.structs.replace(request, id=number) for number, request in enumerate(chosen))
    shape = Shape(name=_named(seen), images=sum(map(len, seen)), patches=0, rows=rows, share=share)
    return Unit(shape, requests)


def _named(looks: Sequence[Look]) -> str:
    """``16 rows, each 2 images of 224x448``: rows, images, height by width."""
    rows = f"{len(looks)} row{'' if len(looks) == 1 else 's'}"
    each = "" if len(looks) == 1 else "each "
    if len(set(looks)) > 1:
        sizes = {size for look in looks for size in look}
        return f"{rows}, {sum(map(len, looks))} images of {len(sizes)} sizes"
    counts = Counter(looks[0])
    parts = [f"{n} image{'' if n == 1 else 's'} of {height}x{width}" for (height, width), n in counts.items()]
    return f"{rows}, {each}{' and '.join(parts)}"
