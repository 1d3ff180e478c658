"""The campaign against the server, small; and that its own check of the log can fail."""

from __future__ import annotations

import hashlib
import json

import pytest
from campaigns.serving import Tally, campaign, check_log


@pytest.mark.slow
def test_no_answer_is_lost_and_none_counts_twice_under_kills(tmp_path):
    tally = campaign(tmp_path, decisions=200, kills=3, clients=4, seed=1)
    assert tally.problems == []
    assert (len(tally.answers), tally.kills) == (200, 3)


def test_the_check_of_the_log_finds_what_is_lost_doubled_or_changed(tmp_path):
    def write(*frames):
        previous, lines = "0" * 32, []
        for frame in frames:
            payload = json.dumps(frame)
            previous = hashlib.sha256((previous + payload).encode()).hexdigest()[:32]
            lines.append(f"{previous} {payload}\n")
        (tmp_path / "log").write_text("".join(lines))
        return tmp_path / "log"

    def decision(name, answer):
        return {"entry": "decision", "id": name, "decision": {"id": name, "answer": answer}}

    tally = Tally(answers={"a": {"id": "a", "answer": 1}}, labels={"a": "x"})
    label = {"entry": "label", "id": "a", "label": "x"}
    assert check_log(write([decision("a", 1)], [label]), tally) == []
    assert check_log(write([label]), tally) == ["a was answered and is not in the log"]
    assert check_log(write([decision("a", 1)]), tally) == ["the label of a is None"]
    assert check_log(write([decision("a", 1), label, decision("a", 1)]), tally) == ["a is in the log 2 times"]
    assert check_log(write([decision("a", 2), label]), tally) == ["a was answered otherwise, or never"]
    path = write([decision("a", 1)], [label])
    path.write_text(path.read_text().replace('"entry"', '"entrY"', 1))
    assert "line 0 has a wrong checksum" in check_log(path, tally)
