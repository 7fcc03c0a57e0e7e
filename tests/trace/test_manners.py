"""What all verbs have in common: errors once, one clock, ids that another verb takes, numbers in one way."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from proctor.cli.trace import app
from proctor.rows import UserError
from tests.trace.exports import Export

US = 1000


def run(*words: str | Path, exits: int = 0) -> Result:
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == exits, done.output
    return done


def lines(*words: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    """Two ranks; the first event is a range at 500 us of the trace's clock, the first kernel comes 100 us later."""
    export = Export(tmp_path / "t.sqlite")
    for pid, device in ((5617, 0), (5618, 1)):
        export.annotation("step", 500 * US, 900 * US, pid=pid)
        export.launch("void ns::gemm<(int)4>(T1)", 590 * US, 600 * US, 700 * US, pid=pid, device=device)
        export.launch("add", 705 * US, 710 * US, 720 * US, pid=pid, device=device)
    return export.close()


@pytest.fixture
def no_kernels(tmp_path: Path) -> Path:
    return Export(tmp_path / "n.sqlite").call("cudaMalloc_v3020", 0, 400).close()


@pytest.mark.parametrize("verb", ["census", "gaps", "overlap", "lineup", "risks", "occupancy"])
def test_a_trace_that_cannot_answer_says_so_once(
    no_kernels: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="needs kernels, and this trace has none: no kernels, though 1") as raised:
        run(verb, no_kernels)
    assert str(raised.value).count("CUDA API call") == 1
    assert "CUDA API call" not in capsys.readouterr().err


def test_a_verb_that_can_do_without_kernels_tells_all_the_same(no_kernels: Path) -> None:
    done = run("timeline", no_kernels)
    assert "cudaMalloc" in done.stdout
    assert done.stderr.count("error: n.sqlite: no kernels") == 1


def test_a_summary_without_kernels_is_shown_and_is_no_success(no_kernels: Path) -> None:
    assert "error: no kernels" in run("summary", no_kernels, exits=1).stdout
    run("summary", no_kernels, "--json", exits=1)
    run("notes", no_kernels)


def test_a_gpu_that_is_not_described_is_told_where_that_matters(ranks: Path) -> None:
    for verb in ("census", "gaps", "overlap", "nvtx", "lineup", "risks", "timeline", "notes"):
        assert run(verb, ranks).stderr == ""
    assert run("occupancy", ranks).output.count("name it with --gpu") == 1
    assert "does not say" not in run("occupancy", ranks, "--gpu", "H100").output
    assert "GPUs: 2 that the trace does not describe" in run("notes", ranks).stdout


def test_times_count_from_the_first_event_everywhere(ranks: Path) -> None:
    watched = lines("stakeout", ranks, "add", "--launches")
    launches = [line for line in watched if line["event"] == "launch"]
    assert [(each["at"], each["start"]) for each in launches] == [(210 * US, 710 * US)] * 2
    assert (watched[-1]["origin"], watched[-1]["first"]) == (500 * US, 710 * US)
    assert "from 0.210 to 0.220 ms after the trace's first event" in run("stakeout", ranks, "add").stdout
    gaps = lines("gaps", ranks)
    assert [(gap["at_ns"], gap["start"]) for gap in gaps[:2]] == [(200 * US, 700 * US)] * 2
    assert gaps[-1]["origin_ns"] == 500 * US
    assert gaps[-1]["devices"][0]["before_first"] == 100 * US
    event = lines("timeline", ranks, "--name", "add", "--kind", "kernel")[0]
    assert (event["at_ns"], event["start"]) == (210 * US, 710 * US)
    assert lines("census", ranks, "--since", "210us", "--until", "0.211ms")[0]["key"] == "add"
    group = lines("census", ranks)[1]
    assert (group["at_ns"], group["first"]) == (210 * US, 710 * US)
    assert lines("summary", ranks)[0]["window"] == {"start_ns": 590 * US, "end_ns": 720 * US, "origin_ns": 500 * US}
    assert "window: 0.090 to 0.220 ms after the first event, which is at 500,000 ns" in run("notes", ranks).stdout
    assert lines("nvtx", ranks)[-1]["origin_ns"] == 500 * US


