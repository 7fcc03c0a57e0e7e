"""What Ray says when it does not let a process into a cluster, in one line."""

from __future__ import annotations

import re

from proctor.rows import UserError, told

_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")

REFUSALS = (ConnectionError, ValueError, RuntimeError)
"""What ``ray.init(address=...)`` raises: nobody there, no such address, another Ray or Python."""


def refusal(error: BaseException, address: str) -> UserError:
    """The mistake that `error`, one of `REFUSALS`, is about.

    A cluster with another Ray or Python ends the connection with a "Version mismatch" that holds both
    (``_private/utils.py:check_version_info`` of Ray 2.60).
    """
    where, pairs = f"ray.address {address!r}", _VERSIONS.findall(str(error))
    if "mismatch" not in str(error) or len(pairs) < 2:
        return UserError(f"no Ray cluster: {told(error)}", where=where)
    (ray_there, python_there), (ray_here, python_here) = pairs[0], pairs[1]
    there, here = f"Ray {ray_there} and Python {python_there}", f"Ray {ray_here} and Python {python_here}"
    same_ray = ray_there == ray_here
    fix = f"run Proctor with Python {python_there}" if same_ray else f"pip install 'ray=={ray_there}'"
    return UserError(f"the cluster has {there}, this process {here}", where=where, fix=fix)
