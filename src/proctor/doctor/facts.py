"""What one machine's interpreters have installed.

`look` is sent to each node as it is here, by value, and so works also where another Proctor is installed, or none: it
knows nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import msgspec

LOOK_SECONDS = 60.0
"""Most seconds for an interpreter to say what it has."""
_SCRIPT = """
import json, platform, sys
from importlib import metadata
found = {}
sys.path[:] = filter(None, sys.path)
for name in sys.argv[1:]:
    try: found[name] = metadata.version(name)
    except metadata.PackageNotFoundError: pass
print("\\n" + json.dumps({"python": platform.python_version(), "packages": found}))
"""
"""Also an interpreter too old for Proctor can say what it has."""


class Versions(msgspec.Struct, frozen=True):
    """What one interpreter has.

    Attributes:
        python: its version, with the patch.
        packages: version of each package asked about that is installed, by name.
    """

    python: str
    packages: dict[str, str] = {}

    @property
    def all(self) -> dict[str, str]:
        """Versions by name, `python` among them."""
        return {"python": self.python, **self.packages}


class Facts(msgspec.Struct, frozen=True):
    """What a machine has.

    Attributes:
        host: its name.
        own: in the interpreter that runs Proctor.
        engine: in the interpreter of the engine; None if that is the same one, or says nothing.
        trouble: why it says nothing.
    """

    host: str
    own: Versions
    engine: Versions | None = None
    trouble: str = ""

    def of_engine(self) -> Versions:
        """What the engine's interpreter has."""
        return self.engine or self.own


def look(
    names: Sequence[str], python: str | None = None, env: Mapping[str, str] | None = None, seconds: float = LOOK_SECONDS
) -> dict[str, Any]:
    """Looks up the versions of packages; imports none of them.

    Args:
        names: of the packages, as pip knows them.
        python: interpreter of the engine; None if it is this one.
        env: environment variables of the engine.
        seconds: most time for that interpreter.

    Returns:
        Plain data of a `Facts`.
    """
    own: dict[str, Any] = {"python": platform.python_version(), "packages": {}}
    for name in names:
        try:
            own["packages"][name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found: dict[str, Any] = {"host": socket.gethostname(), "own": own}
    return found if python is None else {**found, **_ask([python, "-c", _SCRIPT, *names], env or {}, seconds)}


def _ask(command: list[str], env: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """What another interpreter says, or why it says nothing."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=True,
        )
        return {"engine": json.loads(done.stdout.splitlines()[-1])}
    except subprocess.TimeoutExpired:
        return {"trouble": f"no answer within {seconds:g} s"}
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines()
        return {"trouble": lines[-1] if lines else f"exit code {error.returncode}"}
    except (OSError, ValueError, IndexError) as error:
        return {"trouble": getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"}
