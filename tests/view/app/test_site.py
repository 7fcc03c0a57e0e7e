"""The pages of the browser, asked in this process: what they show, and that nothing hostile gets through them."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from starlette.testclient import TestClient

from proctor.demo.dataset import CORRUPT_ROWS
from proctor.results import RunDir
from proctor.rows.records import record_schema
from proctor.view.app.guard import Door
from proctor.view.app.site import make_site
from proctor.view.browse.places import open_places
from proctor.view.frames import redrawn
from tests.view.helpers import HOSTILE, make_run

_HOST = "127.0.0.1:7777"
_OWN_TAGS = {
    *("html", "head", "meta", "title", "link", "body", "main", "nav", "header", "section", "footer", "h1", "h2", "h3"),
    *("a", "p", "div", "span", "b", "strong", "code", "pre", "mark", "ul", "li", "dl", "dt", "dd", "img"),
    *("table", "thead", "tbody", "tr", "th", "td", "form", "input", "label", "button", "details", "summary"),
    *("svg", "g", "path", "line", "rect", "circle", "text", "polyline", "polygon", "tspan", "figure", "figcaption"),
}


class _Page(HTMLParser):
    """Tags, links and images of a page; fails on anything that the templates do not write."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.images: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert name != "style"
            if name == "href" and tag == "a":
                self.links.append(value or "")
            if name == "src":
                self.images.append(value or "")


def _client(*places: Path, images: bool = True) -> TestClient:
    site = make_site(open_places(places), Door(7777), images=images)
    return TestClient(site, base_url=f"http://{_HOST}")


def _page(client: TestClient, address: str, status: int = 200) -> tuple[str, _Page]:
    answer = client.get(address)
    assert answer.status_code == status, answer.text[:2000]
    page = _Page(answer.text)
    assert page.tags <= _OWN_TAGS
    assert all(link.startswith(("/", "#")) for link in [*page.links, *page.images])
    return answer.text, page


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site") / "runs"
    make_run(root / "good", 100)
    make_run(root / "evil <b>&\"'", 12, lost=2, hostile=True)
    (root / "audits").mkdir()
    (root / "audits" / "audit.json").write_text("{}")
    damaged = root / "damaged"
    damaged.mkdir()
    (damaged / "spec.yaml").write_text("source: [")
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[TestClient]:
    with _client(root) as client:
        yield client


def _links(page: _Page, path: str) -> list[str]:
    return [link for link in page.links if link.startswith(f"/{path}?")]


def test_from_the_list_to_the_row_and_its_neighbours(client: TestClient) -> None:
    text, runs = _page(client, "/")
    assert "stored spec not understood" not in text  # told on the run's own page: the list reads small files only
    good = next(link for link in _links(runs, "run") if "good" in link)
    text, run = _page(client, good)
    assert "prepare.decode" in text
    assert "Confusion" in text
    chip = next(link for link in _links(run, "rows") if "prepare.decode" in link)
    text, rows = _page(client, chip)
    assert f"{len([row for row in CORRUPT_ROWS if row < 100]) * 4} of 400 records" in text
    row = _links(rows, "row")[1]
    text, page = _page(client, row)
    assert "prepare.decode" in text
    assert {link.partition("row=")[2] for link in _links(page, "row")} >= {
        part.partition("row=")[2] for part in (_links(rows, "row")[0], _links(rows, "row")[2])
    }
    assert "checkpoint" in row
    text, _ = _page(client, re.sub("checkpoint=[^&]*", "", row))
    assert all(name in text for name in ("step-0100", "step-6400"))


def test_filters_searches_orders_columns_and_pages_are_addresses(client: TestClient) -> None:
    base = "/rows?in=runs&path=good/night-drive"
    text, rows = _page(
        client, f"{base}&filter={quote('exact and checkpoint = ' + chr(34) + 'step-6400' + chr(34))}&size=10"
    )
    assert "<td" in text
    (later,) = [link for link in rows.links if "after=" in link]
    _, second = _page(client, later)
    (earlier,) = [link for link in second.links if "before=" in link]
    assert _links(_page(client, earlier)[1], "row") == _links(rows, "row")
    ordered, _ = _page(client, f"{base}&sort=ade&way=down&columns=ade,answer&columns=target")
    assert 'aria-sort="descending"' in ordered
    assert "sample_id</a>" not in ordered
    assert "0 of 400 records" in _page(client, f"{base}&q=nowhere+to+be+found")[0]
    wrong, _ = _page(client, f"{base}&filter=exact+and+anser+contains+'x'", 400)
    assert "<mark>anser</mark>" in wrong
    assert "did you mean answer?" in wrong
    for begun, word in (
        ("exact and check", "checkpoint"),
        ("error.kind = ", '"infer.crashed"'),
        ("checkpoint = ", '"step-0400"'),
    ):
        text, offered = _page(client, f"{base}&sort=ade&filter={quote(begun)}", 400)
        assert html.escape(word, quote=False).replace('"', "&#34;") in text
        assert any("sort=ade" in link and quote_plus(word) in link for link in offered.links)
    for bad in ("sort=nothing", "columns=nothing", "after=AAAA", "filter=" + "(" * 500):
        _page(client, f"{base}&{bad}", 400)
    for bad in ("size=x", "size=9e9"):
        _page(client, f"{base}&{bad}", 404)


