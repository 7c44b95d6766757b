"""Where steps end when optimizers take turns."""

from __future__ import annotations

from ampdoctor.record.boundaries import StepBoundaries


def _steps(order: str, alive: str = "") -> str:
    """Return `order` (one letter a step of an optimizer) with | where a step of the training ends."""
    boundaries, text = StepBoundaries(), ""
    for name in order:
        if boundaries.begins_anew(name):
            text += "|"
        text += name
        if boundaries.ends(name, set(alive or order)):
            text += "|"
    return text


def test_one_optimizer() -> None:
    assert _steps("aaa") == "a|a|a|"


def test_two_that_take_turns() -> None:
    assert _steps("ababab") == "ab|ab|ab|"


def test_one_that_steps_more_often_than_the_other() -> None:
    # WGAN: five steps of the critic for one of the generator. The second step of the critic shows that nothing else
    # belongs to a step; the generator's own step then counts with the critic's next.
    assert _steps("cccgcccg", alive="cg").replace("|", "") == "cccgcccg"
    assert _steps("cccgcccg", alive="cg").startswith("c|c|c|")


def test_one_that_lives_but_never_steps() -> None:
    # Nothing says so before the first one steps again; from then on it is known.
    assert _steps("aaa", alive="ax") == "a|a|a|"


def test_one_that_dies() -> None:
    boundaries = StepBoundaries()
    assert not boundaries.ends("a", {"a", "b"})
    assert boundaries.ends("b", {"a", "b"})
    assert boundaries.ends("a", {"a"})


def test_three_in_another_order_later() -> None:
    assert _steps("abcbca") == "abc|bca|"
