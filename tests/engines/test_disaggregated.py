"""The tiny Qwen3-VL in two processes: its answers, and its logits bit for bit, are those of one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.engines.base import EngineConfig, EngineDied
from proctor.engines.transformers import TransformersEngine
from proctor.rows import ErrorKind, Request, Response, UserError
from tests.engines.tiny import answers, ask, ask_scene, picture

torch: Any = pytest.importorskip("torch", reason="needs the `transformers` extra")
pytest.importorskip("zmq", reason="needs the `transfer` extra")

from proctor.engines import disaggregated as module  # noqa: E402
from proctor.engines.disaggregated import disaggregated  # noqa: E402
from proctor.engines.prefill_process import Batch, Read, Shipped  # noqa: E402
from proctor.engines.split_model import SplitModel  # noqa: E402
from proctor.transfer.disaggregate import decode, layout_of, prefill, weights_id  # noqa: E402
from proctor.transfer.errors import Reason, TransferError  # noqa: E402
from proctor.transfer.kv.inbox import Received  # noqa: E402
from proctor.transfer.kv.limits import Limits  # noqa: E402
from proctor.transfer.kv.receiver import Receiver  # noqa: E402
from proctor.transfer.memory import free_bytes  # noqa: E402
from tests.engines.prefill_child import BATCHES, inputs, loaded  # noqa: E402

pytestmark = [pytest.mark.model, pytest.mark.slow]


def requests() -> list[Request]:
    """Scenes and texts, greedy and sampled, forced and stopped, and rows that are refused."""
    return [
        *(ask_scene(number, max_tokens=24, logprobs=True, top_logprobs=3) for number in range(5)),
        *(ask_scene(number, max_tokens=12, temperature=0.8, seed=number, logprobs=True) for number in range(5, 8)),
        ask(20, text="Where to?", max_tokens=1, logprobs=True),
        ask(21, text="Where to now, and why?", max_tokens=12, logprobs=True),
        ask(22, [picture()], forced=(40, 41, 42), logprobs=True),
        ask_scene(23, max_tokens=40, stop=("e",)),
        ask(24, [b"no picture"]),
        ask(25, text="far too long " * 2000),
    ]


@pytest.mark.parametrize(("dtype", "batch_size", "way"), [("float32", 4, "memory"), ("bfloat16", 1, "beside")])
def test_the_answers_are_those_of_one_process(trained_model: Path, dtype: str, batch_size: int, way: Any):
    config = EngineConfig("transformers", str(trained_model), dtype=dtype, batch_size=batch_size)
    engine = TransformersEngine(config)
    engine.load()
    expected = answers(engine, requests())
    engine.close()
    told: list[int] = []
    found = list(disaggregated(config, iter(requests()), way=way, report=told.append))
    assert len(found) == len(expected)
    assert {response.id: response for response in found} == expected
    assert sum(told) == sum(len(response.token_ids) for response in found)


DTYPES = ("float32", "bfloat16")


@pytest.fixture(scope="module")
def reading(trained_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start of the addresses of a process that has read everything."""
    address = f"ipc://{tmp_path_factory.mktemp('kv')}/kv"
    command = [sys.executable, "-m", "tests.engines.prefill_child", address, str(trained_model), *DTYPES]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as child:
        yield address
        child.kill()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_logits_are_those_of_one_process(reading: str, trained_model: Path, dtype: str):
    writing = loaded(str(trained_model), dtype)
    model = writing._model
    with Receiver(f"{reading}-{dtype}", layout_of(model, weights_id(model))) as receiver:
        asked = {batch: receiver.ask(batch) for batch in BATCHES}
        for batch in ("texts", "scene", "text", "scenes"):  # not as they come
            apart = decode(model, receiver.result(asked[batch]), 40, logits=True)
            with torch.inference_mode():
                one = model.generate(
                    **inputs(writing, batch), max_new_tokens=40, return_dict_in_generate=True, output_logits=True
                )
            assert torch.equal(apart.sequences, one.sequences)
            assert len(apart.logits) == len(one.logits) > 10
            assert all(torch.equal(*both) for both in zip(apart.logits, one.logits, strict=True))


@pytest.mark.parametrize("kept", ["everything", "keys and values alone"])
def test_keys_and_values_alone_are_not_enough_for_a_picture(trained_model: Path, kept: str):
    """As in ATOM #2154: what goes on without the positions of its picture still answers, with other logits."""
    reading = loaded(str(trained_model), "float32")
    model = reading._model
    block = prefill(model, inputs(reading, "scene"), "r")
    with torch.inference_mode():
        given = inputs(reading, "scene")
        one = model.generate(**given, max_new_tokens=40, return_dict_in_generate=True, output_logits=True)
    left_out = () if kept == "everything" else ("position_ids", "state.")
    tensors = {name: tensor for name, tensor in block.tensors.items() if not name.startswith(left_out or ("-",))}
    model.model.rope_deltas = None  # as in a process that has read no prompt
    apart = decode(model, Received("r", block.tokens, block.position, tensors), 40, logits=True)
    equal = [torch.equal(*both) for both in zip(apart.logits, one.logits, strict=False)]
    assert all(equal) is (kept == "everything")
    assert equal[0]


