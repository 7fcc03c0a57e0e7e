"""The command line: parses, calls one function, prints. No logic lives here."""

from __future__ import annotations

from proctor.cli.app import main

__all__ = ["main"]
