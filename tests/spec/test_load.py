from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.rows import UserError
from proctor.spec import build_spec, load_spec
from proctor.spec.load import apply_override

BILLIONS = "a: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)
"""A few lines of YAML whose aliases spell out 9^12 values."""


def mistake(plain: dict[str, Any], *overrides: str) -> str:
    data = copy.deepcopy(plain)
    for override in overrides:
        apply_override(data, override)
    with pytest.raises(UserError) as caught:
        build_spec(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("engine.bach_size=3", "engine.bach_size: unknown key 'bach_size' (did you mean 'batch_size'?)"),
        ("source.columns.image=[]", "source.columns.image: unknown key 'image' (did you mean 'images'?)"),
        ("enginee={}", "enginee: unknown key 'enginee' (did you mean 'engine'?)"),
        ("engine.base_url=http://x", "engine.base_url: unknown key 'base_url'"),
        ("source.allow_pickle='False'", "source.allow_pickle: 'False' is text, not a boolean (write true or false"),
        ("source.allow_pickle='maybe'", "source.allow_pickle: 'maybe' is text, not a boolean (true or false)"),
        ("source.allow_pickle=0", "source.allow_pickle: input should be a valid boolean, not 0"),
        ("sampling.logprobs='no'", "sampling.logprobs: 'no' is text, not a boolean"),
        ("engine.batch_size='16'", "engine.batch_size: '16' is text, not a number"),
        ("engine.batch_size=1.5", "engine.batch_size: input should be a valid integer"),
        ("engine.batch_size=0", "engine.batch_size: input should be greater than or equal to 1, not 0"),
        ("sampling.temperature=1e-3", "sampling.temperature: '1e-3' is text, not a number (write it without quotes"),
        ("engine.kind=vlm", "engine.kind: must be one of 'transformers', 'vllm', 'openai', 'scripted' (did you mean"),
        ("task={}", "task.kind: must be one of"),
        ("source.columns.images=frames", "source.columns.images: must be a list, not 'frames' (write [frames])"),
        ("engine.checkpoints=[]", "engine.checkpoints: list should have at least 1 item"),
        ("engine.checkpoints=[a/x, b/x]", "engine.checkpoints: checkpoint names must be unique, x is there more than"),
        (
            "engine.checkpoints=[{name: ../x, path: x}]",
            "engine.checkpoints.0.name: '../x' does not have the form that is asked for (Name in records",
        ),
        ("engine.faults=[{kind: crash}]", "engine.faults.0: a fault chooses rows either by `rows` or by `every`"),
        ("engine.faults=[{kind: crash, rows: [1], checkpoint: c}]", "engine: a fault names the checkpoint 'c'"),
        ("engine.max_model_len=64", "spec: sampling.max_tokens (64) leaves no room for a prompt"),
        ("task={kind: regex, pattern: '('}", "task.pattern: not a regular expression"),
        (
            "task={kind: python, python: json}",
            "task.python: 'json' does not have the form that is asked for (module:Class of a class",
        ),
        ("limits.stall_seconds=.inf", "limits.stall_seconds: input should be a finite number"),
        ("limits.stall_seconds=1.0e+300", "limits.stall_seconds: input should be less than or equal to"),
        ("sampling.temperature=.nan", "sampling.temperature: input should be a finite number"),
        ("stream.block_mb=.inf", "stream.block_mb: input should be a finite number"),
        ("engine.batch_size=99999999999999999999", "engine.batch_size: input should be less than or equal to"),
        ("source.limit=99999999999999999999", "source.limit: input should be less than or equal to"),
        ("engine.faults=[{kind: crash, rows: [-1]}]", "engine.faults.0.rows.0: input should be greater than or equal"),
        ("engine.options={day: 2024-01-01}", "engine.options.day: input was not a valid JSON value"),
        ('engine.env={A: "b\\0"}', "engine.env.A: holds a NUL character"),
        ('run_dir="a\\0b"', "run_dir: holds a NUL character"),
        ("limits=5", "limits: must be a block of keys, not 5 (known keys: stall_seconds, load_seconds,"),
        ("limits=", "limits: must be a block of keys, and is empty (known keys: stall_seconds,"),
        ("source=[1]", "source: must be a block of keys, not [1] (known keys: path, columns, limit, kind"),
        ("engine.env=5", "engine.env: must be a block of keys, not 5"),
        ("source.columns=text", "source.columns: must be a block of keys, not 'text' (known keys: images,"),
        ("images.resize=small", "images.resize: input should be 'model' or a valid integer, not 'small'"),
        ("images.resize=true", "images.resize: input should be 'model' or a valid integer, not True"),
        ("images.resize=100", "images.resize: input should be greater than or equal to 1024, not 100"),
        (
            "limits.row_seconds=1.0e+300",
            "limits.row_seconds: input should be less than or equal to 1000000000, not 1e+300",
        ),
        ("run_dir=https://host/run", "run_dir: a run directory is a local directory or one of s3://"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key_and_the_cure(plain: dict[str, Any], override: str, said: str) -> None:
    message = mistake(plain, override)
    assert message.startswith(said)
    assert "\n" not in message


def test_further_mistakes_are_counted(plain: dict[str, Any]) -> None:
    assert "[and 1 more]" in mistake(plain, "limits.sweeps=0", "engine.batch_size=0")


def test_a_missing_key_is_named(plain: dict[str, Any]) -> None:
    del plain["source"]["path"]
    with pytest.raises(UserError, match=r"^source\.path: required, but not there$"):
        build_spec(plain)


def test_the_file_and_line_of_a_mistake_are_named(tmp_path: Path, plain: dict[str, Any]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("# a comment\n" + yaml.safe_dump({**plain, "limits": {"sweep": 2}}, sort_keys=False))
    line = file.read_text().splitlines().index("  sweep: 2") + 1
    with pytest.raises(UserError) as caught:
        load_spec(file)
    assert str(caught.value) == f"{file}:{line}: limits.sweep: unknown key 'sweep' (did you mean 'sweeps'?)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "not YAML"),
        ("- 1\n- 2\n", "a spec is a mapping of keys"),
        ("", "a spec is a mapping of keys"),
        ("run_dir: a\nrun_dir: b\n", ":2: the key 'run_dir' stands twice"),
        ("engine: {kind: vllm,\n kind: scripted}\n", ":2: the key 'kind' stands twice"),
        ("run_dir: &a [*a]\n", ": nested too deeply, or an alias that holds itself"),
        ("source: &a {path: *a}\n", ": nested too deeply, or an alias that holds itself"),
        ("run_dir: " + 5000 * "[" + 5000 * "]", ": nested too deeply, or an alias that holds itself"),
        (BILLIONS, ": more than 1,000,000 values"),
        ('a: 1\nrun_dir: "\\ud800"\n', ":2: holds half of a character"),
        ("run_dir: 2024-99-99\n", ": not YAML: month must be in 1..12"),
    ],
)
def test_yaml_traps_are_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load_spec(file)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(file))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.yaml: cannot read the spec: No such file"):
        load_spec(tmp_path / "nowhere.yaml")


