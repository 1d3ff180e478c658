"""The mutants themselves: each operator changes meaning, text stays, and a killed mutant is told from a survivor."""

from __future__ import annotations

import ast
import gc
import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from campaigns.mutants import NOT_CHANGED, _tried, draw_nothing, exchange_code, forget_results, functions_of, in_child
from campaigns.mutations import Mutation, mutations

from dubio.reporting.charts import save

SOURCE = '''
"""Text: 1 + 1."""
from functools import lru_cache
from weakref import WeakKeyDictionary

LIMIT = 3
REMEMBERED = WeakKeyDictionary()

def clamp(value: int = 0, *, high: int = 5) -> int:
    """Return at most 5."""
    if value < 0:
        raise ValueError(f"{value} is below {0}")
    return min(value, high)

class Box:
    size = 2

    def scale(self, by):
        def inner(number):
            return number * by
        return inner(self.size)

@lru_cache
def cached(x):
    return x + LIMIT
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "toy.py"
    path.write_text(SOURCE)
    return path


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("toy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["toy"] = module
    spec.loader.exec_module(module)
    return module


def changes(path: Path) -> dict[tuple[str, str, str], Mutation]:
    return {(m.function, m.before, m.after): m for m in mutations(path)[1]}


def test_every_operator_appears_and_no_text_is_changed(source: Path) -> None:
    assert set(changes(source)) == {
        ("", "3", "4"), ("", "0", "1"), ("", "5", "6"), ("", "2", "3"),
        ("clamp", "value < 0", "value <= 0"), ("clamp", "0", "1"), ("clamp", "min", "max"),
        ("clamp", "raise ValueError(f'{value} is below {0}')", "pass"),
        ("Box.scale", "number * by", "number / by"), ("cached", "x + LIMIT", "x - LIMIT"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "call", "expected"),
    [
        (("clamp", "min", "max"), lambda toy: toy.clamp(2), 5),
        (("Box.scale", "number * by", "number / by"), lambda toy: toy.Box().scale(4), 0.5),
        (("cached", "x + LIMIT", "x - LIMIT"), lambda toy: toy.cached(7), 4),
    ],
)
def test_changed_code_reaches_functions_that_exist_already(source: Path, change, call, expected) -> None:
    toy = load(source)
    held = toy.clamp, toy.Box, toy.cached
    tree, mutants = mutations(source)
    mutation = next(m for m in mutants if (m.function, m.before, m.after) == change)
    with mutation.applied():
        module = compile(tree, str(source), "exec")
    functions = [toy.clamp, toy.Box.scale, toy.cached.__wrapped__]
    assert exchange_code(module, functions) == 3
    assert call(toy) == expected
    assert held == (toy.clamp, toy.Box, toy.cached)


def test_functions_that_the_collector_no_longer_sees_are_exchanged_too(source: Path) -> None:
    toy = load(source)
    gc.freeze()
    assert {function.__name__ for function in functions_of({str(source)})} == {"clamp", "scale", "cached"}
    assert toy.clamp(7) == 5


def test_what_the_unchanged_code_has_answered_is_forgotten(source: Path) -> None:
    toy = load(source)
    toy.REMEMBERED[toy.Box] = toy.cached(1)
    forget_results({str(source)})
    assert (len(toy.REMEMBERED), toy.cached.cache_info().currsize) == (0, 0)


def test_a_process_that_fails_is_no_result(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Failing:
        def outcome(self, mutation: Mutation, importer: object) -> str:
            raise RuntimeError("nothing was changed")

    with pytest.raises(RuntimeError, match="failed"):
        list(_tried(mutations(source)[1], Failing(), [object()]))  # type: ignore[arg-type, list-item]
    assert "nothing was changed" in capfd.readouterr().err


def test_a_tree_is_as_before_once_a_mutation_has_been_applied(source: Path) -> None:
    tree, mutants = mutations(source)
    before = ast.dump(tree)
    for mutation in mutants:
        with mutation.applied():
            assert ast.dump(tree) != before
        assert ast.dump(tree) == before


def test_outcomes_are_told_apart() -> None:
    assert in_child(lambda: 0, 30) == "survived"
    assert in_child(lambda: 1, 30) == "killed"
    assert in_child(lambda: 1 // 0, 30) == "killed"
    assert in_child(lambda: time.sleep(60) or 0, 0.2) == "hangs"
    with pytest.raises(RuntimeError, match="changes nothing"):
        in_child(lambda: NOT_CHANGED, 30)


def test_charts_are_empty_for_the_threads_that_draw_do_not_outlive_a_fork(monkeypatch):
    drawing = pytest.importorskip("vl_convert")
    monkeypatch.setattr(drawing, "vegalite_to_svg", drawing.vegalite_to_svg)  # restored afterwards
    draw_nothing()
    assert save({"mark": "point", "data": {"values": []}}, "svg") == b"<svg></svg>"
