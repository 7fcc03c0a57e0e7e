"""Makes the pictures of the run browser in docs/assets/: ``make docs-shots``. Needs playwright and Chromium.

What is shown is made here, the same every time: a run of four checkpoints over 100 scenes with faults planted, another
that is incomplete, a fleet, an audit, a bench of compilation, and the traces of scripts/trace_picture.py. Answers,
names and times are invented. Pictures are cut to what they are about, so each is small.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser

from tests.browser import world
from tests.browser.serving import served
from tests.chromium import launched
from tests.view.helpers import BEGAN, make_run

MOST_BYTES, WIDTH = 200_000, 1280
RUN = "in=runs&path=night-drive"


class Shot(NamedTuple):
    """A picture: its name, the page, and how much of its top is shown."""

    name: str
    address: str
    height: int
    dark: bool = False


SHOTS = (
    Shot("view-runs", "/", 560),
    Shot("view-run", f"/run?{RUN}", 1060),
    Shot(
        "view-rows", f"/rows?{RUN}&filter={quote('not exact and checkpoint = ' + chr(34) + 'step-1600' + chr(34))}", 720
    ),
    Shot("view-row", f"/row?{RUN}&row=1&checkpoint=step-0400", 900, dark=True),
    Shot("view-compare", "/compare?side=runs/night-drive:step-0400&side=runs/night-drive:step-1600", 900),
    Shot("view-timeline", "/timeline?in=runs&path=before.sqlite&from=900000&to=2600000", 760),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="names of pictures")
    given = parser.parse_args()
    with fixed_folder() as place:
        root = make(place / "runs")
        with launched() as browser, served(root) as origin:
            for shot in SHOTS:
                if not given.only or shot.name in given.only:
                    content = small(taken(browser, origin, shot), shot.height)
                    (given.folder / f"{shot.name}.png").write_bytes(content)
                    print(f"{shot.name}: {len(content):,} bytes")


def make(root: Path) -> Path:
    make_run(root, world.ROWS)
    world.faulty(root / "second")
    world.audit(root)
    world.bench(root / "tower")
    world.fleet(root / "fleets")
    world.traces(root / "traces")
    for name in ("before", "after"):
        (root / "traces" / f"{name}.sqlite").rename(root / f"{name}.sqlite")
    for path in root.rglob("*"):
        later = 600 if "night-drive" in path.parts else 0  # the list begins with what has changed last
        os.utime(path, (BEGAN + later, BEGAN + later))
    return root


@contextmanager
def fixed_folder() -> Iterator[Path]:
    """A folder under the same name each time, since pages show where a run lies."""
    place = Path(tempfile.gettempdir()) / "proctor"
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place)


def taken(browser: Browser, origin: str, shot: Shot) -> bytes:
    """The whole page, once all of its images are there."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": shot.height}, color_scheme="dark" if shot.dark else "light"
    )
    page = context.new_page()
    answer = page.goto(origin + shot.address)
    assert answer is not None
    assert answer.status == 200, page.inner_text("main")
    for image in page.locator("main img").all():
        image.scroll_into_view_if_needed()
        image.evaluate("image => image.decode()")
    page.evaluate("scrollTo(0, 0)")
    content = page.screenshot()
    context.close()
    return content


def small(content: bytes, height: int) -> bytes:
    """The top of a picture, packed as tightly as PNG can: all of its colours if that is small, else 256 of them."""
    with Image.open(BytesIO(content)) as picture:
        top = picture.convert("RGB").crop((0, 0, picture.width, min(height, picture.height)))
    packed = _png(top)
    if len(packed) >= MOST_BYTES:  # what a camera saw has a colour of its own in each pixel
        packed = _png(top.quantize(256, dither=Image.Dither.NONE))
    assert len(packed) < MOST_BYTES, f"{len(packed):,} bytes"
    return packed


def _png(picture: Image.Image) -> bytes:
    out = BytesIO()
    picture.save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
