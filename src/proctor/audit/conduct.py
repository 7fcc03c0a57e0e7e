"""A whole audit, from a spec to a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from proctor.audit.bench import EngineOrder, Start, supervised
from proctor.audit.compare import Judgement
from proctor.audit.design import Cost, cost_of, make_design
from proctor.audit.fingerprint import fingerprint_of
from proctor.audit.further import Further
from proctor.audit.lab import Lab, Progress, Setting
from proctor.audit.model import Arm, Comparison, Design, Fingerprint, Verdict
from proctor.audit.probes import Probe, probes_of, texts_of
from proctor.audit.reference import Referee
from proctor.audit.remedies import Remedy, remedies_of
from proctor.audit.replay import Replays, replay_plan, told_of
from proctor.audit.search import Effect, Found, Search
from proctor.audit.traffic import TOP, traffic_knobs
from proctor.audit.verdict import verdict_of
from proctor.engines.capabilities import capabilities
from proctor.engines.config import engine_config, environment
from proctor.engines.inspection import Inspection, inspect
from proctor.engines.knobs import knobs_of
from proctor.engines.surroundings import Site, look
from proctor.prepare.material import Material, material_of
from proctor.prepare.probes import sampling_of
from proctor.rows import UserError
from proctor.spec import RunSpec
from proctor.spec.audit import AuditSpec


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in the results: itself, against its reference, and against itself.

    Attributes:
        comparison: of free answers, up to the first token that differs.
        replayed: with the baseline's tokens forced on both sides, at every position; None where it was not replayed.
        judged: whether rounding explains how it differs from its reference; None where that was not judged.
    """

    arm: Arm
    comparison: Comparison | None
    repeats: Comparison
    rounds: int
    requests_per_second: float | None
    replayed: Comparison | None = None
    judged: Judgement | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an audit found.

    Attributes:
        checkpoint: which model.
        verdict: the sentence and what it rests on.
        effects: the strongest first.
        arms: planned ones and those that the search added.
        disturbed: answers that do not count: an engine died while it had these rows.
        troubles: what befell engines, a line each.
        replay: what was replayed, or why nothing was, in words.
        questions: texts of the rows that are shown, by row id as text.
    """

    checkpoint: str
    made_at: str
    verdict: Verdict
    effects: tuple[Effect, ...]
    arms: tuple[Shown, ...]
    remedies: tuple[Remedy, ...]
    inspection: Inspection | None
    fingerprint: Fingerprint
    design: Design
    cost: Cost
    seconds: float
    disturbed: int = 0
    troubles: tuple[str, ...] = ()
    replay: str = ""
    questions: dict[str, str] = {}

    @property
    def exit_code(self) -> int:
        """0 no effect found, 4 an effect found, 3 could not tell."""
        return {"no effect found": 0, "could not tell": 3}.get(self.verdict.kind, 4)


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known before any engine has started: the design, and what it takes."""

    checkpoint: str
    design: Design
    cost: Cost


