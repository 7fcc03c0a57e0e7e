from __future__ import annotations

import threading

import pytest

from proctor.fleet.limited import Limited


def test_a_call_that_hangs_is_left_to_itself_and_not_too_many_are() -> None:
    limited, over = Limited("test", most=2), threading.Event()
    assert limited.call(lambda: 3, 60) == 3
    with pytest.raises(KeyError, match="its own"):
        limited.call(lambda: {}["its own"], 60)
    for _ in range(2):
        with pytest.raises(TimeoutError, match=r"no reply within 0\.01 s"):
            limited.call(over.wait, 0.01)
    with pytest.raises(TimeoutError, match="2 earlier tries still hang"):
        limited.call(lambda: 3, 60)
    over.set()
    for thread in limited._left:
        thread.join(60)
    assert limited.call(lambda: None, 60) is None
