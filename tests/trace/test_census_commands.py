"""The commands ``census``, ``gaps`` and ``overlap``: what they print, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proctor.cli.trace import app
from proctor.rows import UserError
from tests.trace.exports import Export

NAME = "void cutlass::Kernel<" + "x" * 2000 + ">(T1)"


def run(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def lines(*words: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*words, "--json").splitlines()]


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    export = Export(tmp_path / "t.sqlite").gpu()
    export.launch(NAME, 0, 1000, 5000, short="Kernel").launch("add\x1b[31m", 8000, 9000, 9500)
    export.call("cudaDeviceSynchronize_v3020", 100, 5100).copy(9500, 9600, bytes=64, srcKind=0, dstKind=2)
    return export.close()


def test_census(trace: Path) -> None:
    text = run("census", trace)
    assert "\x1b[31m" not in text
    assert "\\x1b" in text
    assert "x" * 200 not in text
    assert "launches of kernels: 2, 0.004 ms in sum" in text
    groups = lines("census", trace)
    assert [(line.get("key"), line.get("total")) for line in groups[:2]] == [(NAME, 4000), ("add\x1b[31m", 500)]
    assert groups[2]["event"] == "census"
    assert groups[2]["devices"][0]["busy"] == 4500
    assert groups[2]["copies"] == [
        {
            "kind": "host to device", "source": "pageable", "target": "device", "calls": 1, "bytes": 64, "total": 100,
            "least": 100, "most": 100,
        }
    ]  # fmt: skip


def test_census_of_a_huge_trace(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.trace.work.census.WHOLE_ROWS", 1)
    text = run("census", trace)
    assert "busy time, and on which devices each group ran, are left out: --whole" in text
    assert "devices" not in text.splitlines()[0]
    group, _, found = lines("census", trace)
    assert (group["median"], group["p95"], group["error"], group["total"]) == (4000, 4000, 0, 4000)
    assert (group["first"], group["at_ns"], group["streams"], found["devices"], found["whole"]) == (*[None] * 4, False)
    assert lines("census", trace, "--whole")[2]["devices"][0]["busy"] == 4500
    assert lines("census", trace, "--since", "0us", "--whole")[2]["devices"][0]["busy"] == 4500
    assert lines("census", trace, "--by", "stream")[-1]["streams"][0]["busy"] == 4500


def test_census_in_a_window(trace: Path) -> None:
    assert lines("census", trace, "--since", "2us", "--by", "device")[-1]["calls"] == 1
    with pytest.raises(UserError, match="ends"):
        run("census", trace, "--since", "2us", "--until", "1us")


def test_quick_census(trace: Path) -> None:
    kernel, _, total = lines("census", trace, "--quick")
    assert (kernel["key"], kernel["calls"], kernel["total"], kernel["mean"]) == (NAME, 1, 4000, 4000.0)
    assert (total["kernels"], total["calls"], total["total"]) == (2, 2, 4500)
    assert "launches of kernels: 2" in run("census", trace, "--quick")
    with pytest.raises(UserError, match="by demangled name"):
        run("census", trace, "--quick", "--by", "short")


def test_gaps(trace: Path) -> None:
    gap, total = lines("gaps", trace)
    assert (gap["length"], gap["cause"], gap["before"]["name"]) == (4000, "host synchronisation", NAME)
    assert total["devices"][0]["idle"] == 4000
    text = run("gaps", trace)
    assert "cudaDeviceSynchronize_v3020 returned 0.1 us into the gap" in text
    assert "this gap is 100.0% of all idle time" in text


def test_overlap(trace: Path) -> None:
    found = lines("overlap", trace)
    assert [line["event"] for line in found] == ["device", "wait", *["finding"] * 9, "overlap"]
    assert (found[0]["compute"], found[0]["exposed_copies"]) == (4500, 100)
    assert found[-1]["pageable"] == {"calls": 1, "bytes": 64, "total": 100, "known": True}
    text = run("overlap", trace)
    assert "found: device-wide synchronisation: cudaDeviceSynchronize_v3020 x1, 0.005 ms of waiting" in text
    assert "pageable copies: 1, 64 bytes" in text
