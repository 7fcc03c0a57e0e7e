from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from proctor.engines import EngineConfig, IterFeed
from proctor.engines.registry import make_engine
from proctor.engines.scripted import ScriptedEngine
from proctor.rows import ImagePart, Message, Request, Response, TextPart, UserError


def request(row: int) -> Request:
    prompt = (
        Message("system", (TextPart("Be brief."),)),
        Message("user", (ImagePart(), ImagePart(), TextPart("What is it?"))),
    )
    return Request(row, prompt, images=(b"a", b"b"))


def answers(rows: range, **options: Any) -> tuple[list[Response], int]:
    engine = make_engine(EngineConfig("scripted", batch_size=4, options=options))
    engine.check()
    engine.load()
    tokens: list[int] = []
    responses = list(engine.stream(IterFeed(map(request, rows)), tokens.append))
    engine.close()
    return responses, sum(tokens)


def test_every_row_gets_its_answer_in_order() -> None:
    responses, tokens = answers(range(10))
    assert responses == [Response(row, text=f"answer {row}", finish_reason="stop") for row in range(10)]
    assert tokens == 20


def test_an_answer_may_name_the_row_and_hold_braces() -> None:
    answer = '{"row": {row_id}, "images": {n_images}, "asked": "{prompt}"}'
    responses, _ = answers(range(2), answer=answer, answers={"1": "own {row_id}"})
    assert [response.text for response in responses] == [
        '{"row": 0, "images": 2, "asked": "Be brief.\nWhat is it?"}',
        "own 1",
    ]


def test_rows_take_their_time_one_after_another() -> None:
    began = time.monotonic()
    answers(range(5), row_ms=20)
    assert time.monotonic() - began >= 0.1


def test_loading_fails_as_often_as_it_was_told_to(tmp_path: Path) -> None:
    config = EngineConfig("scripted", options={"load_failures": 2}, fault_state=str(tmp_path / "state"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="planted fault: load"):
            ScriptedEngine(config).load()
    ScriptedEngine(config).load()
    assert len(list((tmp_path / "state").iterdir())) == 2


@pytest.mark.parametrize(
    "options", [{"rows_ms": 1}, {"row_ms": "1"}, {"answers": {"-1": "x"}}, {"answers": {"a": "x"}}]
)
def test_wrong_options_are_the_users_mistake(options: dict[str, object]) -> None:
    with pytest.raises(UserError):
        make_engine(EngineConfig("scripted", options=options)).check()


def test_registry_knows_only_its_kinds() -> None:
    with pytest.raises(UserError, match="there is no engine 'abacus'"):
        make_engine(EngineConfig("abacus"))
