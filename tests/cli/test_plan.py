"""``proctor plan`` as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from proctor.spec import load_spec
from tests.capacity.models import model_directory

pytestmark = pytest.mark.slow


def plan(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proctor", "plan", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    rows = "".join(json.dumps({"q": f"what is {n}?", "a": f"answer {n}"}) + "\n" for n in range(500))
    (tmp_path / "rows.jsonl").write_text(rows)
    file = tmp_path / "spec.yaml"
    file.write_text(
        "run_dir: run\n"
        "source: {kind: jsonl, path: rows.jsonl, columns: {prompt: q, target: a}}\n"
        "engine: {kind: scripted, checkpoints: [a, b], row_ms: 20}\n"
        "task: {kind: exact}\n"
    )
    return file


def nodes(folder: Path, text: str) -> Path:
    file = folder / "nodes.yaml"
    file.write_text(text)
    return file


def test_a_run_that_fits_with_a_block_to_paste(spec: Path, tmp_path: Path) -> None:
    cluster = nodes(tmp_path, "nodes: [{name: box, cpus: 4, ram_gb: 32, disk_gb: 100}]\n")
    done = plan(spec, "--cluster", cluster, "--why")
    assert done.returncode == 0, done.stderr
    assert f"fits: {cluster}" in done.stdout
    assert "infer limits: 50 rows/s, 1,000 rows in 0:20 (1 engines x 1000 / 20 ms)" in done.stdout
    assert "the kernel's high-water mark" in done.stdout
    assert "user: what is 0?" in done.stdout
    assert not (tmp_path / "run").exists()
    block = done.stdout[done.stdout.index("capacity:\n") :]
    spec.write_text(spec.read_text() + block)
    capacity = load_spec(spec).capacity
    assert capacity is not None
    assert capacity.model_dump() == yaml.safe_load(block)["capacity"]
    assert capacity.engines_per_node == 1


def test_what_would_have_to_change(spec: Path, tmp_path: Path) -> None:
    cluster = nodes(tmp_path, "nodes: [{name: box, count: 2, cpus: 4, ram_gb: 32}]\n")
    done = plan(spec, "--cluster", cluster, "--json", "--set", "engine.replicas=20")
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert told["event"] == "plan"
    assert told["todo"] == {"a": 500, "b": 500}
    found = told["capacity"]
    assert found["verdict"] == "fits with these changes"
    assert found["changes"] == [{"key": "engine.replicas", "before": 20, "after": 6}]
    assert [(node["count"], node["engines"]) for node in found["nodes"]] == [(2, 3)]
    assert {check["what"] for check in found["checks"] if check["level"] == "fails"} == {"cpu", "engines"}


def test_a_run_that_is_refused_says_the_arithmetic(spec: Path, tmp_path: Path) -> None:
    cluster = nodes(tmp_path, "nodes: [{name: tiny, cpus: 2, ram_gb: 1.5}]\n")
    done = plan(spec, "--cluster", cluster)
    assert done.returncode == 3
    assert f"refused: {cluster}" in done.stdout
    assert "memory (tiny): 0.9 x 1.5 GB - store 0.45 - 0 x engine" in done.stdout
    assert "for the spec" not in done.stdout


def test_a_mistake_in_the_cluster_is_one_line(spec: Path, tmp_path: Path) -> None:
    done = plan(spec, "--cluster", nodes(tmp_path, "nodes: [{name: a, cpus: 4, ram: 3}]\n"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "nodes.0.ram: unknown key 'ram' [and 1 more] (did you mean 'ram_gb'?)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_printed_block_fits_and_is_printed_again(spec: Path, tmp_path: Path) -> None:
    cluster = nodes(tmp_path, "nodes: [{name: n0, cpus: 2, ram_gb: 16, used_gb: 1}]\n")
    options = ("--cluster", cluster, "--engine-memory-mb", "3000", "--set", "engine.replicas=2", "--set",
               "engine.cpus_per_replica=0.5", "--engine-start-seconds", "45")  # fmt: skip
    first = plan(spec, *options)
    assert first.returncode == 0, first.stdout
    assert "of these 2 starts of 45 s, one after another: 1 of 2 checkpoints at a time\n" in first.stdout
    block = first.stdout[first.stdout.index("capacity:\n") :]
    spec.write_text(spec.read_text() + block)
    again = plan(spec, *options)
    assert again.returncode == 0, again.stdout
    assert again.stdout[again.stdout.index("capacity:\n") :] == block


def test_what_is_not_known_is_told_with_its_file(spec: Path, tmp_path: Path) -> None:
    config = {"model_type": "gemma3", "text_config": {"hidden_size": 2560}}
    model = model_directory(tmp_path / "gemma", config, {"w": ("BF16", [1000])})
    (model / "chat_template.jinja").write_text("{{ messages }}")
    cluster = nodes(tmp_path, "nodes: [{name: box, cpus: 8, ram_gb: 64, disk_gb: 100}]\n")
    done = plan(spec, "--cluster", cluster, "--set", "engine={kind: transformers, checkpoints: [gemma], device: cpu}")
    assert done.returncode == 0, done.stderr
    said = f"model (engine.checkpoints): unknown: memory of the model not known: {model / 'config.json'}: has no "
    assert f"{said}num_attention_heads\n" in done.stdout
    assert f"{said}num_hidden_layers\n" in done.stdout
