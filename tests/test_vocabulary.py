"""The vocabulary check finds planted problems and accepts clean files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import vocabulary


def check(tmp_path: Path, text: str, name: str = "module.py") -> list[tuple[int, str]]:
    """Return (line, word) of every problem of a file with this text."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [(line, word) for line, word, _ in vocabulary.problems(path)]


def test_a_clean_file_passes(tmp_path: Path) -> None:
    assert check(tmp_path, '"""Return the scores of a split."""\n\nscores = [0.5]\n') == []
    assert vocabulary.main([str(tmp_path / "module.py")]) == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("found = 1\n", (1, "found")),
        ("def score(given: int) -> int:\n    return given\n", (1, "given")),
        ("class HomeScores:\n    pass\n", (1, "home")),
        ('x = 1\nmessage = "two methods told apart"\n', (2, "told apart")),
        ("# a foreign image\n", (1, "foreign image")),
        ('def score() -> int:\n    """What a row scores."""\n    return 1\n', (1, "What")),
    ],
)
def test_a_planted_problem_is_reported_with_its_line(tmp_path: Path, text: str, problem: tuple[int, str]) -> None:
    assert problem in check(tmp_path, text)
    assert vocabulary.main([str(tmp_path / "module.py")]) == 1


def test_documentation_is_checked_by_phrase_only(tmp_path: Path) -> None:
    assert check(tmp_path, "What was found.\n\nA promise.\n", "page.md") == [(3, "promise")]


def test_every_exception_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    exceptions = list(vocabulary.ALLOWED)
    monkeypatch.setattr(vocabulary, "ALLOWED", {})
    for name, word in exceptions:
        assert word in {problem[1] for problem in vocabulary.problems(vocabulary.ROOT / name)}, (name, word)
