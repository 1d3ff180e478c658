"""The core names no method, task or paper: those are registered, or live in a study."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import dubio
from dubio.core.registry import METHODS, TASKS

SOURCE = Path(dubio.__file__).parent

PLUGINS = ("tasks", "networks", "methods", "metrics", "studies", "testing", "training", "inference", "torch_module")
"""Packages where a task, network, method or paper has a file of its own that is named after it."""

WORDS = {
    "deep-ensemble": "the unit in which methods are measured: the deep-ensemble equivalent",
    "digits": "decimals of a number",
    "ensembles": "several fits that are pooled",
    "own": "the user's own data, or a local variable",
    "prior": "the class prior, or a distribution before any data",
    "quick": "an adjective",
    "text": "a modality, and any string",
}
"""Registered names and names of studies that are common words, and what they mean in the core."""

ALLOWED: dict[tuple[str, str], str] = {}
"""(file, name) → the reason why the name stays there."""


def patterns() -> dict[str, re.Pattern[str]]:
    """Return every registered name, and every name of a study, with the pattern that finds it in a text."""
    studies = [path.parent.name for path in SOURCE.glob("studies/*/benchmark.toml")]
    names = sorted({*METHODS.names(), *TASKS.names(), *studies} - WORDS.keys())
    return {name: re.compile(rf"(?<![a-z0-9]){re.sub('[-_]', '[-_ ]', name)}(?![a-z0-9])") for name in names}


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every identifier and of every string that is no docstring, in small letters."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        values = [getattr(node, field, None) for field in ("id", "arg", "attr", "name", "module")]
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            values.append(node.value)
        for value in values:
            if isinstance(value, str):
                yield getattr(node, "lineno", 0), re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", value).lower()


def named(path: Path, names: dict[str, re.Pattern[str]]) -> Iterator[tuple[str, int]]:
    for line, text in texts(ast.parse(path.read_text(encoding="utf-8"))):
        yield from ((name, line) for name, pattern in names.items() if pattern.search(text))


def test_the_scan_finds_names_in_identifiers_and_strings(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""About swag."""\nMcDropout = 1\nbreast_cancer = "SWAG, and a swagger"\n')
    assert sorted(named(path, patterns())) == [("breast-cancer", 3), ("mc-dropout", 2), ("swag", 3)]


def test_the_core_names_no_method_task_or_paper() -> None:
    names = patterns()
    places: dict[tuple[str, str], int] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE)
        if module.parts[0] not in PLUGINS:
            for name, line in named(path, names):
                places.setdefault((module.as_posix(), name), line)
    wrong = [f"{module}:{places[module, name]} names {name}" for module, name in places.keys() - ALLOWED.keys()]
    assert sorted(wrong) == []
    assert ALLOWED.keys() <= places.keys(), "an exception that is no longer needed"
