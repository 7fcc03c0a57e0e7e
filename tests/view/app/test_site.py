"""The pages of the browser, asked in this process: what they show."""

from __future__ import annotations

import csv
import html
import io
import re
from pathlib import Path
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from starlette.testclient import TestClient

from proctor.demo.dataset import CORRUPT_ROWS
from proctor.view.frames import redrawn
from tests.view.app.asking import ask, client_of, links
from tests.view.helpers import make_run


def test_from_the_list_to_the_row_and_its_neighbours(client: TestClient) -> None:
    text, runs = ask(client, "/")
    assert "stored spec not understood" not in text  # told on the run's own page: the list reads small files only
    good = next(link for link in links(runs, "run") if "good" in link)
    text, run = ask(client, good)
    assert "prepare.decode" in text
    assert "Confusion" in text
    chip = next(link for link in links(run, "rows") if "filter=error.kind" in link and "prepare.decode" in link)
    text, rows = ask(client, chip)
    assert f"{len([row for row in CORRUPT_ROWS if row < 100]) * 4} of 400 records" in text
    row = links(rows, "row")[1]
    text, page = ask(client, row)
    assert "prepare.decode" in text
    assert {link.partition("row=")[2] for link in links(page, "row")} >= {
        part.partition("row=")[2] for part in (links(rows, "row")[0], links(rows, "row")[2])
    }
    assert "checkpoint" in row
    text, _ = ask(client, re.sub("checkpoint=[^&]*", "", row))
    assert all(name in text for name in ("step-0100", "step-6400"))


def test_filters_searches_orders_columns_and_pages_are_addresses(client: TestClient) -> None:
    base = "/rows?in=runs&path=good/night-drive"
    text, rows = ask(
        client, f"{base}&filter={quote('exact and checkpoint = ' + chr(34) + 'step-6400' + chr(34))}&size=10"
    )
    assert "<td" in text
    (later,) = [link for link in rows.links if "after=" in link]
    _, second = ask(client, later)
    (earlier,) = [link for link in second.links if "before=" in link]
    assert links(ask(client, earlier)[1], "row") == links(rows, "row")
    ordered, _ = ask(client, f"{base}&sort=ade&way=down&columns=ade,answer&columns=target")
    assert 'aria-sort="descending"' in ordered
    assert "sample_id</a>" not in ordered
    assert "0 of 400 records" in ask(client, f"{base}&q=nowhere+to+be+found")[0]
    wrong, _ = ask(client, f"{base}&filter=exact+and+anser+contains+'x'", 400)
    assert "<mark>anser</mark>" in wrong
    assert "did you mean answer?" in wrong
    for begun, word in (
        ("exact and check", "checkpoint"),
        ("error.kind = ", '"infer.crashed"'),
        ("checkpoint = ", '"step-0400"'),
    ):
        text, offered = ask(client, f"{base}&sort=ade&filter={quote(begun)}", 400)
        assert html.escape(word, quote=False).replace('"', "&#34;") in text
        assert any("sort=ade" in link and quote_plus(word) in link for link in offered.links)
    for bad in ("sort=nothing", "columns=nothing", "after=AAAA", "filter=" + "(" * 500):
        ask(client, f"{base}&{bad}", 400)
    for bad in ("size=x", "size=9e9"):
        ask(client, f"{base}&{bad}", 404)


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
        assert why in ask(client, f"{base}&{bad}", 404)[0]
    broken = next(
        int(row)
        for row in client.get(
            "/export?in=runs&path=good/night-drive&filter=error.kind+%3D+'prepare.decode'&form=ids"
        ).text.split()
    )
    assert "no image that can be shown" in ask(client, f"{base}&row={broken}", 404)[0]
    with client_of(root, images=False) as blind:
        assert "switched off" in ask(blind, f"{base}&row=1", 404)[0]


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
    with client_of(tmp_path) as client:
        base = f"in={tmp_path.name}&path=night-drive"
        for address in ("rows?", "row?row=0&checkpoint=c&", "row?row=0&"):
            ask(client, f"/{address}{base}")


def test_a_ledger_that_does_not_balance_is_red(tmp_path: Path) -> None:
    run = make_run(tmp_path, 4)
    with client_of(tmp_path) as client:
        assert "does not balance" not in ask(client, "/")[0]
        account = run.read("reconciliation")
        account["checkpoints"][1]["expected"] += 1
        run.write("reconciliation", account)
        text, _ = ask(client, "/")
        assert '<td class="bad"><b>1 ✗ does not balance</b></td>' in text
