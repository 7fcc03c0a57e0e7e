from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from PIL import Image

from proctor.engines import EngineConfig, Fault
from proctor.engines.fingerprint import (
    Fingerprint,
    ProbeAnswer,
    asked_of,
    differences,
    fingerprint,
    fingerprint_of,
    key,
)
from proctor.engines.fingerprint_store import FingerprintStore
from proctor.engines.probes import probes
from proctor.engines.registry import make_engine
from proctor.engines.surroundings import Gpu, Site, hardware
from proctor.rows import ErrorKind, Failure, Request, Response
from proctor.storage.folder import open_folder

CONFIG = EngineConfig("scripted", "one", options={"numerics": {}})


def told() -> Fingerprint:
    engine = make_engine(CONFIG)
    engine.load()
    return fingerprint(asked_of(engine))


def changed(one: Fingerprint, number: int, **changes: Any) -> Fingerprint:
    found = list(one.answers)
    found[number] = replace(found[number], **changes)
    return Fingerprint(tuple(found))


def test_probes_are_always_the_same_bytes() -> None:
    first = probes()
    probes.cache_clear()
    assert probes() == first
    assert len({request.id for _, request in first}) == len(first)
    assert all(request.id < 0 and request.image_slots == len(request.images) for _, request in first)


def test_probes_hold_what_stale_caches_need() -> None:
    by_name = dict(probes())
    assert by_name["long text"].prompt == by_name["long text again"].prompt
    assert by_name["image"].images == by_name["image again"].images
    (part,) = by_name["long text"].prompt[0].parts
    assert len(part.text.split()) == 300
    one, other = (Image.open(io.BytesIO(data)) for data in by_name["two images"].images)
    assert (one.size, other.size) == ((128, 96), (96, 128))
    assert len(one.getcolors(20000) or ()) > 1000


def test_a_fingerprint_survives_its_json() -> None:
    one = told()
    assert Fingerprint.from_json(one.to_json()) == one
    assert all(answer.logprobs for answer in one.answers)
    with pytest.raises(ValueError, match="truncated"):
        Fingerprint.from_json(b"{")


def test_one_bit_of_a_logprob_is_a_difference() -> None:
    one = told()
    bits = one.answers[1].logprobs
    assert bits is not None
    found = differences(one, changed(one, 1, logprobs=(bits[0] ^ 1, *bits[1:])))
    assert found.startswith("long text: log-probability 0 is -")
    assert found.endswith("(1 of 6 probes differ)")
    assert differences(one, one) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"failure": "infer.rejected"}, "image: infer.rejected, not answered"),
        ({"token_ids": ()}, "image: 0 tokens, not"),
        ({"prompt_tokens": 3}, "image: the prompt has 3 tokens, not"),
        ({"text": "x" * 90}, "image: the text is 'xxx"),
        ({"logprobs": None}, "image: log-probabilities are told on one side only"),
        ({"logprobs": ()}, "image: 0 log-probabilities, not"),
        ({"probe": "other"}, "the probes are not the same"),
    ],
)
def test_what_differs_is_said(changes: dict[str, Any], said: str) -> None:
    one = told()
    assert differences(one, changed(one, 3, **changes)).startswith(said)


def test_a_refused_probe_is_part_of_the_fingerprint() -> None:
    def ask(request: Request) -> Response:
        if request.images:
            return Response.failed(request.id, Failure(ErrorKind.INFER_REJECTED, "the model takes no images"))
        return Response(request.id, text="yes", finish_reason="stop")

    found = fingerprint(ask)
    assert [answer.failure for answer in found.answers] == ["", "", "", *["infer.rejected"] * 3]
    assert found.answers[0] == ProbeAnswer("short text", "yes")


def test_responses_got_elsewhere_make_the_same_fingerprint() -> None:
    engine = make_engine(CONFIG)
    engine.load()
    responses = [asked_of(engine)(request) for _, request in reversed(probes())]
    assert fingerprint_of(responses) == told()
    with pytest.raises(ValueError, match="one response for each probe"):
        fingerprint_of(responses[1:])


def test_the_key_follows_what_may_change_a_bit() -> None:
    versions, where = {"torch": "2", "python": "3"}, "a CPU"
    same = key(CONFIG, "c", versions, where)
    assert len(same) == 64
    elsewhere = replace(CONFIG, model="two", faults=(Fault("blank", rows=(1,)),), fault_state="x")
    assert key(elsewhere, "c", dict(reversed(versions.items())), where) == same
    others = {
        key(replace(CONFIG, dtype="bfloat16"), "c", versions, where),
        key(replace(CONFIG, options={}), "c", versions, where),
        key(CONFIG, "d", versions, where),
        key(CONFIG, "c", {**versions, "torch": "3"}, where),
        key(CONFIG, "c", versions, "another CPU"),
        key(CONFIG, "c", versions, where, {"OMP_NUM_THREADS": "2"}),
        same,
    }
    assert len(others) == 7


def test_hardware_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    site = Site(cpus=4)
    assert hardware(site, {}).startswith("no GPU; ")
    assert hardware(site, {}).endswith("; 1 threads")
    assert hardware(site, {"OMP_NUM_THREADS": "3"}).endswith("; 3 threads")
    assert hardware(replace(site, gpus=(Gpu("H200", 9.0),)), {}).startswith("H200 (9.0); ")


def test_the_first_fingerprint_of_a_key_stays(tmp_path: Path) -> None:
    store, one = FingerprintStore(open_folder(tmp_path / "new" / "fingerprints")), told()
    other = changed(one, 0, text="other")
    assert store.get("k") is None
    assert store.put("k", one) == one
    assert store.put("k", other) == one
    assert store.get("k") == one


def test_a_damaged_fingerprint_is_none(tmp_path: Path) -> None:
    (tmp_path / "k.json").write_bytes(b"[")
    store = FingerprintStore(open_folder(tmp_path))
    assert store.get("k") is None
    assert store.put("k", told()) == told()
    assert store.get("k") == told()


def test_a_fingerprint_with_a_flipped_bit_is_none_or_the_same(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    store = FingerprintStore(folder)
    store.put("k", told())
    whole = folder.read("k.json")
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (tmp_path / "k.json").write_bytes(damaged)
        assert store.get("k") in (None, told()), place


def test_answers_of_blanks_are_told_apart_by_their_tokens_and_log_probabilities() -> None:
    def of(probability: float, token: int = 7) -> Fingerprint:
        blank = Failure(ErrorKind.INFER_EMPTY, "blank")
        return fingerprint_of(
            Response(request.id, failure=blank, token_ids=(token,), logprobs=(probability,)) for _, request in probes()
        )

    assert differences(of(-1.0), of(-1.0)) == ""
    assert "log-probability 0 is -2, not -1" in differences(of(-1.0), of(-2.0))
    assert "token 0 is 8, not 7" in differences(of(-1.0), of(-1.0, 8))
    assert differences(of(float("nan")), of(float("nan"))) == ""
    assert "log-probability 0 is nan" in differences(of(-1.0), of(float("nan")))
