"""What lies in opened directories, and that nothing else is reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.storage.folder import LocalFolder
from proctor.view.browse import places
from proctor.view.browse.places import Found, check_own, open_places, parts_of_path, survey


def _put(path: Path, text: str = "{}") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "all"
    _put(root / "nightly/one/spec.yaml")
    _put(root / "nightly/one/audit/audit.json")  # a run's own audit is part of the run
    _put(root / "fleet/fleet.json")
    _put(root / "fleet/runs/cell-1/spec.yaml")
    _put(root / "audits/a <b>&/audit.json")
    _put(root / "bench/compile.json")
    _put(root / "traces/step.pt.trace.json.gz")
    _put(root / "traces/deep/report.sqlite")
    _put(root / "traces/notes.json")
    _put(root / ".hidden/spec.yaml")
    _put(tmp_path / "outside/spec.yaml")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "traces" / "linked.sqlite").symlink_to(tmp_path / "outside/spec.yaml")
    return root


def test_runs_fleets_audits_benches_and_traces_are_found_and_links_are_not_followed(root: Path) -> None:
    (opened,) = open_places([root])
    assert survey(opened) == places.Survey(
        (
            Found("audit", "audits/a <b>&"),
            Found("bench", "bench"),
            Found("fleet", "fleet"),
            Found("run", "fleet/runs/cell-1"),
            Found("run", "nightly/one"),
            Found("trace", "traces/deep/report.sqlite"),
            Found("trace", "traces/step.pt.trace.json.gz"),
        )
    )
    assert opened.below("nightly/one").exists("spec.yaml")
    assert opened.below("audits/a <b>&").exists("audit.json")
    (run,) = open_places([root / "nightly" / "one"])
    assert survey(run).found == (Found("run", ""),)
    assert run.below("").exists("spec.yaml")
    linked, again = open_places([root / "link", root / "link"])  # what is opened itself may be a link
    assert survey(linked).found == (Found("run", ""),)
    assert (linked.name, again.name) == ("outside", "outside-2")


def test_a_folder_that_cannot_be_read_is_listed_with_the_reason(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = places._names

    def names(folder: LocalFolder, path: str) -> list[str]:
        if path == "bench":
            raise PermissionError(13, "Permission denied", path)
        return real(folder, path)

    monkeypatch.setattr(places, "_names", names)
    (refused,) = [found for found in survey(open_places([root])[0]).found if found.kind == "refused"]
    assert refused.path == "bench"
    assert "Permission denied" in refused.why


def test_a_name_that_no_address_can_hold_is_listed(tmp_path: Path) -> None:
    for name in ("line\nbreak", "back\\slash", "\udcff"):
        _put(tmp_path / name / "spec.yaml")
    found = survey(open_places([tmp_path])[0]).found
    assert [thing.kind for thing in found] == ["refused"] * 3
    assert all(thing.path.isprintable() for thing in found)


@pytest.mark.parametrize(("limit", "value"), [("MOST_FOLDERS", 3), ("MOST_FOUND", 2), ("MOST_DEPTH", 1)])
def test_a_survey_is_bounded_and_says_where_it_stopped(
    root: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(places, limit, value)
    found = survey(open_places([root])[0])
    assert len(found.found) < 7
    assert found.cut
    monkeypatch.setattr(places, "MOST_NAMES", 2)
    (refused,) = survey(open_places([root])[0]).found
    assert refused == Found("refused", "", "more than 2 names in one folder")


_LEADING_OUT = (
    *("..", "../outside", "nightly/../../outside", "/etc", "nightly//one", "nightly/one/", ".", "./nightly"),
    *(".hidden", "nightly/\0", "nightly\\one", "a\nb", "x" * 1_001, "link", "link/deeper"),
    *("nothing", "nightly/one/spec.yaml"),
)


@pytest.mark.parametrize("path", _LEADING_OUT)
def test_no_path_leads_out(root: Path, path: str) -> None:
    with pytest.raises(UserError):
        open_places([root])[0].below(path)


def test_what_is_not_there_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such directory"):
        open_places([tmp_path / "nothing"])
    assert parts_of_path("") == []
    (bucket,) = open_places(["s3://bucket/some/runs/"])
    assert bucket.name == "runs"
    assert bucket.below("night/one").location == "s3://bucket/some/runs/night/one"
    with pytest.raises(UserError, match="no path below"):
        bucket.below("../other")


def test_own_files_that_are_links_or_too_large_are_refused(root: Path) -> None:
    folder = LocalFolder(root / "nightly/one")
    check_own(folder, ["spec.yaml", "nothing.json"], 10)
    with pytest.raises(UserError, match="too large to be shown: 2 bytes"):
        check_own(folder, ["spec.yaml"], 1)
    (root / "nightly/one/metrics.json").symlink_to("/etc/hostname")
    with pytest.raises(UserError, match="symbolic link"):
        check_own(folder, ["metrics.json"], 10_000)
