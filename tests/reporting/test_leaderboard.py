"""Places of methods in words."""

from __future__ import annotations

from dubio.reporting.leaderboard import verdict_phrase
from dubio.statistics.verdicts import Verdict


def test_a_difference_and_what_would_be_resolved_are_not_the_same_number() -> None:
    tied, worse = Verdict("tied", 0.00368, 0.00374), Verdict("behind", -0.00374, 0.00368)
    assert verdict_phrase(tied).startswith("not significantly different: difference 0.00368")
    assert verdict_phrase(tied).endswith("0.00374")
    assert verdict_phrase(worse).startswith("significantly different: difference 0.00374")
    assert verdict_phrase(worse).endswith("0.00368")
