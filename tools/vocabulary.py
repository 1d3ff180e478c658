"""Check that names and sentences use the field's words: ``python tools/vocabulary.py [PATH …]``, run by ``make lint``.

One concept has one word (docs/concepts.md has the glossary). Identifiers are checked word by word, string literals and
documentation by phrase. A variable is named by its noun: filler words such as ``found`` or ``made`` say nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# fmt: off
FILLERS = frozenset((
    "found", "made", "told", "known", "given", "each", "place", "part", "seen", "said", "kept", "taken",
    "asked", "meant", "held", "left", "rest", "whole", "wanted", "spoken", "done", "drawn", "stood",
    "standing", "words", "sort", "thing", "things", "kin", "fate", "worth", "look", "looks", "plate",
))
# fmt: on
"""Names that no variable has: participles and placeholders instead of the noun."""

ALLOWED = {
    ("src/dubio/encoders/text.py", "words"): "a field of a stored encoder, and the words of its vocabulary",
    ("src/dubio/inference/augmentation.py", "each"): "a field that is part of identities",
    ("src/dubio/referral/policy.py", "seen"): "a key of policy files",
    ("src/dubio/reporting/build.py", "part"): "a part of the page: its opening, a task, or its closing",
    ("src/dubio/reporting/section.py", "part"): "a part of the page: its opening, a task, or its closing",
    ("src/dubio/reporting/tables.py", "place"): "the place of a method in a ranking",
    ("src/dubio/runner/costs.py", "asked"): "a key of `dubio run --dry-run --json`",
    ("src/dubio/statistics/verdicts.py", "place"): "a key of a report's JSON document",
    ("src/dubio/tasks/fundus/cache.py", "sort"): "a key of the cache of prepared photographs",
    ("src/dubio/tasks/fundus/cache.py", "words"): "a key of the cache of prepared photographs",
    ("src/dubio/tasks/sources/catalogue.toml", "plate"): "a class of CIFAR-100",
    ("src/dubio/training/schedules.py", "whole"): "a field that is part of identities",
}
"""(file, word) → the reason why the word stays there."""

REPLACED = {
    "away": "shifted or ood",
    "dearer": "more expensive",
    "elsewhere": "shifted or ood",
    "exhibit": "figure",
    "fate": "outcome of a policy",
    "fates": "outcomes of policies",
    "foreign": "ood",
    "hands": "executor",
    "hills": "density curves",
    "home": "in_domain",
    "kin": "variance_group",
    "mended": "corrected",
    "plate": "figure",
    "plates": "figures",
    "promise": "guarantee",
    "promised": "guaranteed",
    "promises": "guarantees",
    "room": "package, or what it holds",
    "rooms": "packages",
    "spoilt": "corrupted",
    "strange": "ood",
    "surer": "overconfident",
    "told": "the noun",
    "wishes": "options",
    "worth": "ensemble_equivalent",
    "worths": "ensemble_equivalents",
}
"""Words of identifiers and what stands in their place."""

PHRASES = {
    r"told (apart|from)|(can|cannot|could|to) be told\b": "(not) significantly different",
    r"(away from|at) home\b": "in-domain; under shift",
    r"\b(foreign|strange) (example|image|input|row|set|split|text)s?\b": "out-of-distribution",
    r"\belsewhere\b": "under distribution shift",
    r"\bspoilt\b": "corrupted",
    r"\bmended\b": "corrected",
    r"\bworths?\b": "deep-ensemble equivalent",
    r"\b(so|as) many\b": "the number of",
    r"\bfates?\b": "what became of a policy: met, violated",
    r"\bkin\b": "variance group",
    r"\bplates?\b": "figure",
    r"\bpromis(e|es|ed|ing)\b": "guarantee",
    r"\bsurer\b": "overconfident",
    r"\bdearer\b": "more expensive",
    r"\bhills\b": "density curves",
    r"\brooms?\b": "package, module, memory",
    r"\bhands\b": "executor",
    r"\bwishes\b": "options",
}
"""Phrases of strings, docstrings, comments and documentation, and what to say instead."""

_PHRASES = [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in PHRASES.items()]
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

Problem = tuple[int, str, str]
"""A line, the word on it, and what is wrong with it."""


def python_problems(path: Path) -> Iterator[Problem]:
    """Yield the problems with the names, docstrings and strings of a Python file."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        for name in _names(node):
            line = getattr(node, "lineno", 1)
            if name in FILLERS and isinstance(node, ast.Name | ast.arg):
                yield line, name, f"variable {name!r}: name it by its noun"
            for word in map(str.lower, _WORD.findall(name)):
                if word in REPLACED:
                    yield line, word, f"name {name!r}: {word!r} is {REPLACED[word]}"
        if isinstance(node, _DOCUMENTED) and (ast.get_docstring(node) or "").startswith("What "):
            yield getattr(node, "lineno", 1), "What", "a docstring begins with a verb, not with 'What'"
    yield from prose_problems(text)


def prose_problems(text: str) -> Iterator[Problem]:
    """Yield the problems with the phrases of a text."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, advice in _PHRASES:
            match = pattern.search(line)
            if match:
                yield number, match.group(0), f"{match.group(0)!r}: say {advice}"


def problems(path: Path) -> Iterator[Problem]:
    """Yield the problems of a file, those allowed there excepted."""
    name = _relative(path)
    every = python_problems(path) if path.suffix == ".py" else prose_problems(path.read_text(encoding="utf-8"))
    yield from (problem for problem in every if (name, problem[1]) not in ALLOWED)


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def _names(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return (node.id,)
    if isinstance(node, ast.arg):
        return (node.arg,)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (node.name,)
    return ()


def files(arguments: list[str]) -> Iterator[Path]:
    """Yield the files to check: those named, or everything that users and contributors read."""
    if arguments:
        yield from (Path(argument).resolve() for argument in arguments)
        return
    patterns = {"src": ("*.py", "*.toml", "*.j2", "*.js"), "docs": ("*.md", "*.py")}
    paths = [path for folder, names in patterns.items() for name in names for path in (ROOT / folder).rglob(name)]
    yield from (*sorted(paths), ROOT / "README.md", ROOT / "CONTRIBUTING.md")


def main(arguments: list[str]) -> int:
    """Print every problem with its file and line; return the exit code."""
    count = 0
    for path in files(arguments):
        for line, _, problem in problems(path):
            count += 1
            print(f"{_relative(path)}:{line}: {problem}")
    if count:
        print(f"{count} problems; docs/concepts.md has the vocabulary.")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