def test_a_time_as_tables_have_it_can_be_given_back(tmp_path: Path) -> None:
    file = Export(tmp_path / "long.sqlite").kernel("a", 0, 10).kernel("b", 1_234_567_000, 1_234_568_000).close()
    at = re.search(r"[\d,.]+(?=\s+1\.000 )", run("timeline", file).stdout)
    assert at is not None
    assert at[0] == "1,234.567000"
    assert lines("census", file, "--since", f"{at[0]}ms")[0]["key"] == "b"


@pytest.mark.parametrize("verb", ["census", "lineup", "risks", "occupancy"])
def test_ids_are_those_that_stakeout_takes(ranks: Path, verb: str) -> None:
    text = run(verb, ranks).stdout
    (number,) = {match[0] for line in text.splitlines() if "gemm<4>" in line for match in re.finditer(r"#\d+", line)}
    assert f"{number} gemm<4>" in run("stakeout", ranks, number).stdout


def test_a_kernel_has_one_short_name_in_every_table(ranks: Path) -> None:
    for verb in ("summary", "census", "gaps", "lineup", "risks", "occupancy", "timeline"):
        text = run(verb, ranks).stdout
        assert "gemm<4>" in text, verb
        assert "(int)4" not in text, verb


def test_a_census_says_nothing_twice(ranks: Path) -> None:
    kernels, by_stream = run("census", ranks).stdout, run("census", ranks, "--by", "stream").stdout
    assert "kernels busy" in kernels
    assert "names" not in kernels.splitlines()[1]
    assert (kernels.count("device 0, pid 5617"), by_stream.count("device 0, pid 5617, stream 7")) == (1, 1)
    assert "device 0, pid 5617 " not in by_stream


def test_findings_come_before_what_cannot_be_seen(ranks: Path) -> None:
    said = [line.partition(":")[0] for line in run("overlap", ranks).stdout.splitlines()]
    order = [word for word in said if word in ("found", "not found") or word.startswith("cannot be seen")]
    assert order == ["not found", "not found", "cannot be seen in this trace (--json says why)"]
    assert len([line for line in lines("overlap", ranks) if line["event"] == "finding"]) == 9


def test_ranks_share_a_row_and_pids_are_no_amounts(ranks: Path) -> None:
    (row,) = [line for line in run("nvtx", ranks).stdout.splitlines() if line.strip().startswith("step")]
    assert row.split() == ["step", "5617,", "5618", "2", "0.800", "4", "4", "0.220", "0.220", "0.120"]
    assert [line["pid"] for line in lines("nvtx", ranks)[:2]] == [5617, 5618]


@pytest.mark.parametrize("verb", ["census", "gaps", "overlap", "timeline"])
def test_nothing_in_a_window_or_on_a_device_is_an_error_that_is_true(ranks: Path, verb: str) -> None:
    with pytest.raises(UserError) as raised:
        run(verb, ranks, "--device", "7")
    assert "7" in str(raised.value)
    assert "0, 1" in str(raised.value)
    with pytest.raises(UserError) as raised:
        run(verb, ranks, "--since", "400ms")
    assert "this trace has none" not in str(raised.value)


def test_decode_says_how_it_is_given_a_trace(ranks: Path) -> None:
    for words in ((ranks, "gemm"), (ranks,)):
        with pytest.raises(UserError, match="--trace FILE"):
            run("decode", *words)
    assert "gemm" in run("decode", "--trace", ranks, "gemm").stdout


def test_arguments_of_the_command_are_not_shown(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").kernel("a", 0, 10, pid=7)
    for name, value in (("PROCESS_0:COMMAND", "python"), ("PROCESS_0:ARGUMENT_1", "--token=s3cret"), ("UNIT", "ns")):
        export.row("META_DATA_CAPTURE", name=name, value=value)
    text = run("sql", export.close(), "SELECT * FROM META_DATA_CAPTURE").stdout
    assert "s3cret" not in text
    assert "[argument: not shown]" in text
    assert "python" in text
