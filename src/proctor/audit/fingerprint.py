"""What was audited, so that two audits can be compared: versions, hashes, knobs, hardware. No secrets, no paths."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import xxhash

from proctor.audit.bench import EngineOrder
from proctor.audit.model import Fingerprint
from proctor.audit.probes import Probe
from proctor.engines.surroundings import Site

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json", "vocab.json")
_WEIGHTS = (".safetensors", ".bin", ".gguf")
_SECRET = ("key", "token", "secret", "password", "url")


def fingerprint_of(order: EngineOrder, probes: Sequence[Probe], site: Site, versions: Mapping[str, str]) -> Fingerprint:
    """The fingerprint of the baseline.

    Args:
        order: the baseline's engine.
        probes: the questions.
        site: what is installed where the engine runs.
        versions: what the engine said of itself when it had loaded.
    """
    config = order.config
    model = Path(config.model)
    requests = xxhash.xxh3_128()
    images = xxhash.xxh3_128()
    for probe in probes:
        requests.update(msgspec.msgpack.encode((probe.request.prompt, probe.request.sampling)))
        for image in probe.request.images:
            images.update(xxhash.xxh3_128(image).digest())
    options = {name: value for name, value in config.options.items() if not _secret(name)}
    return Fingerprint(
        engine=config.kind,
        versions={**site.versions, **versions},
        model=model.name,
        model_hash=_hash_of(model, _WEIGHTS, names=("config.json", "generation_config.json")),
        tokenizer_hash=_hash_of(model, (), names=_TOKENIZER),
        requests_hash=requests.hexdigest(),
        images_hash=images.hexdigest(),
        hardware=_hardware(site),
        knobs={
            "batch_size": config.batch_size,
            "dtype": config.dtype,
            "device": config.device,
            "max_model_len": config.max_model_len,
            "multiprocessing": config.multiprocessing,
            **options,
            **{name: "set" if _secret(name) else value for name, value in order.env.items()},
        },
        questions={str(probe.request.id): _question(probe) for probe in probes},
    )


def _question(probe: Probe) -> str:
    """Of what the engine is asked for one row; whether log-probabilities come along is the audit's own affair."""
    request = probe.request
    sampling = msgspec.structs.replace(request.sampling, logprobs=False, top_logprobs=0)
    digest = xxhash.xxh3_64(msgspec.msgpack.encode((request.prompt, sampling)))
    for image in request.images:
        digest.update(xxhash.xxh3_128(image).digest())
    return digest.hexdigest()


def _hardware(site: Site) -> dict[str, str]:
    gpus = ", ".join(gpu.name for gpu in site.gpus)
    return {"machine": platform.machine(), "processor": _processor(), "cpus": str(site.cpus), "gpus": gpus or "none"}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET)


def _hash_of(model: Path, suffixes: Sequence[str], *, names: Sequence[str]) -> str:
    """Of the content of a model directory's files of these kinds; empty where there are none."""
    if not model.is_dir():
        return ""
    files = sorted(file for file in model.iterdir() if file.name in names or file.suffix in suffixes)
    if not files:
        return ""
    digest = xxhash.xxh3_128()
    for file in files:
        digest.update(file.name.encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()
