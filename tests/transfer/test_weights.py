"""What was published is what is received: any types and shapes, any sizes of buckets, each transport of the host."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.rows import UserError
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.peers import Peers
from proctor.transfer.tensors import DTYPES, plan
from proctor.transfer.weights import Publisher, Receiver, State
from tests.leaks import descriptors
from tests.transfer.weights_support import Side, home, receivers, same, transfer

HOST_TRANSPORTS = ["stream", "shm", "gloo"]


@st.composite
def state_dicts(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    """Random bytes as every type, 0-dim and empty tensors, transposed ones, ties."""
    tensors: dict[str, torch.Tensor] = {}
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    for index in range(draw(st.integers(0, 12))):
        dtype = draw(st.sampled_from(sorted(DTYPES.values(), key=str)))
        shape = draw(st.lists(st.integers(0, 9), max_size=3))
        count = int(torch.tensor(shape, dtype=torch.int64).prod())
        width = torch.empty(0, dtype=dtype).element_size()
        data = torch.randint(0, 2 if dtype is torch.bool else 256, (count * width,), generator=generator)
        tensor = data.to(torch.uint8).view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)
        tensors[f"t{index}"] = tensor.t() if len(shape) == 2 and draw(st.booleans()) else tensor
        if draw(st.integers(0, 4)) == 0:
            tensors[f"tie{index}"] = tensors[f"t{index}"]
    return tensors


few = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@few
@given(state_dicts(), st.sampled_from([256, 512, 1280, 1 << 16]), st.booleans())
def test_all_arrive_as_they_were(tensors: dict[str, torch.Tensor], bucket_bytes: int, in_place: bool) -> None:
    into = {name: torch.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in tensors.items()}
    [received] = transfer(tensors, bucket_bytes=bucket_bytes, into=into if in_place else None)
    same(received.tensors, tensors)
    if in_place:
        same(into, tensors)


@pytest.mark.parametrize("transport", HOST_TRANSPORTS)
@pytest.mark.parametrize("bucket_bytes", [1024, 1 << 14, 1 << 22])
def test_small_buckets_are_as_right_as_large_ones(transport: str, bucket_bytes: int) -> None:
    """sglang #14178: garbled answers with small buckets, fine with large ones."""
    torch.manual_seed(0)
    tensors = {str(index): torch.randn(index * 37 % 91, 7) for index in range(40)} | {"s": torch.tensor(2.5)}
    for received in transfer(tensors, transport=transport, bucket_bytes=bucket_bytes, count=2):
        same(received.tensors, tensors)


@pytest.mark.parametrize("beside", [torch.bfloat16, torch.float8_e4m3fn])
def test_types_are_not_promoted(beside: torch.dtype) -> None:
    """SGLang's flattened bucket: 1000003 came back as 999424 beside bfloat16, and fp8 beside it raised."""
    tensors = {"id": torch.tensor([1000003]), "other": torch.ones(3).to(beside), "half": torch.ones(3).bfloat16()}
    [received] = transfer(tensors)
    assert received.tensors["id"].tolist() == [1000003]
    same(received.tensors, tensors)


def test_no_bucket_is_longer_than_was_agreed() -> None:
    """The well-known code flushes a bucket only after it has become too long; a larger tensor only warns."""
    with receivers() as [receiver], Publisher([receiver.address], bucket_bytes=512) as publisher:
        lengths = []
        with pytest.MonkeyPatch.context() as patch:
            real = Peers.send_bytes
            patch.setattr(
                Peers, "send_bytes", lambda self, data, what: lengths.append(len(data)) or real(self, data, what)
            )
            side = Side(receiver)
            publisher.publish({"small": torch.ones(3), "large": torch.ones(1000)})
            side.received()
    assert max(lengths) == 512
    assert sum(lengths) == 256 + 4096


