"""What a report needs is loaded early, and a failure of it is left to the report."""

from __future__ import annotations

import pytest

from dubio.reporting import reported


def test_the_first_picture_is_one() -> None:
    assert reported.first_picture().startswith(b"<svg")


def test_everything_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    for name in ("code_digest", "registered_sections", "first_picture"):
        monkeypatch.setattr(reported, name, lambda name=name: called.append(name))
    steps = reported.get_ready()
    next(steps)
    assert called == ["code_digest"]  # between two steps it can be left
    for _ in steps:
        pass
    assert called == ["code_digest", "registered_sections", "first_picture"]


def test_a_failure_is_left_to_the_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(reported, "code_digest", lambda: 1 / 0)
    assert list(reported.get_ready()) == []
    assert capsys.readouterr() == ("", "")
