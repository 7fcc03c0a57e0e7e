"""What is said of the replays of an audit: what they may take, and what every position showed."""

from __future__ import annotations

from proctor.audit.conduct import Audit, Preparation, Shown
from proctor.audit.model import Comparison, Rate
from proctor.cli.output import counted, stdout, table


def show_replay_plan(preparation: Preparation) -> None:
    """What replays may add, or why there are none."""
    plan = preparation.design.replay
    if plan.why_not:
        stdout.say(f"no replays: {plan.why_not}; what follows an answer's first other token is not compared")
    elif preparation.cost.most_replays:
        stdout.say(
            f"arms whose answers part sit once more with the baseline's tokens forced: replays may add "
            f"{counted(preparation.cost.most_replays, 'sitting')} at most"
        )


def show_replays(audit: Audit) -> None:
    """Every replayed arm, and in words what was replayed and what not."""
    rows = [_row(shown, shown.replayed) for shown in audit.arms if shown.replayed is not None]
    if rows:
        columns = [
            "arm, replayed",
            "against",
            "log-probs equal",
            "same token leads",
            "shift",
            "largest margin",
            "judged",
        ]
        stdout.print(table(columns, rows, title="at every position, with the same tokens forced on both sides"))
    if audit.replay:
        stdout.say(audit.replay)


def _row(shown: Shown, found: Comparison) -> list[str]:
    margin = next((flip.margin for flip in found.flips if flip.margin is not None), None)
    return [
        shown.arm.name,
        found.against,
        _count(found.logprob_equal),
        _count(found.top1_equal),
        f"{found.shift[-1]:.2g}" if found.shift else "-",
        "-" if margin is None else f"{margin:.2g}",
        "-" if shown.judged is None else shown.judged.kind,
    ]


def _count(rate: Rate | None) -> str:
    return f"{rate.hits:,} of {rate.of:,}" if rate is not None and rate.of else "-"
