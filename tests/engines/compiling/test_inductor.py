"""The real back end: generates code, so a compiler has to be there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")

from proctor.engines.compiling.apply import compile_in_place, undo  # noqa: E402
from proctor.engines.compiling.settings import Compile  # noqa: E402
from proctor.engines.compiling.targets import Target  # noqa: E402
from tests.engines.compiling.toy import Model, patches  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch, about itself
]
MERGERS = [Target("merger", ("visual.merger",)), Target("deep", ("visual.deep.0", "visual.deep.1"))]


def test_generated_code_serves_both_widths_and_comes_from_the_cache_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch.manual_seed(0)
    model = Model().eval()
    counts = (64, 8, 128)
    with torch.inference_mode():
        expected = {count: model(patches(count)) for count in counts}
        seen = []
        for _ in range(2):
            torch._dynamo.reset()
            watch = compile_in_place(model, MERGERS, Compile())
            for count in counts:
                torch.testing.assert_close(model(patches(count)), expected[count], rtol=1e-4, atol=1e-5)
            seen.append(watch.counters)
            undo(model, MERGERS)
    for counters, hits, misses in ((seen[0], 0, 1), (seen[1], 1, 0)):
        for target in ("merger", "deep"):
            found = counters[target]
            assert (found.graphs, found.breaks, found.recompiles) == (1, (), ())
            assert (found.cache_hits, found.cache_misses) == (hits, misses)
