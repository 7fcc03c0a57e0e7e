"""``proctor audit attention`` and ``proctor audit cascade-gate``: the mechanism behind a famous suspect, measured."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from proctor.cli.output import json_line, stdout
from proctor.cli.run import Json
from proctor.rows import UserError


class Part(StrEnum):
    """Parts of the workbench."""

    SUMS = "sums"
    READS = "reads"
    WAYS = "ways"
    DEPTH = "depth"
    SWITCH_BACK = "switch-back"


class Format(StrEnum):
    """Number formats."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


Dtypes = Annotated[list[Format] | None, typer.Option("--dtype", help="Number format. May be given several times.")]
Parts = Annotated[list[Part] | None, typer.Option("--part", help="Only this part. May be given several times.")]
Lengths = Annotated[list[int] | None, typer.Option("--length", min=1, help="Keys. Several are possible.")]
Prefixes = Annotated[list[int] | None, typer.Option("--prefix", min=1, help="Where to split. Several are possible.")]
Splits = Annotated[list[int] | None, typer.Option("--splits", min=1, help="Parts of a split-KV. Several are possible.")]
Chunks = Annotated[list[int] | None, typer.Option("--chunk", min=1, help="Queries in a chunk. Several are possible.")]
Queries = Annotated[int | None, typer.Option("--queries", min=1, help="Queries that extend a prompt.")]
Prefill = Annotated[int | None, typer.Option("--prefill", min=1, help="Queries of a prefill.")]
Heads = Annotated[int | None, typer.Option("--heads", min=1, help="Attention heads.")]
Dim = Annotated[int | None, typer.Option("--dim", min=1, help="Numbers in a head.")]
Layers = Annotated[int | None, typer.Option("--layers", min=1, help="Layers of the random decoder.")]
Full = Annotated[bool, typer.Option("--full", help="The larger sizes of the documentation: about a minute.")]
Device = Annotated[str, typer.Option("--device", help="Where torch computes: cpu, cuda, cuda:1 ...")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of all random inputs.")]
Shared = Annotated[int, typer.Option("--shared", min=0, help="Tokens that all requests share.")]
Suffix = Annotated[int, typer.Option("--suffix", min=0, help="Tokens that each request has of its own, for the reads.")]
Requests = Annotated[int, typer.Option("--requests", "-n", min=1, help="Requests of a step, each decoding one token.")]


def attention(
    part: Parts = None,
    dtype: Dtypes = None,
    length: Lengths = None,
    prefix: Prefixes = None,
    splits: Splits = None,
    chunk: Chunks = None,
    queries: Queries = None,
    prefill: Prefill = None,
    heads: Heads = None,
    dim: Dim = None,
    layers: Layers = None,
    full: Full = False,
    device: Device = "cpu",
    seed: Seed = 0,
    shared: Shared = 400,
    suffix: Suffix = 100,
    requests: Requests = 16,
    json: Json = False,
) -> None:
    """Measure what it does to the numbers when attention is computed in parts: split, chunked, layer upon layer.

    Compares with a single pass over the same keys, and both with float64. Random inputs; nothing of an engine is used.
    """
    parts = part or list(Part)
    given = {"dtypes": dtype and tuple(each.value for each in dtype), "seed": seed, "device": device}
    sizes = {"lengths": length, "prefixes": prefix, "splits": splits, "chunks": chunk, "queries": queries}
    sizes |= {"prefill": prefill, "heads": heads, "dim": dim}
    if Part.SUMS in parts:
        _sums(json=json)
    if Part.READS in parts:
        _reads(shared, suffix, requests, json=json)
    if Part.WAYS in parts:
        _ways(given | sizes, full, json=json)
    if Part.DEPTH in parts:
        _depth(given | {"layers": layers}, full, json=json)
    if Part.SWITCH_BACK in parts:
        _switch_back(given, json=json)
    if set(parts) - {Part.SUMS, Part.READS}:
        _surroundings(device, seed, json=json)


def _changed(base: Any, given: dict[str, Any]) -> Any:
    """`base` with what was given on the command line."""
    told = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return msgspec.structs.replace(base, **{name: value for name, value in told.items() if value is not None})


def _sums(*, json: bool) -> None:
    from proctor.audit.attention.sums import sums
    from proctor.cli.audit_attention_text import sums_table

    found = sums()
    if not json:
        return stdout.print(sums_table(found))
    for each in found:
        json_line("sums", **msgspec.to_builtins(each))
    return None


def _reads(shared: int, suffix: int, requests: int, *, json: bool) -> None:
    from proctor.audit.attention.reads import kv_reads
    from proctor.cli.audit_attention_text import say_reads

    found = kv_reads(shared, suffix, requests)
    if not json:
        return say_reads(found)
    shares = {"ratio": found.ratio, "redundant_share": found.redundant_share}
    json_line("reads", **msgspec.to_builtins(found), **shares, redundant_of_prefix=found.redundant_of_prefix)
    return None


def _ways(given: dict[str, Any], full: bool, *, json: bool) -> None:
    from proctor.audit.attention.plan import FULL_SIZES, Sizes, check_counts, left_out
    from proctor.audit.attention.torch_setup import torch_module

    sizes = _changed(FULL_SIZES if full else Sizes(), given)
    check_counts(sizes)
    torch_module()
    from proctor.audit.attention.bench import measure
    from proctor.cli.audit_attention_text import say_ways

    found = []
    for each in measure(sizes):
        found.append(each)
        if json:
            json_line("way", **msgspec.to_builtins(each), ratio=each.ratio)
    if not json:
        say_ways(sizes, found, left_out(sizes))


def _depth(given: dict[str, Any], full: bool, *, json: bool) -> None:
    from proctor.audit.attention.plan import FULL_DEPTH, Depth, check_counts
    from proctor.audit.attention.torch_setup import torch_module

    shape = _changed(FULL_DEPTH if full else Depth(), given)
    check_counts(shape)
    torch_module()
    from proctor.audit.attention.depth import grow
    from proctor.cli.audit_attention_text import say_depth

    found = []
    for each in grow(shape):
        found.append(each)
        if json:
            json_line("depth", **msgspec.to_builtins(each), growth=each.growth)
    if not json:
        say_depth(shape, found)


def _switch_back(given: dict[str, Any], *, json: bool) -> None:
    from proctor.audit.attention.torch_setup import torch_module

    torch_module()
    from proctor.audit.attention.switchback import TOY, switch_back
    from proctor.cli.audit_attention_text import say_switch_back

    shape = _changed(TOY, given)
    found = switch_back(shape)
    if not json:
        return say_switch_back(shape, found)
    for each in found:
        json_line("switch_back", **msgspec.to_builtins(each))
    return None


def _surroundings(device: str, seed: int, *, json: bool) -> None:
    from proctor.audit.attention.torch_setup import surroundings

    found = surroundings(device)
    if json:
        return json_line("attention", seed=seed, **found)
    words = ", ".join(f"{name} {value}" for name, value in found.items())
    stdout.say(f"{words}; seed {seed}. Elsewhere the orders of magnitude are the same, the digits are not.")
    return None


def cascade_gate(
    shared: Shared = 512,
    requests: Requests = 16,
    query_lens: Annotated[
        str | None, typer.Option("--query-lens", metavar="N,N,...", help="Tokens that each request computes instead.")
    ] = None,
    query_heads: Annotated[int, typer.Option("--query-heads", min=1, help="On one GPU.")] = 16,
    kv_heads: Annotated[int, typer.Option("--kv-heads", min=1, help="On one GPU.")] = 8,
    gpu: Annotated[str, typer.Option("--gpu", help="For its number of multiprocessors.")] = "H200",
    sms: Annotated[int | None, typer.Option("--sms", min=1, help="The number itself.")] = None,
    block_size: Annotated[int, typer.Option("--block-size", min=1, help="Tokens of a KV block.")] = 16,
    unrelated: Annotated[int, typer.Option("--unrelated", min=0, help="Running requests that share nothing.")] = 0,
    computed: Annotated[
        int | None, typer.Option("--computed", min=0, help="Tokens that the least advanced request has computed.")
    ] = None,
    alibi: Annotated[bool, typer.Option("--alibi")] = False,
    sliding_window: Annotated[bool, typer.Option("--sliding-window")] = False,
    local_attention: Annotated[bool, typer.Option("--local-attention")] = False,
    dcp: Annotated[int, typer.Option("--dcp", min=1, help="GPUs that share a context.")] = 1,
    prefix_caching: Annotated[bool, typer.Option("--prefix-caching/--no-prefix-caching")] = True,
    cascade: Annotated[
        bool | None, typer.Option("--cascade/--no-cascade", help="disable_cascade_attn. Default: the release's.")
    ] = None,
    batch_invariant: Annotated[bool, typer.Option("--batch-invariant", help="VLLM_BATCH_INVARIANT=1.")] = False,
    vllm: Annotated[str, typer.Option("--vllm", metavar="VERSION", help="Release of vLLM.")] = "0.16.0",
    json: Json = False,
) -> None:
    """Calculate whether vLLM up to 0.31 split attention at a shared prefix (cascade attention), and what decided.

    The code is gone since 0.32: this explains old runs. Gates and cost model of 0.16.0, for FlashAttention.
    """
    from proctor.audit.attention.gate import cascade_gate as asked
    from proctor.audit.attention.gate import first_activation
    from proctor.audit.attention.step import Step
    from proctor.cli.audit_attention_text import say_gate

    step = Step(
        shared=shared,
        query_lens=_lengths(query_lens) if query_lens else (1,) * requests,
        query_heads=query_heads,
        kv_heads=kv_heads,
        sms=sms or _multiprocessors(gpu),
        block_size=block_size,
        unrelated=unrelated,
        computed=computed,
        alibi=alibi,
        sliding_window=sliding_window,
        local_attention=local_attention,
        dcp=dcp,
        prefix_caching=prefix_caching,
        disabled=None if cascade is None else not cascade,
        batch_invariant=batch_invariant,
        version=vllm,
    )
    found, first = asked(step), first_activation(step)
    if json:
        json_line("cascade_gate", step=step, first_activation=first, **msgspec.to_builtins(found))
    else:
        say_gate(step, found, first)


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"{text!r} is no list of lengths", where="--query-lens", fix="write it like 1,1,7") from None


def _multiprocessors(gpu: str) -> int:
    from proctor.trace.launches.gpu_limits import named_limits

    count = named_limits(gpu).sm_count
    if count is None:
        raise UserError(f"products called {gpu!r} differ in their number of SMs", fix="give the number by --sms")
    return count
