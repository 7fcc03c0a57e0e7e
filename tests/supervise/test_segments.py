from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from proctor.supervise.segments import mapped_segments, remove_segments

HOLDER = """
import sys
from multiprocessing import resource_tracker, shared_memory
segment = shared_memory.SharedMemory(create=True, size=4096)
resource_tracker.unregister(segment._name, "shared_memory")
print(segment.name, flush=True)
sys.stdin.read()
"""


def test_only_segments_that_nobody_holds_are_removed() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        path = Path("/dev/shm") / holder.stdout.readline().decode().strip()
        try:
            assert mapped_segments([holder.pid]) == {path}
            assert remove_segments([path]) == []
            assert path.exists()
        finally:
            holder.kill()
            holder.wait()
        assert mapped_segments([holder.pid]) == set()
        assert remove_segments([path, Path("/dev/shm/psm_of_nobody")]) == [path]
        assert not path.exists()
