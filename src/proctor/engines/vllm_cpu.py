"""What vLLM's CPU build needs to be told before it serves well as a batch engine."""

from __future__ import annotations

import logging
import os


def quiet_and_eager() -> None:
    """Keeps vLLM's CPU build from compiling in mid-stream and from logging the same warning at every step.

    Even with ``enforce_eager`` vLLM compiles small helpers on first use (those of logprobs among them): on a CPU that
    stands still for 20 s while rows are in flight, needs a C++ compiler, and gains nothing.
    """
    import torch._dynamo.config

    os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
    torch._dynamo.config.disable = os.environ["TORCH_COMPILE_DISABLE"] == "1"
    logging.getLogger("vllm.v1.worker.cpu_worker").addFilter(_tells_news)


def _tells_news(record: logging.LogRecord) -> bool:
    return "set_num_threads" not in str(record.msg)
