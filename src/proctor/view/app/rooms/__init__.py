"""The rooms of the browser: each answers some addresses, and knows nothing of the others."""

from __future__ import annotations

from proctor.view.app.rooms import assets, audits, benches, compare, fleets, live, rows, run, runs, traces

ROOMS = (runs, run, rows, compare, fleets, audits, benches, traces, live, assets)
"""Each has ``answers(site)``: what it answers, by path."""
