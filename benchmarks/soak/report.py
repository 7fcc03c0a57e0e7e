"""The soak as files: ``soak.json`` has everything, ``soak.md`` is for a person. Both are written by the command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.__main__ import machine, versions
from benchmarks.soak import flat
from benchmarks.soak.account import Account
from benchmarks.soak.aftermath import by_kind
from benchmarks.soak.flat import Growth
from benchmarks.soak.keeper import Keeper, Settings

_LISTED = 100
_RULE = ("WARM_SECONDS", "LONG_SECONDS", "LEAST_ROWS", "WHOLE_ROWS", "MEMORY_SHARE", "FILES")
_RULE_TEXT = """\
A process counts when it was there for {LONG_SECONDS:g} s after {WARM_SECONDS:g} s of warm-up, a role when the run did
{LEAST_ROWS:,} rows in these lives. One line is fitted to all lives of a role, each with a level of its own. Flat: one
process that did all of {WHOLE_ROWS:,} rows would grow by at most {MEMORY_SHARE:.0%} of its own memory and by {FILES:g}
open files. Own memory is what is resident, less what is shared with others; samples after the last row are left out."""


def failures(keeper: Keeper, found: Account, stated: dict[str, Any] | None, growth: Sequence[Growth]) -> list[str]:
    """Everything that is not as it must be, one line each; none: the soak has passed."""
    lines = list(keeper.problems)
    ledger = found.ledger()
    lines += [
        f"{name}: {ledger[name]}" for name in ("unanswered", "missing", "duplicate", "unexpected") if ledger[name]
    ]
    lines += [f"a part cannot be read: {name}" for name in found.unreadable]
    lines += [f"row {row}: must end with {due}, has {got}" for row, due, got, _ in found.findings[:_LISTED]]
    stated_ledger = None if stated is None else {name: stated.get(name) for name in ledger}
    if stated_ledger != ledger:
        lines.append(f"the run's own ledger is another one: {stated_ledger}")
    lines += [f"driver {life.number} left behind: {what}" for life in keeper.lives for what in life.orphans]
    lines += [f"not flat: {one.role}" for one in growth if one.flat is False]
    return lines


def document(
    settings: Settings, keeper: Keeper, found: Account, growth: Sequence[Growth], failed: Sequence[str]
) -> dict[str, Any]:
    """All that ``soak.json`` says."""
    began = keeper.lives[0].began
    return {
        "name": "soak",
        "title": "one long run under random faults from a seeded schedule",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "settings": asdict(settings),
        "passed": not failed,
        "failures": list(failed),
        "seconds": round(keeper.seconds),
        "ledger": found.ledger(),
        "convicted_for_the_chaos": [list(finding[:3]) for finding in found.other_kind],
        "chaos": by_kind(keeper.struck),
        "orphans": sum(len(life.orphans) for life in keeper.lives),
        "rule": {name: getattr(flat, name) for name in _RULE},
        "growth": [one.to_json() for one in growth],
        "drivers": [
            {**asdict(life), "began": round(life.began - began, 1), "until": round(life.until - began, 1)}
            for life in keeper.lives
        ],
        "strikes": [
            {
                "clock": struck.strike.at,
                "seconds": round(struck.time - began, 1),
                "driver": struck.driver,
                "kind": struck.strike.kind,
                "hit": struck.target is not None,
                "followed": struck.followed,
                "recovery_s": struck.recovery_s,
            }
            for struck in keeper.struck
        ],
    }


def markdown(done: dict[str, Any]) -> str:
    """``soak.md``."""
    stamp = ", ".join(f"{name} {version}" for name, version in done["versions"].items())
    knobs = ", ".join(f"{name} {value:g}" for name, value in done["settings"].items())
    lines = [
        "# Soak",
        "",
        "Written by `make soak`, never by hand. What the numbers mean: `docs/faults.md`.",
        "",
        f"{done['date']}, {done['machine']}, {stamp}.",
        "",
        f"Settings: {knobs}. It took {done['seconds']:,} s and {len(done['drivers'])} drivers.",
        "",
        f"**{verdict(done)}**",
        "",
        *(f"- {line}" for line in done["failures"]),
        *([""] if done["failures"] else []),
        *_ledger(done["ledger"]),
        "",
        f"Rows that break their engine and were convicted for a death of the chaos's: "
        f"{len(done['convicted_for_the_chaos'])}.",
        "",
        *_chaos(done["chaos"]),
        "",
        *_growth(done["growth"]),
        "",
        _RULE_TEXT.format(**done["rule"]),
        "",
    ]
    return "\n".join(lines)


def verdict(done: dict[str, Any]) -> str:
    """The outcome in one line."""
    hits = sum(kind["hit"] for kind in done["chaos"])
    roles = [one for one in done["growth"] if one["flat"] is not None]
    bent = [one["role"] for one in roles if not one["flat"]]
    flatness = (
        f"NOT flat: {', '.join(bent)}" if bent else f"flat: {', '.join(one['role'] for one in roles) or 'unknown'}"
    )
    outcome = "passed" if done["passed"] else f"FAILED ({len(done['failures'])} findings)"
    return (
        f"Soak {outcome}: {done['ledger']['expected']:,} rows, {hits} faults that hit, {done['orphans']} orphans; "
        f"memory and open files {flatness}"
    )


def write(done: dict[str, Any], folder: Path) -> None:
    """Writes both files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.json").write_text(json.dumps(done, indent=1) + "\n")
    (folder / "soak.md").write_text(markdown(done))


def _ledger(ledger: dict[str, Any]) -> list[str]:
    kinds = [f"| error: {kind} | {count:,} |" for kind, count in ledger["errors"].items()]
    left = [f"| unanswered: {kind} | {count:,} |" for kind, count in ledger["unanswered"].items()]
    return [
        "| ledger | rows |",
        "| --- | ---: |",
        f"| expected | {ledger['expected']:,} |",
        f"| answered | {ledger['answered']:,} |",
        *kinds,
        *(left or ["| unanswered | 0 |"]),
        *(f"| {name} | {ledger[name]:,} |" for name in ("missing", "duplicate", "unexpected")),
    ]


def _chaos(kinds: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| fault | turns | hit | what followed | median s to recover |", "| --- | ---: | ---: | --- | ---: |"]
    for kind in kinds:
        followed = ", ".join(f"{what}: {count}" for what, count in kind["followed"].items())
        recovery = "" if kind["recovery_s"] is None else f"{kind['recovery_s']:g}"
        lines.append(f"| {kind['kind']} | {kind['turns']} | {kind['hit']} | {followed} | {recovery} |")
    return lines


def _growth(roles: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| process | long lives | rows meanwhile | own MB | resident MB (most) | MB more in 10,000 rows: own, resident "
        "| open files | more in 10,000 rows | flat |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in roles:
        if one["flat"] is None:
            lines.append(f"| {one['role']} | 0 | | | | | | | none lived long enough |")
            continue
        memory = f"{one['rss_mb']:.0f} ({one['most_mb']:.0f}) | {one['own_growth']:+.2f}, {one['rss_growth']:+.2f}"
        files = f"{one['files']:.0f} | {one['files_growth']:+.2f} | {'yes' if one['flat'] else 'NO'}"
        lines.append(
            f"| {one['role']} | {one['processes']} | {one['rows']:,} | {one['own_mb']:.1f} | {memory} | {files} |"
        )
    return lines