def test_another_checkpoint_is_refused_before_anything_travels(reading: str, random_model: Path):
    model = loaded(str(random_model), "float32")._model
    with pytest.raises(TransferError, match="model is") as refused:
        Receiver(f"{reading}-float32", layout_of(model, weights_id(model)))
    assert refused.value.reason is Reason.MISMATCH


def test_a_child_that_dies_ends_the_stream(trained_model: Path, monkeypatch: pytest.MonkeyPatch):
    started: list[subprocess.Popen[bytes]] = []
    plain = subprocess.Popen

    def popen(*arguments: Any, **options: Any) -> Any:
        started.append(plain(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(module.subprocess, "Popen", popen)
    config = EngineConfig("transformers", str(trained_model), dtype="float32", batch_size=1)
    stream = disaggregated(config, (ask_scene(number, max_tokens=4) for number in range(50)))
    assert next(stream).failure is None
    started[0].kill()
    began = time.monotonic()
    with pytest.raises(EngineDied, match="gone"):
        list(stream)
    assert time.monotonic() - began < 60
    assert started[0].wait(10) != 0


def test_a_row_whose_block_does_not_fit_fails_alone_and_a_stream_that_is_left_ends_its_child(
    trained_model: Path, monkeypatch: pytest.MonkeyPatch
):
    ended: list[int] = []
    plain: Callable[..., None] = module._end

    def end(process: Any, *rest: Any) -> None:
        plain(process, *rest)
        ended.append(process.returncode)

    monkeypatch.setattr(module, "_end", end)
    config = EngineConfig("transformers", str(trained_model), dtype="float32", batch_size=2)
    asked = [ask(1, text="short", max_tokens=3), ask(2, text="word " * 300, max_tokens=3)]
    more = (ask_scene(number, max_tokens=4) for number in range(10, 50))
    stream = disaggregated(config, chain(asked, more), limits=Limits(slots=4, slot_bytes=64 << 10))
    found = {response.id: response for response in islice(stream, 2)}
    assert found[1].failure is None
    assert found[2].failure is not None
    assert found[2].failure.kind is ErrorKind.INFER_FAILED
    assert "slots" in found[2].failure.message
    stream.close()  # type: ignore[attr-defined]
    assert len(ended) == 1  # by itself, or killed where the machine is too slow for that


def test_a_block_that_is_lost_fails_its_rows_and_no_others():
    class Child:
        def hear(self) -> Read:
            return Read(0, (Shipped("0.images", (1, 2), (9, 9)),), (Response(3, text="answered"),))

    class Nobody:
        def ask(self, request: str) -> str:
            return request

        def result(self, wanted: str) -> Any:
            raise TransferError(reason, "planted")

    batch = Batch(0, (ask(1), ask(2), ask(3)))
    reason = Reason.EXPIRED
    found = list(module._answered(batch, Child(), Nobody(), None, print))  # type: ignore[arg-type]
    kinds = {one.id: one.failure and one.failure.kind for one in found}
    assert kinds == {1: ErrorKind.INFER_UNREACHABLE, 2: ErrorKind.INFER_UNREACHABLE, 3: None}
    assert ErrorKind.INFER_UNREACHABLE.retryable
    reason = Reason.DEAD
    with pytest.raises(EngineDied):
        list(module._answered(batch, Child(), Nobody(), None, print))  # type: ignore[arg-type]


def test_there_is_room_for_two_batches_of_usual_prompts(trained_model: Path):
    config = EngineConfig("transformers", str(trained_model), dtype="float32")
    model = SplitModel(config)
    limits = model.limits(16, 600.0)
    tokens = 2 * 16 * 2048  # the model takes no longer prompts
    assert limits.slots * limits.slot_bytes == tokens * (2 * 3 * 2 * 32 * 4)  # layers, heads, size, float32
    assert limits.lease_seconds == 600.0
    assert model.limits(1, 1.0).slots == 64
    assert model.limits(1 << 40, 1.0).slots * limits.slot_bytes < free_bytes()


def test_mistakes_are_told_before_a_child_is_started(tmp_path: Path, trained_model: Path):
    with pytest.raises(UserError):
        next(disaggregated(EngineConfig("transformers", str(tmp_path / "none")), []))
    wrong = replace(EngineConfig("transformers", str(trained_model)), options={"what": 1})
    with pytest.raises(UserError, match="what"):
        next(disaggregated(wrong, []))
