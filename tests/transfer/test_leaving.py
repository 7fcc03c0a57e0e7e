"""Who has what he came for may leave: that is no failure of those who are still at it."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from proctor.transfer.weights import Publisher
from tests.transfer.weights_support import Side, close, receivers, same

TENSORS = {"w": torch.arange(1000.0)}


@pytest.mark.parametrize("transport", ["stream", "shm", "gloo"])
def test_a_receiver_may_leave_once_it_has_the_weights(transport: str) -> None:
    with receivers(2) as made:
        left = threading.Event()
        destination = made[1]._destination
        commit = destination.commit

        def slowly() -> dict[str, torch.Tensor]:
            left.wait(20)
            time.sleep(0.1)  # the publisher hears of the first one's end
            return commit()

        destination.commit = slowly  # type: ignore[method-assign]
        sides = [Side(receiver) for receiver in made]
        with Publisher([receiver.address for receiver in made], transport=transport, deadline=20) as publisher:
            outcome: list[object] = []
            thread = threading.Thread(target=lambda: outcome.append(publisher.publish(TENSORS).ranks))
            thread.start()
            same(sides[0].received().tensors, TENSORS)
            close(made[0])
            left.set()
            thread.join(30)
            assert outcome == [("r0", "r1")]
        same(sides[1].received().tensors, TENSORS)
