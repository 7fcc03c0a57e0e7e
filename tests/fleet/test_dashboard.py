"""The dashboard and the page in docs/ name what is exported, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from proctor.fleet.exported import FleetMetrics
from proctor.fleet.view import FleetView, Room, UnitView
from proctor.rows import Event
from proctor.runner import metrics
from proctor.runner.exported import series_of
from proctor.runner.prometheus import Series
from tests.runner.test_exported import PROGRESS

DOCS = Path(__file__).parents[2] / "docs"


def fleet_series() -> list[Series]:
    heard = FleetMetrics()
    heard.event(Event("unit.admitted"))
    heard.view(FleetView((UnitView("a", 2.0, failures=1), UnitView("b", 2.0, live=True)), Room(4.0, 1.0)))
    return list(heard.collect())


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def exported_labels() -> dict[str, set[str]]:
    def named(found: Iterable[Series], fixed: str) -> dict[str, set[str]]:
        return {series.name: {*series.labels, fixed} for series in found}

    by_ray = {f"ray_{name}_total": set(labels) for name, (_text, labels) in metrics._TEXTS.items()}
    return {**named(series_of(PROGRESS, "running"), "run"), **named(fleet_series(), "fleet"), **by_ray}


def test_the_dashboard_asks_only_for_what_is_exported_and_for_all_of_it() -> None:
    board = json.loads((DOCS / "grafana-proctor.json").read_text())
    ids = [panel["id"] for panel in panels(board)]
    assert len(ids) == len(set(ids))
    known = exported_labels()
    asked = set[str]()
    expressions = [target["expr"] for panel in panels(board) for target in panel.get("targets", [])]
    variables = [entry["query"]["query"] for entry in board["templating"]["list"] if entry["type"] == "query"]
    for expression in (*expressions, *variables):
        names = set(re.findall(r"\b(?:ray_)?proctor_\w+", expression))
        assert names, expression
        assert names <= known.keys(), expression
        labels = {label for name in names for label in known[name]}
        used = set(re.findall(r"(\w+)\s*(?:=~|!=|=|!~)", expression))
        used |= {label.strip() for by in re.findall(r"by \(([^)]*)\)", expression) for label in by.split(",")}
        assert used <= labels, expression
        asked |= names
    assert asked == known.keys()
    for panel in panels(board):
        legends = {
            name for target in panel.get("targets", []) for name in re.findall(r"{{(\w+)}}", target["legendFormat"])
        }
        assert legends <= set().union(*known.values())


def test_the_page_names_every_metric() -> None:
    page = (DOCS / "metrics.md").read_text()
    assert [name for name in exported_labels() if f"`{name}`" not in page] == []


def test_a_counter_is_named_as_one() -> None:
    for name in exported_labels():
        assert re.fullmatch(r"[a-z_]+", name)
    counters = [series.name for series in (*series_of(PROGRESS, "running"), *fleet_series()) if series.counter]
    assert all(name.endswith("_total") for name in counters)
    assert "proctor_rows_total" in counters
