"""``proctor trace lineup``, ``risks`` and ``decode``, as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trace.exports import Export

NVJET = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"


def proctor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proctor", "trace", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def json_lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    export = Export(tmp_path_factory.mktemp("names") / "t.sqlite").gpu()
    shape: dict[str, Any] = {"block": (384, 1, 1), "grid": (2, 66, 1), "clusterX": 2, "clusterY": 1, "clusterZ": 1}
    export.kernel(NVJET, 0, 600, dynamicSharedMemory=213_196, **shape)
    export.kernel(NVJET, 600, 650, dynamicSharedMemory=1_000, **shape)
    export.kernel("nvjet_tst_64x8_64x16_4x2_h_bz_TNT", 700, 900)
    export.kernel("ncclDevKernel_AllReduce_Sum_bf16_NVLS(ncclDevKernelArgsStorage<4096>)", 900, 1_000)
    export.kernel("evil[bold]\x1b[31m", 1_000, 1_050)
    return export.close()


def test_lineup(trace: Path) -> None:
    done = proctor("lineup", trace)
    assert done.returncode == 0, done.stderr
    assert "95.0% of 0.001 ms in 5 launches is placed" in done.stdout
    assert "cuBLAS, Hopper and later" in done.stdout
    *categories, total = json_lines(proctor("lineup", trace, "--json"))
    assert [(line["category"], line["total"], line["share"]) for line in categories] == [
        ("gemm", 850, 0.85),
        ("communication", 100, 0.1),
        ("other", 50, 0.05),
    ]
    assert [rule["rule"] for line in categories for rule in line["rules"]] == ["nvjet", "nccl-nvls", ""]
    assert total == {"event": "lineup", "launches": 5, "total": 1_000, "placed": 0.95}


def test_lineup_with_rules_of_ones_own(trace: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nid = "evil"\ncategory = "ours"\npattern = "evil.*"\nwhy = "ours"\n')
    *categories, total = json_lines(proctor("lineup", trace, "--rules", rules, "--json"))
    assert total["placed"] == 1
    assert categories[-1]["rules"][0]["origin"] == str(rules)
    rules.write_text(rules.read_text().replace("evil.*", "("))
    done = proctor("lineup", trace, "--rules", rules)
    assert done.returncode == 1
    assert "rule 1 (evil): pattern: no regular expression" in done.stderr
    assert "Traceback" not in done.stderr


def test_risks(trace: Path) -> None:
    done = proctor("risks", trace)
    assert done.returncode == 0, done.stderr
    assert "10.0% of kernel time no" in done.stdout
    assert "not verdicts" in done.stdout
    assert "NVLS: 10.0% of kernel time" in done.stdout
    *lines, table = json_lines(proctor("risks", trace, "--json"))
    assert [line["total"] for line in lines] == [650, 200, 100, 50]
    nvls = lines[2]["risks"]
    assert (nvls["run_to_run"]["answer"], nvls["clue"]) == ("no", "NVLS")
    assert "nccl#1497" in nvls["run_to_run"]["source"]
    assert table["clues"] == {"NVLS": 0.1}


def test_what_commands_a_terminal_is_spelled_out(trace: Path) -> None:
    for verb in ("lineup", "risks"):
        done = proctor(verb, trace)
        assert "\x1b" not in done.stdout
        assert "evil[bold]\\x1b[31m" in done.stdout.replace("\n", "")
    assert "\x1b" not in proctor("decode", "evil[bold]\x1b[31m").stdout


def test_decode_a_name() -> None:
    done = proctor("decode", NVJET)
    assert done.returncode == 0, done.stderr
    assert "cuBLAS GEMM, tile 192 x 192" in done.stdout
    (found,) = json_lines(proctor("decode", NVJET, "--json"))
    assert found["family"] == "nvjet"
    assert {field["name"] for field in found["fields"] if not field["known"]} == {"bz", "coopB", "third letter"}
    assert found["configurations"] == []


def test_decode_a_name_that_no_grammar_knows() -> None:
    done = proctor("decode", "void cub::DeviceScanKernel<X, float*>(X)")
    assert done.returncode == 0
    assert "no grammar reads this name; the line-up says scan (rule cub-scan)" in done.stdout
    assert "no rule of the line-up fits" in proctor("decode", "mine").stdout


def test_decode_with_a_trace(trace: Path) -> None:
    done = proctor("decode", "192x192", "--trace", trace)
    assert done.returncode == 0, done.stderr
    assert "196,608 B of 213,196 B of shared memory; 16,588 B are left" in done.stdout
    assert "compared with 1 launch, those with the most time; 1 other configuration not looked at" in done.stdout
    (found,) = json_lines(proctor("decode", NVJET, "--trace", trace, "--json"))
    assert [line["launch"]["dynamic_shared"] for line in found["configurations"]] == [213_196, 1_000]
    assert found["contradictions"] == []


def test_decode_with_a_trace_in_which_several_fit(trace: Path) -> None:
    done = proctor("decode", "nvjet", "--trace", trace)
    assert done.returncode == 1
    assert "'nvjet' fits 2 kernels" in done.stdout
    ambiguous = proctor("decode", "nvjet", "--trace", trace, "--json")
    assert [each["total"] for each in json.loads(ambiguous.stdout)["candidates"]] == [650, 200]
    none = proctor("decode", "nothing_of_the_kind", "--trace", trace)
    assert none.returncode == 1
    assert "no kernel fits" in none.stderr


def test_decode_on_a_real_trace(samples: Path) -> None:
    done = proctor("decode", "flash_fwd_kernel", "--trace", samples / "nsys/nsys-ai/mfu_2gpu_before.sqlite")
    assert done.returncode == 0, done.stderr
    assert "65,536 B" in done.stdout
    assert "contradicts" not in done.stdout