def test_exports_hold_the_filtered_rows(client: TestClient) -> None:
    base = "/export?in=runs&path=good/night-drive&filter=error.kind+is+not+null&form="
    listed = client.get(base + "csv")
    assert listed.headers["content-disposition"] == 'attachment; filename="rows.csv"'
    lines = list(csv.DictReader(io.StringIO(listed.text)))
    assert {line["error_kind"] for line in lines} == {"prepare.decode", "infer.crashed"}
    ids = client.get(base + "ids").text.split()
    assert ids == [str(number) for number in sorted({int(line["row_id"]) for line in lines})]
    assert pq.read_table(pa.BufferReader(client.get(base + "parquet").content)).num_rows == len(lines)
    assert client.get(base + "exe").status_code == 404
    assert client.get(base.replace("error", "eror") + "csv").status_code == 404


def test_images_are_drawn_anew_upright_and_a_broken_one_says_why(client: TestClient, root: Path) -> None:
    base = "/image?in=runs&path=good/night-drive"
    answer = client.get(f"{base}&row=1&n=0")
    assert answer.headers["content-type"] == "image/jpeg"
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.format == "JPEG"
        assert not image.getexif()
    for bad, why in (("row=1&n=99", "images"), ("row=-1", "no row"), ("row=10000", "no row"), ("row=x", "no whole")):
        assert why in _page(client, f"{base}&{bad}", 404)[0]
    broken = next(
        int(row)
        for row in client.get(
            "/export?in=runs&path=good/night-drive&filter=error.kind+%3D+'prepare.decode'&form=ids"
        ).text.split()
    )
    assert "no image that can be shown" in _page(client, f"{base}&row={broken}", 404)[0]
    with _client(root, images=False) as blind:
        assert "switched off" in _page(blind, f"{base}&row=1", 404)[0]


