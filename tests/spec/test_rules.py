from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from proctor.rows import UserError
from proctor.spec import build_spec, differences, dump_spec, masked, warnings_of


def test_what_is_stored_reads_back_as_the_same_spec(plain: dict[str, Any]) -> None:
    spec = build_spec(plain)
    assert build_spec(yaml.safe_load(dump_spec(spec))) == spec


def test_every_default_is_written_out(plain: dict[str, Any]) -> None:
    stored = yaml.safe_load(dump_spec(build_spec(plain)))
    assert stored["limits"]["stall_seconds"] == 120.0
    assert stored["source"]["verify_hashes"] is True


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "token2", "clientSecret", "MY_ACCESS_TOKEN_2", "passphrase", "GITHUB_PAT", "x-api-key", "apikey"],
)
def test_what_is_called_like_a_secret_is_masked_with_all_it_holds(name: str) -> None:
    assert masked({name: "s"}) == {name: "***"}
    assert masked({name: {"value": ["s"]}}) == {name: {"value": ["***"]}}
    assert masked(f"https://u:p@ss@host/v1?{name}=s&n=1") == f"https://***@host/v1?{name}=***&n=1"


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "keyboard", "api_key_env", "path", "7"])
def test_what_is_not_called_like_a_secret_is_shown(name: str) -> None:
    value: int | str = 64 if name == "max_tokens" else "shown"
    assert masked({name: value}) == {name: value}
    assert masked("a question? key=x") == "a question? key=x"


def test_secrets_are_masked_wherever_they_stand() -> None:
    data = {
        "options": {"api_key": "abc", "hf_token": "def", "n": 1, "nested": [{"password": "x"}]},
        "api_key_env": "OPENAI_API_KEY",
        "url": "http://user:pw@host/v1",
        "monkey": "banana",
    }
    assert masked(data) == {
        "options": {"api_key": "***", "hf_token": "***", "n": 1, "nested": [{"password": "***"}]},
        "api_key_env": "OPENAI_API_KEY",
        "url": "http://***@host/v1",
        "monkey": "banana",
    }


def test_keys_that_change_answers_differ_and_free_keys_do_not(plain: dict[str, Any]) -> None:
    before = build_spec(plain)
    free = {**plain, "limits": {"sweeps": 9}, "stream": {"block_rows": 3}, "run_dir": "elsewhere"}
    assert differences(before, build_spec(free)) == []
    more = {**plain, "engine": {**plain["engine"], "checkpoints": ["weights/c", "weights/a", "weights/b"]}}
    assert differences(before, build_spec(more)) == []
    assert [d.key for d in differences(build_spec(more), before)] == ["engine.checkpoints.c"]
    after = build_spec({**plain, "sampling": {"max_tokens": 5}, "engine": {**plain["engine"], "batch_size": 2}})
    assert [str(d) for d in differences(before, after)] == [
        "engine.batch_size: 16 -> 2",
        "sampling.max_tokens: 64 -> 5",
    ]


def planted(**fault: Any) -> dict[str, Any]:
    return {"engine": {"kind": "scripted", "checkpoints": ["a"], "faults": [fault]}}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"sampling": {"top_p": 0.9}}, "sampling.top_p"),
        ({"sampling": {"seed": 3}}, "sampling.seed"),
        ({"source": {"kind": "mds", "path": "d"}}, "source.columns.target"),
        (
            {
                "source": {"kind": "mds", "path": "d", "columns": {"prompt": "q", "target": "t"}},
                "task": {"kind": "exact", "prompt": "?"},
            },
            "task.prompt",
        ),
        (
            {"engine": {"kind": "vllm", "checkpoints": ["a"], "device": "cpu", "gpus_per_replica": 1.0}},
            "engine.gpus_per_replica",
        ),
        ({"engine": {"kind": "scripted", "checkpoints": ["a"]}, "sampling": {"max_tokens": 3}}, "sampling.max_tokens"),
        ({"images": {"scale_on_decode": True}}, "images.scale_on_decode"),
        ({"limits": {"min_rows": 10}}, "limits.min_rows"),
        (planted(kind="crash", rows=[1], seconds=3.0), "engine.faults.0.seconds"),
        (planted(kind="delay", rows=[1], seconds=3.0, below=2), "engine.faults.0.below"),
    ],
)
def test_a_setting_without_effect_is_a_warning(plain: dict[str, Any], change: dict[str, Any], key: str) -> None:
    assert warnings_of(build_spec(plain)) == []
    spec = build_spec({**plain, **change})
    found = warnings_of(spec)
    assert warnings_of(build_spec(yaml.safe_load(dump_spec(spec)))) == found
    assert len(found) == 1
    assert found[0].startswith(key)


def test_importing_the_ground_stays_light() -> None:
    code = (
        "import sys, proctor, proctor.rows\n"
        "heavy = {'ray', 'torch', 'pandas', 'pyarrow', 'transformers', 'duckdb', 'PIL'}\n"
        "assert not {*heavy, 'pydantic'} & set(sys.modules), sys.modules\n"
        "import proctor.spec\n"
        "assert not heavy & set(sys.modules), sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run_dir", "s3://KEY:hush@bucket/run"),
        ("run_dir", "s3://bucket/run?signature=hush"),
        ("storage.endpoint", "http://user:hush@host:9000"),
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_repeated(plain: dict[str, Any], key: str, value: str) -> None:
    head, _, tail = key.partition(".")
    changed = {**plain, head: {tail: value} if tail else value}
    with pytest.raises(UserError, match="leave them out") as refusal:
        build_spec(changed)
    assert "hush" not in str(refusal.value)
