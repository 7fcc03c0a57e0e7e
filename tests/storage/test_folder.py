"""A folder behaves alike on a local disk and on object storage."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.rows import UserError
from proctor.storage.base import Busy
from proctor.storage.connect import StorageOptions, is_url, object_store
from proctor.storage.folder import Folder, LocalFolder, ObjectFolder, StorageError, Version, open_folder
from tests.storage.bucket import Bucket


def test_files_are_written_read_listed_moved_and_removed(folder: Folder) -> None:
    folder.prepare("results", "stalls")
    assert folder.names() == []
    folder.write("b.json", b"one")
    folder.write("b.json", b"two")
    folder.write("results/part-1", b"p")
    folder.write("results/deep/x", b"")
    assert folder.names() == ["b.json", "results/"]
    assert folder.names("results") == ["deep/", "part-1"]
    assert folder.below("results").read("part-1") == b"p"
    assert folder.read("b.json") == b"two"
    assert (folder.size("b.json"), folder.exists("b.json"), folder.exists("results")) == (3, True, False)
    folder.move("results", "earlier/1/results")
    folder.move("b.json", "earlier/1/b.json")
    assert folder.names() == ["earlier/"]
    assert folder.read("earlier/1/results/part-1") == b"p"
    assert folder.names("earlier/1/results") == ["deep/", "part-1"]
    folder.delete("earlier/1/b.json")
    folder.delete("earlier/1/b.json")
    assert folder.names("earlier/1") == ["results/"]
    with pytest.raises(FileNotFoundError):
        folder.read("b.json")
    with pytest.raises(FileNotFoundError):
        folder.size("b.json")


def test_conditional_writes(folder: Folder) -> None:
    folder.prepare()
    assert folder.replace("x", b"0", Version("none")) is None
    first = folder.create("x", b"1")
    assert first is not None
    assert folder.create("x", b"2") is None
    assert folder.read_versioned("x") == (b"1", first)
    second = folder.replace("x", b"3", first)
    assert second is not None
    assert second != first
    assert folder.replace("x", b"4", first) is None
    assert folder.read("x") == b"3"


def test_of_many_writers_with_a_condition_exactly_one_wins(folder: Folder) -> None:
    folder.prepare()
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda n: folder.create("x", b"%d" % n), range(8)))
        winner = [n for n, version in enumerate(created) if version is not None]
        assert folder.read("x") == b"%d" % winner[0]
        version = folder.read_versioned("x").version
        replaced = list(pool.map(lambda n: folder.replace("x", b"r%d" % n, version), range(8)))
    second = [n for n, version in enumerate(replaced) if version is not None]
    assert (len(winner), len(second)) == (1, 1)
    assert folder.read("x") == b"r%d" % second[0]


_RACER = """
import sys
from pathlib import Path
from proctor.storage.connect import StorageOptions
from proctor.storage.folder import open_folder
place, endpoint, name = sys.argv[1:]
folder = open_folder(place, StorageOptions(endpoint=endpoint or None, anonymous=True))
print("ready", flush=True)
sys.stdin.readline()
won = sum(folder.create(f"x{n}", name.encode()) is not None for n in range(20))
for n in range(20):
    data, version = folder.read_versioned("n")
    while folder.replace("n", b"%d" % (int(data) + 1), version) is None:
        data, version = folder.read_versioned("n")
print(won, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", "s3"])
def test_conditions_hold_between_processes(kind: str, tmp_path: Path, bucket: Bucket) -> None:
    place = str(tmp_path / "run") if kind == "local" else bucket.url("run")
    folder = open_folder(place, bucket.options)
    folder.write("n", b"0")
    endpoint = bucket.endpoint if kind == "s3" else ""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, place, endpoint, str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [int(racer.communicate(timeout=90)[0]) for racer in racers]
    assert sum(won) == 20
    assert int(folder.read("n")) == 60


def test_a_folder_travels_to_other_processes(folder: Folder) -> None:
    folder.write("x", b"1")
    assert pickle.loads(pickle.dumps(folder)).read("x") == b"1"


def test_parquet_is_read_from_a_folder(folder: Folder) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"row_id": [1, 2]}), sink)
    folder.write("a.parquet", sink.getvalue().to_pybytes())
    assert pq.read_table(folder.open("a.parquet")).column("row_id").to_pylist() == [1, 2]
    [path] = folder.local_copies(["a.parquet"])
    assert pq.read_metadata(path).num_rows == 2