def test_a_picture_on_its_side_is_turned() -> None:
    picture, out = Image.new("RGB", (40, 20), "red"), io.BytesIO()
    picture.paste("blue", (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn clockwise
    exif[0x010E] = "where it was taken"
    picture.save(out, format="JPEG", quality=95, exif=exif)
    turned = redrawn(out.getvalue(), 100, 90)
    assert b"where it was taken" not in turned
    with Image.open(io.BytesIO(turned)) as image:
        assert image.size == (20, 40)
        assert [max(range(3), key=image.getpixel(place).__getitem__) for place in ((10, 5), (10, 35))] == [2, 0]  # type: ignore[union-attr,arg-type]


def test_records_of_somebody_else_are_shown_too(tmp_path: Path) -> None:
    run = make_run(tmp_path, 2)
    for part in (run.root / "results").iterdir():
        part.unlink()
    table = pa.table({"row_id": [0], "checkpoint": ["c"], "answer": [5], "prompt": [True], "n_images": ["many"]})
    pq.write_table(table, run.root / "results" / "part-c.parquet")
    with _client(tmp_path) as client:
        base = f"in={tmp_path.name}&path=night-drive"
        for address in ("rows?", "row?row=0&checkpoint=c&", "row?row=0&"):
            _page(client, f"/{address}{base}")


def test_nothing_of_a_hostile_run_becomes_part_of_a_page(client: TestClient) -> None:
    _, runs = _page(client, "/")
    evil = next(link for link in _links(runs, "run") if "evil" in link)
    text, _ = _page(client, evil)
    assert "does not balance" not in text
    assert HOSTILE not in text
    rows, page = _page(client, evil.replace("/run", "/rows"))
    assert "&lt;script&gt;" in rows
    row, shown = _page(client, _links(page, "row")[0])
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x" in row
    assert "\u202e" not in row
    assert all(link.startswith("/image?") for link in shown.images)
    for name in ("filter", "q", "sort", "columns", "in", "path", "after"):
        text = client.get(f"{evil.replace('/run', '/rows')}&{name}={quote(HOSTILE)}").text
        assert "<script" not in text
    assert "<script" not in client.get(f"/{quote(HOSTILE)}").text


def test_huge_and_strange_values_are_shown_cut(tmp_path: Path) -> None:
    run = make_run(tmp_path, 2)
    for part in (run.root / "results").iterdir():
        part.unlink()
    schema = record_schema({"way <i>": pa.list_(pa.float32()), "score": pa.float64()})
    row = {
        "row_id": 0,
        "checkpoint": "c",
        "answer": "<x>\0" + "a" * 10_000_000,
        "way <i>": [1.0],
        "score": float("nan"),
    }
    row |= {"prompt": '[{"role": "user", "parts": [{"type": "text", "text": "\\ud800"}]}]', "target": '"\\ud800"'}
    pq.write_table(pa.Table.from_pylist([row], schema), run.root / "results" / "part-c.parquet")
    (run.root / "results" / "part-d.parquet").write_bytes(b"nothing")
    with _client(tmp_path) as client:
        base = f"in={tmp_path.name}&path=night-drive"
        text, _ = _page(client, f"/rows?{base}")
        assert "part-d.parquet" in text
        assert "1 of 1 records" in text
        text, _ = _page(client, f"/row?{base}&row=0&checkpoint=c")
        assert "cut; the export has all of it" in text
        assert len(text) < 400_000
        assert "<x>" not in text
        assert "way &lt;i&gt;" in text
        assert "There is no record" in _page(client, f"/row?{base}&row=7&checkpoint=c", 404)[0]


def test_no_address_leads_out_of_the_opened_directories(client: TestClient, root: Path, tmp_path: Path) -> None:
    outside = make_run(tmp_path, 2).root
    (root / "link").symlink_to(tmp_path)
    inside = root / "half"
    inside.mkdir()
    (inside / "spec.yaml").symlink_to(outside / "spec.yaml")
    for path in (
        "..",
        f"../{tmp_path.name}/night-drive",
        str(outside),
        "link/night-drive",
        "half",
        "good/../../x",
        "a\0b",
    ):
        for page in ("run", "rows", "row", "image", "export"):
            text, _ = _page(client, f"/{page}?in=runs&path={quote(path)}&row=0&form=csv", 404)
            assert "This cannot be shown" in text
    for address in (
        "/run?in=nothing&path=x",
        "/run",
        "/static/../../etc/passwd",
        "/docs",
        "/openapi.json",
    ):
        assert client.get(address).status_code == 404
    listed = client.get("/").text
    assert tmp_path.name not in listed
    assert "half" not in listed  # a spec that is a link makes no run


def test_damaged_and_half_written_runs_are_told_not_hidden(tmp_path: Path) -> None:
    for name in ("spec", "reconciliation", "metrics", "status"):
        run = make_run(tmp_path / name, 2).root
        target = next(run.glob(f"{name}.*"), run / f"{name}.json")
        target.write_text('{"checkpoints": [{"checkpoint": "a", "expected": "b"}], "state": 5, "x": {"metrics": 7}}')
    young = RunDir(tmp_path / "young")
    young.folder.write("spec.yaml", (tmp_path / "status/night-drive/spec.yaml").read_bytes())
    with _client(tmp_path) as client:
        text, runs = _page(client, "/")
        assert text.count("damaged: ") == 2  # reconciliation and metrics
        for link in _links(runs, "run"):
            answer = client.get(link)
            assert answer.status_code in (200, 404)
            assert "fault of Proctor" not in answer.text
        assert client.get(next(link for link in _links(runs, "run") if "young" in link)).status_code == 200
        assert "0 of 0 records" in _page(client, f"/rows?in={tmp_path.name}&path=young")[0]


@pytest.mark.parametrize("moment", ["1e300", "-1e300", "1e15"])
def test_times_that_are_none_and_kinds_that_are_no_text_break_no_page(tmp_path: Path, moment: str) -> None:
    run = make_run(tmp_path, 4)
    account = run.read("reconciliation")
    account["checkpoints"][0]["errors"]["\ud800<i>"] = 1
    (run.root / "reconciliation.json").write_text(json.dumps(account))
    with _client(tmp_path) as client:
        address = f"/run?in={tmp_path.name}&path=night-drive"
        text, page = _page(client, address)
        assert "?&lt;i&gt;</b>" in text
        (chip,) = [link for link in _links(page, "rows") if "filter" in link]
        assert "0 of 16 records" in _page(client, chip)[0]
        with (run.root / "events.jsonl").open("a") as events:
            events.write(f'{{"kind": "engine.crashed", "time": {moment}, "duration": {moment}}}\n')
        assert client.get(address).status_code in (200, 404)


def test_a_ledger_that_does_not_balance_is_red(tmp_path: Path) -> None:
    run = make_run(tmp_path, 4)
    with _client(tmp_path) as client:
        assert "does not balance" not in _page(client, "/")[0]
        account = run.read("reconciliation")
        account["checkpoints"][1]["expected"] += 1
        run.write("reconciliation", account)
        text, _ = _page(client, "/")
        assert '<td class="bad"><b>1 ✗ does not balance</b></td>' in text


def test_every_answer_forbids_what_it_does_not_need(client: TestClient) -> None:
    for address in ("/", "/style.css", "/nothing", "/run?in=x"):
        headers = client.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script" not in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
