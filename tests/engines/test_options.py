from __future__ import annotations

import pytest

from proctor.engines.options import check_options
from proctor.rows import UserError

KNOWN = ["enforce_eager", "gpu_memory_utilization", "seed"]


def test_known_options_pass():
    assert check_options({"seed": 1, "enforce_eager": True}, KNOWN, engine="vLLM 1") is None


def test_a_typo_is_answered_with_the_nearest_name():
    with pytest.raises(
        UserError, match=r"engine.options: vLLM 1 has no option `enforce_eagr` \(did you mean `enforce_e"
    ):
        check_options({"enforce_eagr": True}, KNOWN, engine="vLLM 1")


def test_something_else_is_answered_with_the_list():
    with pytest.raises(UserError, match="it takes enforce_eager, gpu_memory_utilization, seed"):
        check_options({"zzz": True}, KNOWN, engine="vLLM 1")


def test_a_long_list_is_not_shown():
    with pytest.raises(UserError, match="it takes 30 options, none of them near"):
        check_options({"zzz": True}, [f"option_{number}" for number in range(30)], engine="vLLM 1")


def test_an_option_with_a_key_of_its_own_names_that_key():
    with pytest.raises(UserError, match=r"`dtype` cannot be set here \(set engine.dtype instead\)"):
        check_options({"dtype": "float32"}, [*KNOWN, "dtype"], engine="vLLM 1", reserved={"dtype": "engine.dtype"})
