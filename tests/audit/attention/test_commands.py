"""The two commands as a person types them, and without torch."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from proctor.cli.audit_attention import attention, cascade_gate
from proctor.rows import UserError

app = typer.Typer(pretty_exceptions_enable=False)
app.command("attention")(attention)
app.command("cascade-gate")(cascade_gate)

SMALL = ("--length", "200", "--prefix", "128", "--heads", "2", "--dim", "16", "--layers", "2", "--prefill", "100")


def told(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def lines(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told(*arguments, "--json").splitlines()]


def test_the_workbench_tells_all_its_parts() -> None:
    text = told("attention", *SMALL, "--dtype", "float32", "--dtype", "bfloat16")
    assert "1.0000000005838672e-07" in text
    assert "6,000 redundant reads are 75.00% of all" in text
    assert "control: the single pass again is equal bit by bit, in all 4 cases" in text
    assert "split-KV, float32 partials" in text
    assert "random decoder of 2 layers" in text
    assert "with the other run's KV" in text
    assert "24/24" in text


def test_each_line_for_machines_is_one_finding() -> None:
    found = lines("attention", *SMALL, "--dtype", "float64", "--seed", "3")
    events = [line["event"] for line in found]
    assert events[:3] == ["sums"] * 3
    assert events[3] == "reads"
    assert events[-3:] == ["depth", "switch_back", "attention"]
    assert set(events[4:-3]) == {"way"}
    assert found[-1]["seed"] == 3
    assert {"torch", "device", "threads"} <= found[-1].keys()
    assert lines("attention", *SMALL, "--dtype", "float64", "--seed", "3") == found


def test_parts_can_be_chosen() -> None:
    found = lines("attention", "--part", "reads", "--shared", "1000", "--suffix", "0", "-n", "2")
    assert [(line["event"], line["redundant"]) for line in found] == [("reads", 1000)]


def test_the_gate_tells_what_decided() -> None:
    text = told("cascade-gate", "-n", "16", "--gpu", "H200")
    assert "not split; what decided: cost model" in text
    assert "split 4, flash-decoding 4, with 4 tiles" in text
    assert "split from 17 requests on" in text
    assert "never split" in told("cascade-gate", "--vllm", "0.33.0", "--cascade")
    assert "the prefix is 0 for everyone" in told("cascade-gate", "--unrelated", "1")


def test_the_gate_for_machines() -> None:
    (found,) = lines("cascade-gate", "--query-lens", "1,1,1,1,1,1,1,9", "--gpu", "A100", "--vllm", "0.17.1")
    assert (found["cascade"], found["decided_by"]) == (True, "flash-decoding")
    assert found["first_activation"] == 14
    assert [gate["outcome"] for gate in found["gates"]][-1] == "not asked"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cascade-gate", "--query-lens", "1,x"), "no list of lengths"),
        (("cascade-gate", "--gpu", "Z9"), "no figures for a GPU"),
        (("cascade-gate", "--query-heads", "9"), "9 query heads for 8"),
        (("attention", "--part", "ways", "--length", "8"), "64 queries need as many keys"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        told(*arguments)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "proctor.audit.attention.torch_setup.find_spec", lambda name: None if name == "torch" else found(name)
    )
    for part in ("ways", "depth", "switch-back"):
        with pytest.raises(UserError, match=r"proctor\[transformers\]"):
            told("attention", "--part", part)


@pytest.mark.slow
def test_arithmetic_needs_no_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from tests.audit.attention.test_commands import app\n"
        "for line in (['attention', '--part', 'sums', '--part', 'reads'], ['cascade-gate']):\n"
        "    app(line, standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "split from 17 requests on" in done.stdout