def test_a_home_that_nobody_has(tmp_path: Path, plain: dict[str, Any]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({**plain, "run_dir": "~nobody-of-that-name/run"}))
    with pytest.raises(UserError, match="~nobody-of-that-name/run: no such user"):
        load_spec(file)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        load_spec(file)


def test_overrides_are_yaml_by_dotted_path_with_the_same_checks(tmp_path: Path, plain: dict[str, Any]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(plain))
    spec = load_spec(
        file,
        ["engine.batch_size=4", "sampling.stop=[a, b]", "engine.checkpoints.1=other/c", "limits.max_error_rate=0.5"],
    )
    assert spec.engine.batch_size == 4
    assert spec.sampling.stop == ["a", "b"]
    assert [c.name for c in spec.engine.checkpoints] == ["a", "c"]
    assert spec.limits.max_error_rate == 0.5


def test_a_mistake_in_an_override_is_not_blamed_on_the_file(tmp_path: Path, plain: dict[str, Any]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(plain))
    with pytest.raises(UserError) as caught:
        load_spec(file, ["engine.batchsize=4"])
    assert str(caught.value).startswith("--set engine.batchsize=4: engine.batchsize: unknown key")
    with pytest.raises(UserError) as caught:
        load_spec(file, ["engine.checkpoints.1={name: x}"])
    assert str(caught.value).startswith("--set engine.checkpoints.1={name: x}: engine.checkpoints.1.path: required")
    with pytest.raises(UserError) as caught:
        load_spec(file, ["run_dir=x", "task.kind=driven"])
    assert str(caught.value).startswith("--set task.kind=driven: task.kind: must be one of 'driving'")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("engine.batch_size", "not of the form key=value"),
        ("=3", "not of the form key=value"),
        ("run_dir.x.y=3", "there are no keys below"),
        ("run_dir.x=3", "holds a single value"),
        ("engine.checkpoints.7=x", "not a position in a list of 2"),
        ("engine.options={a: [}", "not YAML"),
        ("engine.options={a: 1, a: 2}", "the key 'a' stands twice"),
        ("engine.options=&a [*a]", "an alias that holds itself"),
    ],
)
def test_a_wrong_override_is_told(plain: dict[str, Any], override: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        apply_override(plain, override)
    assert said in str(caught.value)
    assert f"--set {override}" in str(caught.value)


def test_relative_paths_start_at_the_file_and_names_on_servers_are_left_alone(
    tmp_path: Path, plain: dict[str, Any]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(plain))
    spec = load_spec(file)
    assert spec.run_dir == str(tmp_path / "out")
    assert spec.source.path == str(tmp_path / "data")
    assert spec.engine.checkpoints[0].path == str(tmp_path / "weights/a")
    for python, anchored in (("env/bin/python", str(tmp_path / "env/bin/python")), ("python3.12", "python3.12")):
        assert load_spec(file, [f"engine.python={python}"]).engine.model_dump()["python"] == anchored
    plain["source"]["path"] = "s3://bucket/data"
    plain["engine"] = {"kind": "openai", "checkpoints": ["org/model"], "base_url": "http://127.0.0.1:1/v1"}
    file.write_text(yaml.safe_dump(plain))
    spec = load_spec(file)
    assert spec.source.path == "s3://bucket/data"
    assert spec.engine.checkpoints[0].path == "org/model"
    assert spec.engine.checkpoints[0].name == "model"
