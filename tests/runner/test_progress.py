"""What a run says of where it is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dubio.runner import progress
from dubio.runner.plan import Node
from dubio.runner.progress import LiveProgress, LogProgress, SilentProgress, duration


def node(identifier: str, kind: str = "fit") -> Node:
    return Node(identifier, kind, {}, (), None, "plain", f"toy/net: {identifier}")  # type: ignore[arg-type]


@pytest.mark.parametrize(("seconds", "words"), [(3.4, "3 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")])
def test_spoken(seconds, words):
    assert duration(seconds) == words


def test_the_clock_goes_by_the_estimate_first_and_then_by_experience(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    clock = SilentProgress({"small": 10.0, "half": 20.0, "large": 70.0})
    clock.begin(3, 0, 80.0, 2)
    assert clock.remaining_seconds() is None
    now[0] += 2
    assert clock.remaining_seconds() == 40.0
    # a quarter of the work has taken 30 s, so three quarters take 90
    now[0] += 28
    clock.end(node("small"), "done", "")
    clock.update(node("half"), 0.5, "")
    assert clock.remaining_seconds() == pytest.approx(90.0)
    clock.end(node("half"), "done", "")
    clock.end(node("large"), "done", "")
    assert clock.remaining_seconds() == 0.0


def test_a_log_has_a_line_for_every_training_every_prediction_and_every_failure():
    sink = io.StringIO()
    log = LogProgress({"a": 1.0}, sink)
    log.begin(3, 2, 1.0, 1)
    for identifier, kind, state, words in (
        ("a", "fit", "done", ""), ("b", "predict", "done", ""), ("e", "ensemble", "done", ""),
        ("c", "predict", "failed", "no luck"),
    ):  # fmt: skip
        log.start(node(identifier, kind))
        log.update(node(identifier, kind), 0.5, "half")
        log.end(node(identifier, kind), state, words)  # type: ignore[arg-type]
    log.close()
    lines = [line.partition(" ")[2] for line in sink.getvalue().splitlines()]
    assert lines == [
        "3 to make, 2 already in the store, 1 job",
        "done in 0 s: fit of toy/net: a (1/3)",
        "done in 0 s: predict of toy/net: b (2/3)",
        "failed: predict of toy/net: c: no luck",
    ]


def test_the_live_display_shows_what_is_running_and_ends_clean():
    sink = io.StringIO()
    live = LiveProgress({"a": 1.0}, Console(file=sink, force_terminal=True, width=100))
    live.begin(2, 0, 2.0, 1)
    live.start(node("a [1]"))
    live.update(node("a [1]"), 0.5, "epoch 3")
    live._live.refresh()
    live.end(node("a [1]"), "failed", "the loss is [nan]")  # type: ignore[arg-type]
    live.close()
    shown = sink.getvalue()
    assert "training" in shown
    assert "toy/net: a [1]" in shown
    assert "epoch 3" in shown
    assert "the loss is [nan]" in shown  # brackets are not taken for markup
    assert "\x1b[?25h" in shown  # the cursor is back
