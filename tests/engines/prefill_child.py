"""Reads scenes and texts in a process of its own and ships them."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import Any

from proctor.engines.base import EngineConfig
from proctor.engines.hf_model import HFModel
from proctor.engines.prepare import prepare
from proctor.rows import Request
from proctor.transfer.disaggregate import layout_of, prefill, weights_id
from proctor.transfer.kv.limits import Limits
from proctor.transfer.kv.sender import Sender
from tests.engines.tiny import ask, ask_scene

BATCHES: dict[str, list[Request]] = {
    "scene": [ask_scene(3)],
    "scenes": [ask_scene(number) for number in range(5)],
    "text": [ask(1, text="Where does the road lead?")],
    "texts": [ask(number, text="go on " * number) for number in range(1, 4)],
}


def loaded(directory: str, dtype: str) -> HFModel:
    return HFModel(EngineConfig("transformers", directory, dtype=dtype))


def inputs(model: HFModel, batch: str) -> Any:
    return model._on_device(model._inputs([prepare(request, model.chat) for request in BATCHES[batch]]))


def main(address: str, directory: str, *dtypes: str) -> None:
    with ExitStack() as stack:
        for dtype in dtypes:
            loading = loaded(directory, dtype)
            layout = layout_of(loading._model, weights_id(loading._model))
            sender = stack.enter_context(Sender(f"{address}-{dtype}", layout, Limits(lease_seconds=600.0)))
            for batch in BATCHES:
                sender.put(prefill(loading._model, inputs(loading, batch), batch))
        time.sleep(300)


if __name__ == "__main__":
    main(*sys.argv[1:])
