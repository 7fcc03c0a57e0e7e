"""A workbench for one mechanism: what it does to the numbers when attention over a long context is computed in parts.

Two halves that need nothing of each other:

- arithmetic (`proctor.audit.attention.gate`, `reads`, `sums`): when vLLM <= 0.31 split attention at a shared prefix,
  what that saved, and why the order of a sum matters. No torch.
- measurement (`proctor.audit.attention.bench`, `depth`, `switchback`): attention in tiles, whole and in parts, in the
  number formats of inference, against float64. Needs torch.
"""

from __future__ import annotations