def test_weights_on_top_of_themselves_change_nothing() -> None:
    """vllm #42481, #44371: a reload of the same checkpoint broke aliases and buffers that are not in a file."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4))
    model[2].weight = model[0].weight
    model[1].register_buffer("scale", torch.rand(4), persistent=False)
    question = torch.randn(3, 4)
    before = model.eval()(question)
    transfer(copy.deepcopy(model).state_dict(), into=model.state_dict())
    assert torch.equal(model(question), before)
    assert model[2].weight is model[0].weight


def test_ties_stay_ties() -> None:
    shared = torch.randn(9)
    [received] = transfer({"embed": shared, "head": shared, "other": torch.randn(9)})
    assert received.tensors["head"] is received.tensors["embed"]


def test_a_tie_is_written_to_both_where_they_are_two() -> None:
    shared = torch.randn(9)
    into = {"embed": torch.zeros(9), "head": torch.zeros(9)}
    transfer({"embed": shared, "head": shared}, into=into)
    assert torch.equal(into["embed"], shared)
    assert torch.equal(into["head"], shared)


def test_two_tensors_do_not_go_into_one_memory() -> None:
    """The second would overwrite the first, and every checksum would be right."""
    shared = torch.zeros(9)
    with receivers(into={"embed": shared, "head": shared}) as [receiver], Publisher([receiver.address]) as publisher:
        side = Side(receiver)
        with pytest.raises(TransferError, match="head is tied to embed here") as raised:
            publisher.publish({"embed": torch.ones(9), "head": torch.ones(9)})
        assert raised.value.rank == "r0"
        assert side.outcome().reason is Reason.MISMATCH
    assert not shared.any()


def test_buffers_are_sent_too() -> None:
    """`named_parameters()` knows nothing of the statistics of a batch norm, and those who iterate it lose them."""
    model = torch.nn.BatchNorm1d(5)
    model(torch.randn(8, 5))
    [received] = transfer(model.state_dict())
    same(received.tensors, model.state_dict())
    assert "running_mean" in received.tensors


def test_every_epoch_has_memory_of_its_own() -> None:
    """A view that outlives its epoch keeps its bytes (consumer views past buffer reuse: NeMo-RL #3545)."""
    with receivers() as [receiver], Publisher([receiver.address]) as publisher:
        side = Side(receiver, epochs=2)
        publisher.publish({"a": torch.full((1000,), 1.0)})
        publisher.publish({"a": torch.full((1000,), 2.0)})
        side.outcome()
        first, second = side.outcomes
    assert first.tensors["a"].unique().tolist() == [1.0]
    assert second.tensors["a"].unique().tolist() == [2.0]
    assert (first.epoch, second.epoch) == (1, 2)


def test_pairs_are_made_one_after_another() -> None:
    tensors = {str(index): torch.randn(100) for index in range(10)}
    layout = plan(tensors)
    with receivers() as [receiver], Publisher([receiver.address], bucket_bytes=256) as publisher:
        side = Side(receiver)
        publisher.publish(((name, tensor.clone()) for name, tensor in tensors.items()), manifest=layout.manifest)
        same(side.received().tensors, tensors)


def test_a_receipt_says_what_it_took() -> None:
    with receivers(2) as made, Publisher([receiver.address for receiver in made], bucket_bytes=1024) as publisher:
        sides = [Side(receiver) for receiver in made]
        receipt = publisher.publish({"a": torch.randn(1000)})
        for side in sides:
            side.received()
    assert (receipt.epoch, receipt.nbytes, receipt.ranks) == (1, 4096, ("r0", "r1"))
    assert receipt.seconds >= receipt.timing.seconds >= receipt.timing.pack > 0
    assert receipt.timing.send is not None


@pytest.mark.parametrize("transport", HOST_TRANSPORTS)
def test_fifty_epochs_leave_nothing_behind(transport: str) -> None:
    """vllm #52950: every sync stranded 2 GiB."""
    import threading

    tensors = {"a": torch.randn(2000), "b": torch.randn(300)}
    with (
        receivers(2) as made,
        Publisher([r.address for r in made], transport=transport, bucket_bytes=1024) as publisher,
    ):
        sides = [Side(receiver, epochs=53) for receiver in made]
        for _ in range(2):
            publisher.publish(tensors)
        before, threads = descriptors(), threading.active_count()
        for _ in range(50):
            receipt = publisher.publish(tensors)
        assert descriptors() <= before  # what earlier tests left may go meanwhile
        assert threading.active_count() <= threads
        assert receipt.epoch == 52
        publisher.publish(tensors)
        for side in sides:
            same(side.received().tensors, tensors)


@pytest.mark.parametrize("transport", HOST_TRANSPORTS)
def test_what_is_closed_is_gone(transport: str) -> None:
    import threading

    transfer({"a": torch.ones(9)}, transport=transport)  # what torch itself opens once
    before, threads = descriptors(), threading.active_count()
    transfer({"a": torch.ones(9)}, transport=transport)
    assert descriptors() <= before  # what earlier tests left may go meanwhile
    assert threading.active_count() <= threads


def test_slots_are_made_once() -> None:
    with receivers() as [receiver], Publisher([receiver.address], bucket_bytes=1024) as publisher:
        Side(receiver, epochs=2)
        publisher.publish({"a": torch.randn(2000)})
        ring = publisher._ring
        publisher.publish({"a": torch.randn(2000)})
        assert publisher._ring is ring
        assert ring is not None
        assert sum(slot.nbytes for slot in ring.slots) == 2 * 1024


def test_states() -> None:
    with receivers() as [receiver], Publisher([receiver.address]) as publisher:
        assert (receiver.state, receiver.current) == (State.IDLE, None)
        side = Side(receiver)
        publisher.publish({"a": torch.ones(9)})
        received = side.received()
        assert receiver.state is State.COMMITTED
        assert receiver.current == received


@pytest.mark.parametrize("transport", HOST_TRANSPORTS)
def test_over_tcp(transport: str) -> None:
    tensors = {"a": torch.randn(5000), "b": torch.ones(3)}
    receiver = Receiver("tcp:127.0.0.1:0", rank="r")
    with receiver, Publisher([receiver.address], transport=transport, bucket_bytes=1024) as publisher:
        for _ in range(2):
            side = Side(receiver)
            publisher.publish(tensors)
            same(side.received().tensors, tensors)


def test_addresses() -> None:
    with home() as place:
        for wrong in ("localhost:1", "tcp:127.0.0.1", "tcp:127.0.0.1:99999", "unix:", f"unix:{place}/{'x' * 200}"):
            with pytest.raises(UserError):
                Receiver(wrong, rank="r")
        with Receiver("tcp:127.0.0.1:0", rank="r") as receiver:
            with pytest.raises(UserError, match="cannot listen"):
                Receiver(receiver.address, rank="other")
            with Publisher([receiver.address]) as publisher:
                side = Side(receiver)
                publisher.publish({"a": torch.ones(9)})
                assert side.received().tensors["a"].sum() == 9


def test_the_socket_of_a_dead_process_is_replaced() -> None:
    with home() as place:
        with Receiver(f"unix:{place}/s", rank="r") as living, pytest.raises(UserError, match="cannot listen"):
            Receiver(living.address, rank="other")
        import socket

        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(f"{place}/s")
        Receiver(f"unix:{place}/s", rank="r").close()
        assert not (place / "s").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket_bytes": 1000}, "multiple of 256: 1024"),
        ({"transport": "pigeon"}, "there is no transport pigeon"),
        ({"buffers": 0}, "hold nothing"),
        ({"deadline": 0}, "more than 0 seconds"),
        ({"bucket_bytes": 2 << 30}, "are more than"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with receivers() as [receiver], pytest.raises(UserError, match=message):
        Publisher([receiver.address], **options)  # type: ignore[arg-type]


def test_tensors_that_cannot_be_written_in_place() -> None:
    base = torch.zeros(4, 4)
    for into, message in [
        ({"a": base.t()[1:]}, "not contiguous"),
        ({"a": base[:2], "b": base[1:3]}, "shares a part of its memory with"),
        ({"a": torch.empty(3, device="meta")}, "cannot be written to"),
    ]:
        with home() as place, pytest.raises(UserError, match=message):
            Receiver(f"unix:{place}/s", rank="r", into=into)


def test_nobody_to_publish_to_and_no_manifest() -> None:
    with pytest.raises(UserError, match="nobody"):
        Publisher([])
    with receivers() as [receiver], Publisher([receiver.address]) as publisher:
        with pytest.raises(UserError, match="without a manifest"):
            publisher.publish([("a", torch.ones(1))])
        with pytest.raises(UserError, match="device meta"):
            publisher.publish({"a": torch.ones(1, device="meta")})
