"""What the attention workbench prints for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from proctor.audit.attention.gate import SEARCHED
from proctor.audit.attention.plan import Depth, Sizes
from proctor.audit.attention.reads import Reads
from proctor.audit.attention.step import Decision, Step
from proctor.audit.attention.sums import Sums
from proctor.cli.output import counted, stdout, table

if TYPE_CHECKING:
    from proctor.audit.attention.bench import Measured
    from proctor.audit.attention.depth import Grown
    from proctor.audit.attention.switchback import Steps, SwitchedBack

_PHASES = {
    "extend": "{queries} queries at the end of a prompt",
    "decode": "one query",
    "prefill": "the last {queries} tokens of a prompt, at once or in chunks",
}
_SHOWN_LAYERS = (1, 7, 14, 28)
_CONTROL = "single pass again"


def sums_table(found: Sequence[Sums]) -> Table:
    """The three orders in each format."""
    first = found[0]
    rows = [(each.format, each.left, each.right, each.outer) for each in found]
    title = f"The same sum in three orders: a = {first.a}, b = {first.b}, c = {first.c}"
    return table(["format", "(a + b) + c", "a + (b + c)", "(a + c) + b"], rows, title)


def say_reads(found: Reads) -> None:
    """Tokens read in one step."""
    requests, prefix, suffix = (f"{count:,}" for count in (found.requests, found.prefix, found.suffix))
    rows = [
        ("single pass", found.single, f"{requests} x ({prefix} + {suffix})", 0),
        ("split", found.split, f"{prefix} once per 128 requests + {requests} x {suffix}", found.partials),
    ]
    stdout.print(table(["way", "tokens read", "from", "partial results"], rows, "KV tokens that a decoding step reads"))
    stdout.say(
        f"{found.ratio:.2f}x as many in the single pass: {found.redundant:,} redundant reads are "
        f"{found.redundant_share:.2%} of all, and {found.redundant_of_prefix:.2%} of the {found.prefix_reads:,} reads "
        "of the prefix. Tokens, not time."
    )


def say_ways(sizes: Sizes, found: Sequence[Measured], left_out: Iterable[str]) -> None:
    """A table for each phase, one of the errors, and whether the control held."""
    columns = [
        "format",
        "keys",
        "way",
        "at",
        "max diff",
        "rel diff",
        "equal",
        "ulp",
        "max error: single",
        "this way",
        "error x",
    ]
    for phase, words in _PHASES.items():
        rows = [_way_row(each) for each in found if each.phase == phase and each.way != _CONTROL]
        if rows:
            title = words.format(queries=sizes.queries if phase == "extend" else sizes.prefill)
            stdout.print(table(columns, rows, f"Against a single pass: {title}; {sizes.heads} heads of {sizes.dim}"))
    stdout.say("ulp: the largest, among values above a tenth of the root mean square; errors are from float64")
    stdout.print(_errors(found))
    for words in left_out:
        stdout.say(f"left out: {words}")
    controls = [each for each in found if each.way == _CONTROL]
    unequal = sum(each.apart.equal < 1 for each in controls)
    if unequal:
        words = (
            f"CONTROL FAILED: the single pass again differs in {unequal} of {len(controls)} cases: this machine does "
        )
        stdout.say(words + "not repeat itself, and the differences above include that", style="red")
    else:
        stdout.say(f"control: the single pass again is equal bit by bit, in all {len(controls)} cases")


def _way_row(each: Measured) -> tuple[object, ...]:
    return (
        each.dtype,
        each.length,
        each.way,
        each.prefix or each.splits or each.chunk,
        f"{each.apart.max_abs:.2e}",
        f"{each.apart.relative:.1e}",
        f"{each.apart.equal:.1%}",
        f"{each.apart.ulp:.0f}",
        f"{each.single.max_abs:.1e}",
        f"{each.other.max_abs:.1e}",
        _times(each.ratio),
    )


def _errors(found: Sequence[Measured]) -> Table:
    """Least and greatest ratio of errors, by way and format."""
    dtypes = list(dict.fromkeys(each.dtype for each in found))
    rows = []
    for way in dict.fromkeys(each.way for each in found if each.way != _CONTROL):
        row: list[object] = [way]
        for dtype in dtypes:
            ratios = [each.ratio for each in found if (each.way, each.dtype) == (way, dtype) and each.ratio is not None]
            row.append(f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "-")
        rows.append(row)
    return table(["way", *dtypes], rows, "Error from float64 (norm), times that of the single pass")


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def say_depth(shape: Depth, found: Sequence[Grown]) -> None:
    """Growth over the layers, and what it does to answers."""
    layers = sorted({min(layer, shape.layers) for layer in _SHOWN_LAYERS} | {shape.layers})
    rows = [
        (each.dtype, *(f"{each.by_layer[layer - 1]:.1e}" for layer in layers), _times(each.growth),
         f"{each.single[-1]:.1e}", f"{each.split[-1]:.1e}")
        for each in found
    ]  # fmt: skip
    title = (
        f"Split at prefix {shape.prefix} through a random decoder of {shape.layers} layers, "
        f"{shape.heads * shape.dim} wide: relative difference of the residual stream"
    )
    names = [f"layer {layer}" for layer in layers]
    stdout.print(table(["format", *names, "growth x", "error at the end: single", "split"], rows, title))
    rows = [
        (each.dtype, f"{each.logprob_equal}/{each.positions}", f"{each.shift:.1e}",
         f"{each.top1_equal}/{each.positions}", _parted(each))
        for each in found
    ]  # fmt: skip
    columns = ["format", "logprobs equal", "max shift (nats)", "top-1 equal", f"greedy, {shape.steps} steps"]
    stdout.print(table(columns, rows, "The same tokens given, then generated greedily"))


def _parted(each: Grown) -> str:
    steps = [
        f"step {step} (margin {margin:.1e})"
        for step, margin in zip(each.diverged, each.margins, strict=True)
        if step is not None and margin is not None
    ]
    return f"{len(steps)} of {len(each.diverged)} parted" + (": " + ", ".join(steps) if steps else "")


def say_switch_back(shape: Depth, found: Sequence[SwitchedBack]) -> None:
    """Before and after, and the control."""
    rows = []
    for each in found:
        rows.append((each.dtype, "attention split", *_steps_row(each.during)))
        rows.append((each.dtype, "single pass again", *_steps_row(each.after)))
        rows.append((each.dtype, "with the other run's KV", *_steps_row(each.restored)))
    title = f"{shape.prompts} prompts, {shape.positions} steps split, then {shape.positions} in a single pass"
    columns = ["format", "steps", "all logits equal", "logits equal", "logprobs equal", "max shift (nats)"]
    stdout.print(table(columns, rows, f"Switching back: {title}, against a run that never split"))


def _steps_row(steps: Steps) -> tuple[str, ...]:
    of = steps.positions
    return f"{steps.equal}/{of}", f"{steps.logits_equal:.1%}", f"{steps.logprob_equal}/{of}", f"{steps.shift:.1e}"


def say_gate(step: Step, found: Decision, first: int | None) -> None:
    """The gates in order, the decision, and from how many requests on it would be another."""
    decides = {True: "split", False: "not split", None: "split if this release had it on, which is not known"}
    stdout.say(
        f"vLLM {step.version}: {counted(step.requests, 'request')}, {step.query_heads} query heads and "
        f"{step.kv_heads} KV heads on {step.sms} SMs"
    )
    stdout.print(f"[bold]{decides[found.cascade]}[/]; what decided: {found.decided_by}")
    stdout.print(table(["gate", "rule", "here", "outcome"], [(g.name, g.rule, g.here, g.outcome) for g in found.gates]))
    cost = found.cost
    stdout.say(
        f"cost model: {counted(cost.cascade_blocks, 'block')} of a split read {counted(cost.tiles, 'tile')} each, "
        f"time {cost.cascade}; {counted(cost.decoding_blocks, 'block')} of flash-decoding read one each, "
        f"time {cost.decoding}"
    )
    for words in found.prefix.why:
        stdout.say(f"prefix: {words}")
    stdout.say(
        f"with requests that all decode: never split, with up to {SEARCHED:,} of them"
        if first is None
        else f"with requests that all decode: split from {counted(first, 'request')} on"
    )
