"""The public names of the room, and that they cost nothing before they are used."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("room", ["proctor.transfer", "proctor.transfer.kv"])
def test_every_public_name_is_there(room: str) -> None:
    module = importlib.import_module(room)
    assert dir(module) == sorted(module.__all__) == sorted(module._HOMES)
    for name in module.__all__:
        found = getattr(module, name)
        assert found.__name__ == name
        assert found.__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing


def test_reading_checkpoints_needs_no_torch() -> None:
    code = "import sys; from proctor.transfer import Published, read_checkpoint; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
