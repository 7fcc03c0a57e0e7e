"""Pages about traces, asked for in this process."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from starlette.testclient import TestClient

from proctor.rows import UserError
from proctor.view.app.rooms.traces import MOST_GPUS
from proctor.view.charts.trace_lanes import MOST_ELEMENTS
from proctor.view.traces import shelf as shelves
from proctor.view.traces.files import TraceFile
from proctor.view.traces.shelf import MOST_OPEN, TraceShelf
from tests.trace.exports import Export
from tests.transfer.kv.waiting import until
from tests.view.app.asking import Asked, ask, client_of, links
from tests.view.traces.conftest import EVIL, make_trace

A, B = "in=runs&path=a.sqlite", f"in=runs&path={quote('deep <i>/b ' + chr(39) + '&.sqlite')}"
BOTH = f"a=runs/a.sqlite&b={quote('runs/deep <i>/b ' + chr(39) + '&.sqlite')}"
HARMLESS = "&lt;script&gt;alert(1)&lt;/script&gt;"


def parameter(link: str, name: str) -> str:
    return parse_qs(urlsplit(link).query).get(name, [""])[0]


def boxes(text: str) -> int:
    return len(re.findall(r'<a href="/timeline/event[^>]*tabindex="-1"', text))


def test_the_list_has_every_trace_and_says_why_one_cannot_be_read(client: TestClient) -> None:
    text, page = ask(client, "/traces")
    assert {parameter(link, "path") for link in links(page, "trace")} == {
        "a.sqlite", "deep <i>/b '&.sqlite", "text.sqlite", "cut.pt.trace.json.gz",
    }  # fmt: skip
    assert "a report, which has to be exported before" in text
    assert "away.sqlite" not in text
    assert text.count('type="radio"') == 2 * 4
    _, runs = ask(client, "/")
    assert "/traces" in runs.links


def test_a_trace_tells_what_the_command_line_tells(client: TestClient) -> None:
    text, page = ask(client, f"/trace?{A}")
    for said in ("NVIDIA H100 80GB HBM3, 132 SMs", "Busy and idle", "host not launching", "cudaLaunchKernel_v7000"):
        assert said in text
    assert HARMLESS in text
    kernels = [link for link in links(page, "timeline") if parameter(link, "of")]
    assert [parameter(link, "of") for link in kernels] == ["kernel:void gemm<float>(int)", f"kernel:{EVIL}"]
    for by, seen in (("nvtx", "step"), ("stream", "stream 8"), ("category", "gemm"), ("process", "100")):
        assert seen in ask(client, f"/trace?{A}&by={by}")[0]
    assert "a census has no groups by" in ask(client, f"/trace?{A}&by={quote(EVIL)}", 404)[0]


def test_a_kernel_leads_to_its_longest_launch(client: TestClient) -> None:
    text, page = ask(client, f"/timeline?{A}&of={quote('kernel:void gemm<float>(int)')}")
    assert text.count('class="marked"') == 1
    assert all(parameter(link, "mark").startswith("kernel:") for link in links(page, "timeline") if "from" in link)
    assert "nothing of that name ran" in ask(client, f"/timeline?{A}&of=kernel:none", 404)[0]
    assert "nothing of that name ran" in ask(client, f"/timeline?{A}&of={quote(EVIL)}", 404)[0]
    copies, _ = ask(client, f"/timeline?{A}&of={quote('copy:host to device')}")
    assert copies.count('class="marked"') == 1


def test_a_timeline_zooms_and_moves_by_links(client: TestClient) -> None:
    text, page = ask(client, f"/timeline?{A}")
    assert "125 events" in text
    assert HARMLESS in text
    steps = {parameter(link, "from") + "-" + parameter(link, "to"): link for link in links(page, "timeline")}
    assert "100000-300000" in steps
    near, nearer = ask(client, steps["100000-300000"])
    assert boxes(near) < boxes(text)
    assert 'value="0.1ms"' in near
    windows = {(parameter(link, "from"), parameter(link, "to")) for link in links(nearer, "timeline")}
    assert {("0", "200000"), ("200000", "400000"), ("150000", "250000"), ("0", "")} <= windows
    only, _ = ask(client, f"/timeline?{A}&show=NVTX+ranges&from=0&to=1us")
    assert "stream 7" not in only
    assert "thread 100" in only
    assert "1.000 µs, 1 event." in only


def test_what_is_no_time_or_row_is_told_or_put_right(client: TestClient) -> None:
    assert "from: &#39;soon&#39; is no time" in ask(client, f"/timeline?{A}&from=soon", 404)[0]
    for odd in ("from=9999s", "from=5ms&to=1ms", "row=99999", "row=-1", "row=" + "9" * 400, f"show={quote(EVIL)}"):
        assert "Later" in ask(client, f"/timeline?{A}&{odd}")[0]
    for key in ("kernel:99999", "kernel:x", "nothing:1", EVIL, ""):
        assert "no such event" in ask(client, f"/timeline/event?{A}&key={quote(key)}", 404)[0]
        assert client.get(f"/timeline?{A}&mark={quote(key)}").status_code == (
            200 if key in ("kernel:99999", "") else 404
        )


def test_an_event_leads_to_what_belongs_to_it(client: TestClient) -> None:
    text, page = ask(client, f"/timeline/event?{A}&key=kernel:1&from=0&to=1000")
    for said in ("void gemm&lt;float&gt;(int)", "0.004000 ms after the first event", "4.000 µs", "grid 1x1x1", "step"):
        assert said in text
    assert HARMLESS in text  # the range around its launch
    calls = [link for link in links(page, "timeline/event") if parameter(link, "key").startswith("call:")]
    back, called = ask(client, calls[0])
    assert "What it asked for" in back
    assert "kernel:1" in {parameter(link, "key") for link in links(called, "timeline/event")}
    assert "4,096 (4.10 kB, 2.05 GB/s)" in ask(client, f"/timeline/event?{A}&key=copy:1")[0]


def test_two_traces_are_compared_on_a_board(client: TestClient) -> None:
    text, page = ask(client, f"/trace/diff?{BOTH}")
    for said in ("What the captures allow", "What could not be decided", "+0.120", "noise is judged within"):
        assert said in text
    ways = [link for link in links(page, "timeline") if parameter(link, "of").startswith("kernel:gemm")]
    assert {parameter(link, "path") for link in ways} == {"a.sqlite", "deep <i>/b '&.sqlite"}
    for link in ways[:2]:
        assert 'class="marked"' in ask(client, link)[0]
    same, _ = ask(client, "/trace/diff?a=runs/a.sqlite&b=runs/a.sqlite")
    assert "both files have the same content" in same
    assert "no NVTX range" in ask(client, f"/trace/diff?{BOTH}&per=none", 404)[0]
    assert "no trace is chosen as B" in ask(client, "/trace/diff?a=runs/a.sqlite", 404)[0]


def test_of_very_many_gpus_some_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    with Export(tmp_path / "many.sqlite") as export:
        for number in range(MOST_GPUS + 3):
            export.launch("gemm", 10 * number, 10 * number + 1, 10 * number + 2, device=number)
    with client_of(tmp_path) as client:
        text, _ = ask(client, f"/trace?in={tmp_path.name}&path=many.sqlite")
        assert text.count('<th scope="row">GPU ') == MOST_GPUS
        assert "3 more GPUs are not shown." in text


def test_names_that_no_address_can_hold_are_shown_cut(tmp_path: Path) -> None:
    with Export(tmp_path / "long.sqlite") as export:
        export.launch("<" * 200_000, 100, 200, 300).launch("gemm", 400, 500, 900)
    make_trace(tmp_path / "other.sqlite")
    with client_of(tmp_path) as client:
        text, page = ask(client, f"/trace?in={tmp_path.name}&path=long.sqlite")
        assert (len(links(page, "timeline")), text.count("&lt;" * 50) > 0) == (2, True)
        sides = f"a={tmp_path.name}/long.sqlite&b={tmp_path.name}/other.sqlite"
        compared, both = ask(client, f"/trace/diff?{sides}&force=yes")
        assert any("gemm" in link for link in links(both, "timeline"))
        assert max(len(text), len(compared)) < 100_000


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("../outside.sqlite", "no path below the opened directories"),
        ("/etc/passwd", "no path below the opened directories"),
        ("away.sqlite", "a symbolic link, which is not followed"),
        ("deep <i>", "not an ordinary file"),
        ("none.sqlite", "no such file"),
        ("", "no such file|not an ordinary file"),
        ("text.sqlite", "not a SQLite database"),
        ("cut.pt.trace.json.gz", "the .gz file is cut off"),
        ("report.nsys-rep", "nsys export --type sqlite report.nsys-rep"),
        ("a.sqlite/x.sqlite", "no such directory"),
    ],
)
def test_nothing_but_traces_in_the_opened_directories_is_read(client: TestClient, path: str, said: str) -> None:
    for page in ("trace", "timeline", "timeline/event"):
        text, _ = ask(client, f"/{page}?in=runs&path={quote(path)}&key=kernel:1", 404)
        assert re.search(said, text)
    assert "no such directory is open" in ask(client, f"/trace?in={quote(EVIL)}&path=a.sqlite", 404)[0]
    assert re.search(said, ask(client, f"/trace/diff?a=runs/a.sqlite&b={quote('runs/' + path)}", 404)[0]) or not path


def test_nothing_is_left_beside_a_trace(client: TestClient, place: Path) -> None:
    before = {path: path.lstat().st_mtime_ns for path in place.rglob("*")}
    for page in ("trace", "timeline"):
        ask(client, f"/{page}?{A}")
    assert {path: path.lstat().st_mtime_ns for path in place.rglob("*")} == before


def test_a_trace_without_events_and_one_without_a_gpu_have_pages(tmp_path: Path) -> None:
    from tests.trace.exports import Export

    with Export(tmp_path / "empty.sqlite"):
        pass
    with Export(tmp_path / "cpu.sqlite") as export:
        export.annotation("step", 10, 20).annotation("open", 12, None)
    with client_of(tmp_path) as client:
        here = f"in={tmp_path.name}"
        assert "This trace has no events" in ask(client, f"/timeline?{here}&path=empty.sqlite")[0]
        assert "error" in ask(client, f"/trace?{here}&path=empty.sqlite")[0]
        text, _ = ask(client, f"/timeline?{here}&path=cpu.sqlite")
        assert "without an end" in text
        assert "2 events" in text
        refused, _ = ask(client, f"/trace/diff?a={tmp_path.name}/empty.sqlite&b={tmp_path.name}/cpu.sqlite")
        assert "Refused" in refused
        assert "A has no GPU work" in refused


def opened(shelf: TraceShelf, path: Path, changed: int = 1) -> shelves.OpenTrace:
    with shelf.traces(TraceFile("runs", path.name, path, 1, changed)) as (one,):
        return one


def test_the_shelf_keeps_few_traces_and_notices_changes(tmp_path: Path) -> None:
    shelf = TraceShelf()
    paths = [make_trace(tmp_path / f"{name}.sqlite") for name in "abcd"]
    first = opened(shelf, paths[0])
    assert opened(shelf, paths[0]) is first
    assert opened(shelf, paths[0], changed=2) is not first
    for path in paths[1:]:
        opened(shelf, path)
    assert len(shelf._held) == MOST_OPEN
    assert opened(shelf, paths[0]) is not first
    with pytest.raises(UserError, match="no such file"):
        opened(shelf, tmp_path / "none.sqlite")
    assert len(shelf._held) == MOST_OPEN
    shelf.close()
    assert not shelf._held


def test_one_request_at_a_time_reads_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, path = TraceShelf(), make_trace(tmp_path / "a.sqlite")
    other = make_trace(tmp_path / "b.sqlite")
    done: list[str] = []
    with shelf.traces(TraceFile("runs", "a", path, 1, 1)):
        waiting = threading.Thread(target=lambda: done.append(opened(shelf, path).file.path))
        waiting.start()
        assert opened(shelf, other).events.span  # others are read meanwhile
        assert not done
        until(lambda: shelf._waiting == 1)
        monkeypatch.setattr(shelves, "_SECONDS", 0.0)
        with pytest.raises(UserError, match="traces are being read for other pages"):
            opened(shelf, path)
    waiting.join(60)
    assert done == ["a"]
    shelf.close()


def test_real_captures_have_every_page(samples: Path, tmp_path: Path) -> None:
    for name in (
        "nsys/nsys-ai/mock.sqlite",
        "nsys/lighttransport-gemm/profile.sqlite",
        "kineto/h100_bert_small.json.gz",
    ):
        shutil.copy(samples / name, tmp_path / Path(name).name)
    with client_of(tmp_path) as client:
        for file in sorted(tmp_path.iterdir()):
            here = f"in={tmp_path.name}&path={file.name}"
            assert "Written by" in ask(client, f"/trace?{here}")[0]
            text, page = ask(client, f"/timeline?{here}")
            events = links(page, "timeline/event")
            assert boxes(text) <= len(events)
            assert "What is known of it" in ask(client, events[-1])[0]


def test_a_picture_has_no_more_elements_than_it_says(tmp_path: Path) -> None:
    from tests.trace.exports import Export

    with Export(tmp_path / "dense.sqlite") as export:
        for number in range(7_200):
            at = number // 8 * 1_100
            export.kernel("k", at, at + 1_000 + number % 3 * 40, stream=number % 8)
    with client_of(tmp_path) as client:
        text, _ = ask(client, f"/timeline?in={tmp_path.name}&path=dense.sqlite")
        drawn = text[text.index('<svg class="lanes"') : text.index("</svg>")]
        assert drawn.count("<") - drawn.count("</") <= MOST_ELEMENTS
        assert "7,200 events narrower than 2 pixels are drawn together" in text
        near, _ = ask(client, f"/timeline?in={tmp_path.name}&path=dense.sqlite&from=100us&to=200us")
        assert "narrower than 1 pixel " in near  # what the left edge leaves of some
        assert 8 * 90 <= boxes(near) <= 8 * 92
        drawn = near[near.index('<svg class="lanes"') : near.index("</svg>")]
        assert drawn.count("<") - drawn.count("</") <= MOST_ELEMENTS


def test_marks_that_turn_text_around_are_shown_not_obeyed(client: TestClient) -> None:
    for page in (f"/trace?{A}", f"/timeline?{A}", f"/timeline/event?{A}&key=kernel:2", f"/trace/diff?{BOTH}"):
        text = client.get(page).text
        assert HARMLESS in text
        assert "\u202e" not in text
        assert "<script>" not in text


def test_pages_hold_only_what_a_page_may(client: TestClient) -> None:
    """`ask` looks at tags, scripts, styles and links of each; here at what every timeline says to those who hear it."""
    text, page = ask(client, f"/timeline?{B}")
    assert isinstance(page, Asked)
    assert page.tags >= {"svg", "figure", "form", "table"}
    assert 'src="/timeline.js?v=' in text
    assert client.get("/timeline.js").headers["content-type"].startswith("text/javascript")
    for heard in ('aria-label="Timeline"', 'role="status"', 'aria-label="The longest events"', 'for="from"'):
        assert heard in text
