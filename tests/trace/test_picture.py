"""The picture of a timeline in a real browser."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.export import export, picture
from proctor.trace.export.picture import write_picture
from proctor.trace.timeline.timeline import Event, Kind
from tests.trace.exports import Export, process_id, thread_id

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
LABELS, AXIS, HEAD, ROW = 230, 22, 20, 17  # pixels; as in draw.js


class Shown(NamedTuple):
    page: Page
    console: list[str]
    requests: list[str]

    @property
    def frame_ms(self) -> float:
        return float(self.page.evaluate("document.body.dataset.frameMs"))

    def settle(self) -> None:
        """Until the frame that is due has been drawn."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def hover(self, row: int, share: float, headings: int = 1) -> str:
        """The tooltip at a share of the visible time in a row."""
        box = self.page.locator("#canvas").bounding_box()
        assert box is not None
        x = box["x"] + LABELS + share * (box["width"] - LABELS)
        self.page.mouse.move(x, box["y"] + AXIS + headings * HEAD + row * ROW + ROW / 2)
        return self.page.locator("#tooltip").inner_text() if self.page.locator("#tooltip").is_visible() else ""


def show(browser: Browser, path: Path) -> Shown:
    page = browser.new_page(viewport={"width": 1200, "height": 700})
    shown = Shown(page, [], [])
    page.on("console", lambda message: shown.console.append(message.text))
    page.on("pageerror", lambda error: shown.console.append(str(error)))
    page.on("dialog", lambda dialog: (shown.console.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: shown.requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=60_000)
    shown.settle()
    return shown


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Three kernels, one of them with a name that is markup; a copy; ranges around their calls."""
    made = Export(tmp_path / "trace.sqlite")
    made.launch("flash_fwd_kernel", 100, 1_000, 501_000).launch(EVIL, 200, 501_000, 1_001_000)
    made.launch("flash_bwd_kernel", 300, 1_501_000, 2_001_100).copy(1_001_000, 1_501_000, bytes=4096, srcKind=1)
    made.annotation("forward", 50, 1_000_000).annotation("endless", 2_000_000, None)
    with open_trace(made.close()) as trace:
        assert export(trace, tmp_path / "out.html").events == 9
    return tmp_path / "out.html"


def test_it_shows_events_and_asks_nothing_of_the_network(browser: Browser, small: Path) -> None:
    shown = show(browser, small)
    assert shown.hover(0, 0.1).splitlines() == [
        "flash_fwd_kernel",
        "kernel: 500 µs, at 950 ns",
        "grid 1x1x1, block 128x1x1, 32 registers",
        "GPU 0 of pid 100, context 1, stream 7",
    ]
    assert shown.hover(0, 0.6).splitlines()[:3] == [
        "copy host to device",
        "copy: 500 µs, at 1.00095 ms",
        "4,096 bytes",
    ]
    assert shown.hover(0, 0.9).splitlines()[1] == "kernel: 500.1 µs, at 1.50095 ms"
    assert shown.hover(1, 0.2, headings=2).splitlines()[0] == "forward"
    assert shown.hover(1, 0.9998, headings=2).splitlines()[1] == "range: does not end in this trace, at 1.99995 ms"
    assert shown.hover(1, 0.7, headings=2) == ""
    assert (shown.console, shown.requests) == ([], [small.as_uri()])


def test_a_name_that_is_markup_is_text(browser: Browser, small: Path) -> None:
    shown = show(browser, small)
    assert shown.hover(0, 0.4).splitlines()[0] == EVIL
    shown.page.fill("#search", "<script>")
    shown.page.keyboard.press("Enter")
    assert shown.page.locator("#chosen").inner_text().splitlines()[0] == EVIL
    assert shown.page.locator("img").count() == 0
    assert shown.console == []
    assert "alert" not in small.read_text()


def test_a_file_name_that_is_markup_is_text(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "<img src=x onerror=alert(1)>.sqlite"
    with open_trace(Export(path).kernel("k", 0, 10).close()) as trace:
        export(trace, tmp_path / "out.html")
    shown = show(browser, tmp_path / "out.html")
    assert shown.page.locator("h1").inner_text() == path.name
    assert shown.console == []


def test_search_counts_and_walks_in_order_of_time(browser: Browser, small: Path) -> None:
    shown = show(browser, small)
    shown.page.fill("#search", "FLASH_")
    assert shown.page.locator("#found").inner_text() == "2 events match"
    names = []
    for _ in range(3):
        shown.page.keyboard.press("Enter")
        names.append(shown.page.locator("#chosen").inner_text().splitlines()[0])
    assert names == ["flash_fwd_kernel", "flash_bwd_kernel", "no match after this"]
    shown.page.keyboard.press("Shift+Enter")
    assert shown.page.locator("#chosen").inner_text().splitlines()[0] == "flash_fwd_kernel"
    shown.page.keyboard.press("Escape")
    assert shown.page.locator("#found").inner_text() == ""
    shown.page.fill("#search", "nothing like it")
    assert shown.page.locator("#found").inner_text() == "0 events match"


def test_keys_and_wheel_move_the_view(browser: Browser, small: Path) -> None:
    shown = show(browser, small)
    box = shown.page.locator("#canvas").bounding_box()
    assert box is not None
    shown.hover(0, 0.5)
    shown.page.mouse.wheel(0, -2000)  # into the middle: what was at its right has left the view
    shown.settle()
    assert shown.hover(0, 0.99).startswith("copy")
    shown.page.keyboard.press("0")
    shown.settle()
    assert shown.hover(0, 0.99).startswith("flash_bwd_kernel")
    for key in ("w", "w", "w", "w", "a", "a", "a", "a", "a", "a"):
        shown.page.keyboard.press(key)
        shown.settle()
    assert shown.hover(0, 0.5).splitlines()[0] in ("flash_fwd_kernel", EVIL)
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("was")  # typing moves nothing
    assert shown.page.locator("#search").input_value() == "was"
    assert shown.console == []


def many(count: int) -> Iterator[Event]:
    """Kernels on two GPUs and calls in ranges, in order of time, with lengths and gaps as irregular as real ones."""
    process, thread = process_id(100), thread_id(100)
    chance = random.Random(7)
    start = 0
    for number in range(count // 4):
        start += chance.randrange(10_000, 1_000_000 if number % 100 == 0 else 20_000)
        name = f"kernel_{chance.randrange(500)}"
        yield Event(start, start + 9_000, Kind.RANGE, f"step {number % 50}", process, thread)
        yield Event(start + 100, start + chance.randrange(200, 5_000), Kind.CALL, "cudaLaunchKernel", process, thread)
        for device in (0, 1):
            end = start + chance.randrange(1_100, 9_900)
            yield Event(start + 1_000, end, Kind.KERNEL, name, process, None, device, 1, 7, number, None, "grid 2x66x1")


@pytest.mark.slow
def test_a_million_events_do_not_freeze_it(browser: Browser, tmp_path: Path) -> None:
    target = tmp_path / "many.html"
    with open_trace(Export(tmp_path / "trace.sqlite").kernel("k", 0, 10).close()) as trace:
        assert write_picture(trace, many(1_000_000), target, 0) == 1_000_000
    assert target.stat().st_size < 20_000_000
    shown = show(browser, target)
    frames = [shown.frame_ms]
    shown.hover(0, 0.37)
    for _ in range(8):
        shown.page.mouse.wheel(0, -400)
        shown.settle()
        frames.append(shown.frame_ms)
    assert max(frames) < 500
    assert int(shown.page.evaluate("document.body.dataset.frames")) >= len(frames)
    shown.page.fill("#search", "kernel_123")
    expected = sum(event.name == "kernel_123" for event in many(1_000_000))
    assert shown.page.locator("#found").inner_text() == f"{expected:,} events match"
    shown.page.keyboard.press("Enter")
    shown.settle()
    assert shown.page.locator("#chosen").inner_text().splitlines()[0] == "kernel_123"
    assert shown.frame_ms < 500
    assert (shown.console, shown.requests) == ([], [target.as_uri()])


def test_too_many_events_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "MOST_EVENTS", 2)
    made = Export(tmp_path / "trace.sqlite").kernel("a", 0, 1).kernel("b", 2, 3).kernel("c", 4, 5)
    with open_trace(made.close()) as trace, pytest.raises(UserError, match="too many for a browser"):
        export(trace, tmp_path / "out.html")
    assert not (tmp_path / "out.html").exists()


def test_numbers_survive_the_packing(browser: Browser, tmp_path: Path) -> None:
    """Times and sizes beyond 32 bits."""
    made = Export(tmp_path / "trace.sqlite").kernel("early", 1, 2)
    made.copy(5_000_000_000_001, 5_000_000_000_004, bytes=9_000_000_000, stream=9).memset(3, 4, stream=10)
    with open_trace(made.close()) as trace:
        export(trace, tmp_path / "out.html")
    shown = show(browser, tmp_path / "out.html")
    shown.page.fill("#search", "copy")
    shown.page.keyboard.press("Enter")
    lines: list[Any] = shown.page.locator("#chosen").inner_text().splitlines()
    assert lines[:3] == ["copy host to device", "copy: 3 ns, at 5,000 s", "9,000,000,000 bytes"]
