"""What Ray and Proctor themselves cost: constants, each with the measurement it comes from.

All on 2 cores x86_64 with Ray 2.60 and Python 3.11; `tests/capacity/test_overhead.py` holds them against the results of
the benchmarks in the repository.
"""

from __future__ import annotations

MEASURED_CORES = 2
BLOCK_CPU_SECONDS = 0.065
"""CPU time of a block, whatever is in it: three tasks of Ray and their scheduling.

``benchmarks/results/overhead.json``: 100,000 tiny rows take 25.3 s in 391 blocks and 14.1 s in 49 blocks on 2 busy
cores, hence (25.3 - 14.1) / 342 x 2."""
ROW_CPU_SECONDS = 0.00025
"""CPU time of a row that is read, sent to an engine, answered, marked and written, apart from its images.

From the same benchmark: (14.1 s - 49 blocks) / 100,000 x 2."""

WORKER_BYTES = 145_000_000
"""Memory of a worker of Ray before it has any rows: proportional (PSS), by `make scale`. It is 215 MB resident."""
ACTOR_BYTES = 135_000_000
"""Memory of its own of an engine's actor with its warden (``benchmarks/results/soak.md``). It is 238 MB resident."""
ROW_COPIES = 3
"""Copies of a row's bytes in an actor: the block, its rows as objects, and what is on its way to the engine."""

ENGINE_BYTES = {"scripted": 21_000_000, "openai": 60_000_000, "transformers": 392_000_000, "vllm": 538_000_000}
"""Resident memory of an engine's process with everything imported and nothing loaded (measured: 20, -, 374, 513 MiB;
``openai``: estimate)."""
READ_AHEAD_BUFFERS = 4 * 16 * 2**20
"""Bytes in which a checkpoint comes from a disk on its way into shared memory (``proctor.transfer.reading``)."""
GPU_ENGINE_BYTES = 3_000_000_000
"""Memory on the host of an engine on a GPU: CUDA's context and libraries, pinned buffers. An estimate."""
GPU_CONTEXT_BYTES = 1_000_000_000
"""Memory on the GPU that is neither weights nor cache nor activations: CUDA's context and graphs. An estimate."""
CHARS_PER_TOKEN = 3.0
"""Characters of a prompt for one token: an estimate on the safe side."""
