from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyarrow", "pydantic", "ray", "torch", "transformers", "vllm", "duckdb", "scipy", "structlog")
"""What an engine's process must not need before it knows which engine it runs, or at all."""


@pytest.mark.parametrize("module", ["registry", "transformers", "vllm", "openai"])
def test_an_engine_module_is_light_to_import(module: str):
    code = (
        f"import sys, proctor.engines.{module}; "
        f"print(sorted({{name.partition('.')[0] for name in sys.modules}}.intersection({HEAVY})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