def test_local_copies_follow_what_is_there_now(folder: Folder) -> None:
    folder.write("a", b"1")
    folder.write("b", b"2")
    assert [path.read_bytes() for path in folder.local_copies(["a", "b"])] == [b"1", b"2"]
    folder.write("a", b"3")
    assert [path.read_bytes() for path in folder.local_copies(["a"])] == [b"3"]


def test_a_workspace_is_a_local_directory_whose_files_end_up_in_the_folder(folder: Folder) -> None:
    space = folder.workspace("stalls")
    space.mkdir(parents=True, exist_ok=True)
    (space / "a.log").write_text("one")
    folder.upload("stalls", 0.0)
    (space / "a.log").write_text("one two")
    (space / "b.log").write_text("three")
    folder.upload("stalls", 0.0)
    assert folder.names("stalls") == ["a.log", "b.log"]
    assert folder.read("stalls/a.log") == b"one two"
    later = time.time() + 60
    (space / "c.log").write_text("four")
    folder.upload("stalls", later)
    folder.clear_workspaces()
    assert folder.read("stalls/b.log") == b"three"
    assert isinstance(folder, LocalFolder) or not space.exists()
    assert isinstance(folder, LocalFolder) or not folder.exists("stalls/c.log")


def _write_csv(path: Path) -> None:
    path.write_text("a,b")


def test_a_file_made_by_a_writer_of_files_is_taken_over(folder: Folder) -> None:
    folder.write_file("records.csv", _write_csv)
    assert folder.read("records.csv") == b"a,b"
    assert folder.below("results").parent == folder


def test_a_journal_keeps_lines_of_all_its_writers_in_order(folder: Folder) -> None:
    folder.prepare()
    one, two = folder.journal("events"), folder.journal("events")
    assert not one.exists()
    assert one.lines() == []
    for writer, line in ((one, b"1"), (one, b"2"), (two, b"3"), (one, b"4")):
        writer.append(line)
        writer.flush()
    assert folder.journal("events").lines() == [b"1", b"2", b"3", b"4"]
    assert two.exists()


def test_lines_are_gathered_for_a_segment_and_written_unasked(bucket: Bucket) -> None:
    folder = open_folder(bucket.url("run"), bucket.options)
    journal = folder.journal("events")
    lines = [b"%d" % n for n in range(200)]
    for line in lines:
        journal.append(line)
    journal.flush()
    assert folder.journal("events").lines() == lines
    assert len(bucket.keys("run/events/")) == 1
    journal.append(b"later")
    deadline = time.monotonic() + 30
    while b"later" not in folder.journal("events").lines():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_segment_whose_answer_was_lost_is_written_once(bucket: Bucket) -> None:
    folder = open_folder(bucket.url("run"), bucket.options)
    bucket.lose_answers = 1
    journal = folder.journal("events")
    journal.append(b"one")
    journal.append(b"two")
    journal.flush()
    assert folder.journal("events").lines() == [b"one", b"two"]


def test_lines_of_a_journal_are_not_lost_while_storage_is_down(bucket: Bucket) -> None:
    options = StorageOptions(endpoint=bucket.endpoint, anonymous=True, attempts=1)
    journal = open_folder(bucket.url("run"), options).journal("events")
    bucket.refuse["PUT"] = 1.0
    journal.append(b"one")
    with pytest.raises(StorageError):
        journal.flush()
    bucket.refuse.clear()
    journal.append(b"two")
    journal.flush()
    assert journal.lines() == [b"one", b"two"]


