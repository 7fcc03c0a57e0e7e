"""The process that takes an engine from checkpoint to checkpoint is killed while it reads the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from msgspec.structs import replace
from safetensors.numpy import save_file

from proctor.engines import EngineConfig
from proctor.storage.folder import open_folder
from proctor.supervise.hotswap import HotSwap, SwapSetup
from proctor.supervise.process import MARK
from tests.supervise.helpers import Supervised, process_gone, scripted, wait_until

ROOT = Path(__file__).parents[2]

OWNER = """
import sys
from pathlib import Path
from proctor.transfer import read_checkpoint
from proctor.engines.weights import Weights
from tests.supervise.test_hotswap_owner import configs, hotswap
from tests.supervise.helpers import Supervised

def read(config):
    published = read_checkpoint(str(Path(sys.argv[1], config.model)))
    if config.model == "b":
        print(published.path, flush=True)
    return Weights(published.label.content, published)

def main():
    directory = Path(sys.argv[1])
    a, b = configs(directory, load_seconds=6.0)
    one = Supervised(a, directory)
    hot = hotswap(one, a, directory, beside=True, read=read)
    hot.to(a)
    hot.read_ahead(b)  # in memory at once, and then a second engine starts, which takes its time
    one.answers(range(1_000_000))

main()
"""


def configs(directory: Path, **options: float) -> tuple[EngineConfig, EngineConfig]:
    """The checkpoints, with the scripted engine."""
    plain = scripted(directory, answer="{checkpoint} {row_id}", row_ms=20, **options)
    a, b = (replace(plain, model=name) for name in "ab")
    return a, b


def hotswap(one: Supervised, config: EngineConfig, directory: Path, **more: object) -> HotSwap:
    beside = bool(more.pop("beside", False))
    setup = SwapSetup(open_folder(str(directory / "known")), beside)
    settings = one.supervisor._settings
    return HotSwap(one.supervisor, config, setup, settings, one.events.append, name="e", seen={}, **more)  # type: ignore[arg-type]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """A process that has the next checkpoint in shared memory and a second engine beside the first, and the path of
    that memory."""
    for name in "ab":
        (tmp_path / name).mkdir()
        save_file({"w": np.full(3_000_000, ord(name), np.uint8)}, tmp_path / name / "model.safetensors")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as process:
        try:
            assert process.stdout is not None
            path = process.stdout.readline().strip()
            wait_until(lambda: len(engines(process.pid)) == 2, 60)
            assert process.pid in holders(path)
            yield process.pid, path
        finally:
            process.kill()


def engines(owner: int) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(owner).children(recursive=True):
        with suppress(psutil.Error):
            found += [child] if MARK in child.environ() and child.ppid() == owner else []
    return found


def holders(path: str) -> set[int]:
    """Processes that have the shared memory at `path` open or mapped."""
    inode = path.rpartition("#")[2]
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            memory = [link for link in (process / "fd").iterdir() if "memfd:proctor-weights" in str(link.readlink())]
            maps = [line.split() for line in (process / "maps").read_text().splitlines()]
            mapped = {line[4] for line in maps if "memfd:proctor-weights" in line[-1]}
            if inode in mapped | {str(link.stat().st_ino) for link in memory}:
                found.add(int(process.name))
    return found


def test_nothing_is_left_and_the_next_one_begins_where_it_ended(
    owner: tuple[int, str], supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    pid, path = owner
    family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all(map(process_gone, family)), 60)
    wait_until(lambda: not holders(path), 60)
    known = [name for name in open_folder(str(tmp_path / "known")).names() if name.endswith(".json")]
    assert len(known) == 1  # a's: the engine beside had not answered yet

    a, b = configs(tmp_path)
    one = supervise(a)
    hot = hotswap(one, a, tmp_path)
    for config in (a, b):
        hot.to(config)
        assert one.answers([3])[3].text == f"{config.model} 3"
    hot.close()