class Auditor:
    """An audit of one checkpoint of a spec.

    Raises:
        UserError: the spec, its source or its engine cannot be asked, or a knob does not exist.
    """

    def __init__(self, spec: RunSpec, checkpoint: str | None = None, *, start: Start = supervised) -> None:
        self._material: Material = material_of(spec)
        spec = self._material.spec
        self._spec = spec
        self._start = start
        self._audit = spec.audit or AuditSpec()
        names = [one.name for one in spec.engine.checkpoints]
        if checkpoint is not None and checkpoint not in names:
            raise UserError(
                f"no checkpoint {checkpoint!r}", where="engine.checkpoints", fix=f"one of {', '.join(names)}"
            )
        chosen = spec.engine.checkpoints[0 if checkpoint is None else names.index(checkpoint)]
        self.checkpoint = chosen.name
        python, env = environment(spec.engine)
        limits = spec.limits
        config = engine_config(spec.engine, chosen)
        self._order = EngineOrder(
            config=config if self._audit.faults else msgspec.structs.replace(config, faults=()),
            env=dict(env),
            python=python,
            stall_seconds=limits.stall_seconds,
            load_seconds=limits.load_seconds,
            init_attempts=limits.init_attempts,
        )
        self._site: Site = look(spec.engine.kind, python)
        self._can = capabilities(self._order.config, self._order.env, self._site)
        self._probes: tuple[Probe, ...] = tuple(probes_of(self._material, sampling_of(spec), self._audit.sample))
        engine_knobs = knobs_of(self._order.config, self._order.env, self._site)
        traffic = traffic_knobs(
            self._audit,
            spec.engine.batch_size,
            most_top=self._can.top_logprobs,
            sampled=spec.sampling.temperature > 0,
            stops=bool(spec.sampling.stop),
            pictured=any(probe.request.images for probe in self._probes),
        )
        knobs = (*traffic, *engine_knobs)
        design = make_design(self._audit, knobs, [probe.request.id for probe in self._probes])
        self._design = replace(design, replay=replay_plan(design.arms, self._can))
        self._shared = not self._can.caches_prompts or not self._can.restart

    def preparation(self) -> Preparation:
        """The design and its cost; nothing is started."""
        return Preparation(checkpoint=self.checkpoint, design=self._design, cost=self._cost())

    def run(self, progress: Progress | None = None) -> tuple[Audit, Lab]:
        """Runs the design, searches for causes, and judges.

        Returns:
            What was found, and the lab with every observation.

        Raises:
            UserError: an engine does not work.
        """
        began = datetime.now(UTC)
        lab = self._lab(progress)
        lab.run(self._design.arms, self._design.sittings)
        further = Further(lab, rounds=self._audit.rounds, most_sittings=self._audit.most_sittings)
        found = Search(lab, further).run()
        replays = None if self._design.replay.why_not else Replays(lab, self._can.replay_options)
        referee = Referee(lab, self._design.replay, replays, self._can.reference)
        judged = referee.judge(found)
        nature = judged[found.effects[0].arm].kind if found.effects and found.effects[0].arm in judged else "unknown"
        verdict = verdict_of(lab, self._design, found, nature)
        sat = [arm for arm in lab.arms.values() if lab.has_sat(arm.name)]
        shown = tuple(_shown(lab, arm, replays, judged.get(arm.name)) for arm in sat)
        audit = Audit(
            checkpoint=self.checkpoint,
            made_at=began.isoformat(timespec="seconds"),
            verdict=replace(verdict, evidence=(*verdict.evidence, *referee.evidence(found))),
            effects=found.effects,
            arms=shown,
            remedies=remedies_of(lab, found),
            inspection=inspect(self._order.config, self._order.env, self._site),
            fingerprint=fingerprint_of(self._order, self._probes, self._site, lab.versions),
            design=self._design,
            cost=self._cost(),
            seconds=(datetime.now(UTC) - began).total_seconds(),
            disturbed=sum(one.disturbed for one in lab.sat),
            replay=told_of(self._design.replay, replays, self._parted(lab, found)),
            questions=self._questions(shown),
        )
        return audit, lab

    def _lab(self, progress: Progress | None) -> Lab:
        setting = Setting(
            order=self._order,
            probes=self._probes,
            task=self._material.task,
            knobs=self._design.knobs,
            wanted=self._design.wanted,
            shared=self._shared,
            seed=self._audit.seed,
            top=min(TOP, self._can.top_logprobs),
            start=self._start,
        )
        return Lab(setting, progress=progress)

    def _questions(self, shown: Sequence[Shown]) -> dict[str, str]:
        """Texts of the questions whose answers part."""
        compared = [one for arm in shown for one in (arm.comparison, arm.repeats) if one is not None]
        rows = {flip.row_id for one in compared for flip in one.flips}
        return {str(row): text for row, text in texts_of(self._probes).items() if row in rows}

    def _parted(self, lab: Lab, found: Found) -> list[str]:
        """Planned arms in which an answer parts from its reference's; where there is noise, those are of no account."""
        if found.noise.arms:
            return []
        arms = [arm.name for arm in self._design.arms if arm.against and lab.has_sat(arm.name)]
        return [name for name in arms if lab.comparison(name).flips]

    def _cost(self) -> Cost:
        return cost_of(self._design, self._audit, max_tokens=self._spec.sampling.max_tokens, shared=self._shared)


def _shown(lab: Lab, arm: Arm, replays: Replays | None, judged: Judgement | None) -> Shown:
    compared = lab.comparison(arm.name) if arm.against and lab.shared_rounds(arm.name, arm.against) else None
    return Shown(
        arm=arm,
        comparison=compared if arm.name != arm.against else None,
        repeats=lab.repeats(arm.name),
        rounds=len(lab.rounds_of(arm.name)),
        requests_per_second=lab.rate(arm.name),
        replayed=None if replays is None else replays.comparison(arm.name),
        judged=judged,
    )