def test_503s_are_tried_again(bucket: Bucket) -> None:
    folder = open_folder(bucket.url("run"), bucket.options)
    bucket.refuse = {"PUT": 0.3, "GET": 0.3}
    for n in range(20):
        folder.write(f"{n:02d}", b"%d" % n)
    assert [int(folder.read(name)) for name in folder.names()] == list(range(20))


def test_storage_that_stays_down_is_told_in_one_line(bucket: Bucket) -> None:
    folder = open_folder(bucket.url("run"), StorageOptions(endpoint=bucket.endpoint, anonymous=True, attempts=2))
    bucket.refuse = {"PUT": 1.0}
    with pytest.raises(StorageError) as caught:
        folder.write("x", b"1")
    assert str(caught.value) == (
        "cannot write s3://bucket/run/x: 503 Service Unavailable (SlowDown: Please reduce your request rate.), "
        "after 2 tries"
    )
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), StorageError)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://no-such-bucket/x", r"^cannot write s3://no-such-bucket/x/f: 404 Not Found \(NoSuchBucket: .*\)$"),
        (
            "s3://bucket/x",
            r"^cannot write s3://bucket/x/f: no connection to http://127\.0\.0\.1:9 .*, after 2 tries; see ",
        ),
    ],
)
def test_what_storage_cannot_do_is_told_in_one_line(url: str, message: str, bucket: Bucket) -> None:
    endpoint = "http://127.0.0.1:9" if "no-such" not in url else bucket.endpoint
    folder = open_folder(url, StorageOptions(endpoint=endpoint, anonymous=True, attempts=2))
    with pytest.raises(StorageError, match=message):
        folder.write("f", b"1")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("hf://me/data", r"^hf://me/data: no storage has the scheme 'hf' \(one of s3://, .*\)$"),
        ("s3:///data", r"^s3:///data: no bucket or host in this URL \(for example s3://name/folder\)$"),
        ("file://data/x", r"^file://data/x: a file URL has three slashes before its path"),
        ("https://host/x", r"^https://host/x: a web server cannot be written to"),
        ("https://me:secret@host/x", r"^https://host: credentials in a URL \(leave them out\)$"),
        ("az://c/x", r"^az://c/x: cannot open: .*Account must be specified$"),
    ],
)
def test_a_url_that_names_no_storage_is_a_mistake(url: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(UserError, match=message):
        open_folder(url)


@pytest.mark.parametrize(
    ("url", "kind", "prefix"),
    [
        ("s3://b/a/b/", "S3Store", "a/b"),
        ("gs://b", "GCSStore", ""),
        ("abfss://c@account.dfs.core.windows.net/p/q", "AzureStore", "p/q"),
        ("http://host:8000/a%20b", "HTTPStore", "a b"),
        ("file:///data/x", "LocalStore", "data/x"),
    ],
)
def test_every_known_scheme_opens(url: str, kind: str, prefix: str) -> None:
    found = object_store(url, StorageOptions(endpoint="http://127.0.0.1:9", anonymous=True))
    assert (type(found.store).__name__, found.prefix) == (kind, prefix)
    assert is_url(url)


def test_who_looks_at_a_folder_keeps_nobody_out_of_it(tmp_path: Path) -> None:
    folder, looking = LocalFolder(tmp_path), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        seen = [pool.submit(_look_until, looking, folder) for _ in range(2)]
        for _ in range(300):
            with folder.claimed():
                assert folder.claimed_by_other()
                with pytest.raises(Busy), folder.claimed():
                    pass
        looking.set()
        assert all(one.result() for one in seen)
    assert not folder.claimed_by_other()


def _look_until(done: threading.Event, folder: LocalFolder) -> int:
    looks = 0
    while not done.is_set():
        folder.claimed_by_other()
        looks += 1
    return looks


def test_a_path_is_a_local_folder(tmp_path: Path) -> None:
    assert open_folder(str(tmp_path)) == LocalFolder(tmp_path)
    assert open_folder("s3://b/x/") == ObjectFolder("s3://b/x")
    assert not is_url("runs/a:b")
