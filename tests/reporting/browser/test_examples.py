"""The examples in a browser: every control and its effect, thresholds of the page, and texts that try to be more."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from dubio.runner.examples import thumbnail

HOSTILE = "<b>bold</b></script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>{{7*7}}"
LONG = "z" * 10_000
RIGHT_TO_LEFT = "\u202eevil \u05e9\u05dc\u05d5\u05dd"

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>examples</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<style>:root { --ink: #1d2026; --muted: #565c66; --rule: #d8dbe0; --paper: #fff; --accent: #0b5cad; --good: #1b7a3d;
--bad: #b3261e; }
body { font: 16px/1.5 sans-serif; color: var(--ink); margin: 1rem; } %(css)s</style></head><body><main id="root"></main>
<script type="application/json" id="data">%(data)s</script>
<script>
const widgets = {};
%(js)s
const listeners = [];
const page = {
  state: { task: "t", split: "test", metric: "", hidden: new Set(), method: "" },
  methods: { one: { title: "Method one", colour: "#000" }, two: { title: "<i>Two</i>", colour: "#00f" } },
  limit: null,
  thresholdListeners: [],
  subscribe(listener) { listeners.push(listener); },
  set(changes) { Object.assign(page.state, changes); listeners.forEach((listener) => listener()); },
  h(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  },
  threshold(task, method) { return task === "t" ? page.limit : null; },
};
widgets.examples(page, document.getElementById("root"), JSON.parse(document.getElementById("data").textContent));
</script></body></html>"""


def item(row: int, split: int, label: int, answers: list[int], doubts: list[float], **more: Any) -> dict[str, Any]:
    confidence = [round(1 - doubt, 4) for doubt in doubts]
    uncertainty = [[doubt, round(2 * doubt, 4) if k else None] for k, doubt in enumerate(doubts)]
    facts = {"row": row, "split": split, "label": label, "kind": "text", "text": f"text {row}", "tags": {}}
    return facts | {"answers": answers, "confidence": confidence, "uncertainty": uncertainty} | more


def data_of() -> dict[str, Any]:
    """Rows 0–29 in-domain, of which every third is wrong under the first method; three OOD ones; hostile ones."""
    items = [
        item(
            row, 0, 0, [int(row % 3 == 0), int(row % 5 == 0)], [round(0.01 * (row + 1), 4), round(0.3 - 0.01 * row, 4)]
        )
        for row in range(30)
    ]
    image = thumbnail(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8))
    source = f"data:image/png;base64,{b64encode(image).decode()}"
    items += [
        item(30, 1, -1, [0, 1], [0.2, 0.1], ood=True, text=HOSTILE, id=HOSTILE, tags={"most certain OOD": [1]}),
        item(31, 1, -1, [0, 1], [0.1, 0.2], ood=True, text=LONG),
        item(32, 1, -1, [1, 1], [0.3, 0.3], ood=True, text=RIGHT_TO_LEFT),
        item(33, 1, -1, [1, 1], [0.4, 0.4], ood=True, kind="image", image=source) | {"text": None},
        item(34, 1, -1, [1, 1], [0.5, 0.5], ood=True, kind="cells", cells=[["age", "42"], [HOSTILE, "</script>"]]),
    ]
    return {
        "version": 1, "task": "t", "classes": ["cat", "<u>dog</u>"], "methods": ["one", "two"], "best": "one",
        "quantities": [{"name": "confidence", "title": "1 − confidence"}, {"name": "entropy", "title": "entropy"}],
        "tagged_by": "confidence", "items": items,
        "splits": [{"name": "test", "kind": "id", "examples": 5000}, {"name": "new", "kind": "ood", "examples": 70}],
    }  # fmt: skip


class Examples:
    """The widget on a page of its own, by what a reader sees of it."""

    def __init__(self, tab: Any) -> None:
        self.tab = tab

    def choose(self, label: str, option: str) -> None:
        self.tab.get_by_label(label, exact=True).select_option(label=option)

    def rows(self) -> list[str]:
        return self.tab.locator(".examples-card h5").all_text_contents()

    def status(self) -> str:
        return self.tab.get_by_role("status").text_content()

    def set(self, changes: str) -> None:
        self.tab.evaluate(changes)


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Examples]]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    problems: list[str] = []
    context.route("**", lambda route: (problems.append(route.request.url), route.abort()))

    def show(data: dict[str, Any] | None = None) -> Examples:
        tab = context.new_page()
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        folder = files("dubio.reporting") / "templates" / "page"
        texts = {kind: (folder / f"examples.{kind}").read_text(encoding="utf-8") for kind in ("js", "css")}
        document = json.dumps(data_of() if data is None else data).replace("<", "\\u003c")
        tab.set_content(PAGE % {**texts, "data": document})
        return Examples(tab)

    yield show
    broken = [tab.evaluate("window.broken") for tab in context.pages]
    context.close()
    assert problems == []
    assert not any(broken)


def names(*rows: int) -> list[str]:
    return [f"row {row}" for row in rows]


WRONG = tuple(range(0, 30, 3))
CORRECT = tuple(row for row in range(30) if row % 3)


def test_what_is_shown_first_are_the_confident_errors_of_the_best_method(opened) -> None:
    examples = opened()
    assert examples.rows() == names(*WRONG)
    assert examples.status() == "10 of 30 examples; the test set has 5000."


def test_every_kind_is_filtered_and_ordered_by_doubt(opened) -> None:
    examples = opened()
    for kind, rows in {
        "Uncertain and incorrect": WRONG[::-1],
        "Confident and correct": CORRECT[:12],
        "Uncertain and correct": CORRECT[::-1][:12],
        "All examples": tuple(range(29, 17, -1)),
    }.items():
        examples.choose("Show", kind)
        assert examples.rows() == names(*rows)
    examples.choose("Order", "most certain first")
    assert examples.rows() == names(*range(12))
    examples.choose("Show", "Most certain OOD or shifted")
    assert examples.rows() == []
    examples.choose("Test set", "new")
    assert examples.rows() == ["row 31", HOSTILE, *names(32, 33, 34)]
    assert examples.tab.evaluate("page.state.split") == "new"


def test_two_methods_are_compared_where_they_disagree(opened) -> None:
    examples = opened()
    examples.choose("Show", "Two methods disagree")
    expected = [row for row in range(30) if (row % 3 == 0) != (row % 5 == 0)]
    assert examples.rows() == names(*expected[:12])
    cells = examples.tab.locator(".examples-card").first.locator(".examples-figures tr").all_text_contents()
    assert cells[:3] == ["Method one<i>Two</i>", "Answer<u>dog</u>cat", "Confidence96.0 %73.0 %"]
    assert cells[3:] == ["entropy–0.54"]  # 1 − confidence would repeat the line above


def test_a_method_is_chosen_here_or_on_the_page_and_hidden_ones_are_gone(opened) -> None:
    examples = opened()
    examples.choose("Method", "<i>Two</i>")
    assert examples.tab.evaluate("page.state.method") == "<i>Two</i>"
    assert examples.rows() == names(*range(25, -1, -5))
    examples.choose("Sort by", "entropy")
    assert examples.rows() == names(*range(25, -1, -5))
    examples.set("page.set({ method: 'Method one' })")
    assert examples.rows() == names(*WRONG)
    examples.set("page.set({ hidden: new Set(['Method one']) })")
    assert examples.rows() == names(*range(25, -1, -5))
    assert examples.tab.get_by_label("Method", exact=True).locator("option").all_text_contents() == ["<i>Two</i>"]


def test_retained_and_referred_follow_the_threshold_of_the_page(opened) -> None:
    examples = opened()
    assert examples.tab.locator(".examples-retained, .examples-referred").count() == 0
    examples.set("page.limit = { quantity: 'confidence', value: 0.130004 }; page.set({})")
    badges = examples.tab.locator(".examples-retained, .examples-referred").all_text_contents()
    assert badges == ["retained" if row <= 12 else "referred" for row in WRONG]  # row 12 is exactly at the threshold
    examples.choose("Show", "At the border of referral")
    assert examples.rows()[:3] == names(12, 11, 13)
    examples.set("page.limit = null; page.set({})")
    assert examples.rows() == []
    assert "no threshold" in examples.status()


def test_search_looks_at_texts_ids_columns_and_classes(opened) -> None:
    examples = opened()
    examples.choose("Show", "All examples")
    search = examples.tab.get_by_label("Search", exact=True)
    for text, rows in {"TEXT 7": names(7), "<U>dog": names(*WRONG[::-1]), "nothing": []}.items():
        search.fill(text)
        assert examples.rows() == rows
    examples.choose("Test set", "new")
    search.fill("onerror")
    assert examples.rows() == ["row 34", HOSTILE]
    search.fill("42")
    assert examples.rows() == names(34)


def test_more_are_shown_by_keyboard_and_focus_moves_to_the_first_of_them(opened) -> None:
    examples = opened()
    examples.choose("Show", "All examples")
    more = examples.tab.get_by_role("button")
    assert more.text_content() == "Show more (18)"
    more.focus()
    examples.tab.keyboard.press("Enter")
    assert len(examples.rows()) == 24
    assert examples.tab.evaluate("document.activeElement.querySelector('h5').textContent") == "row 17"
    more.click()
    assert len(examples.rows()) == 30
    assert not more.is_visible()
    examples.choose("Show", "Confident and incorrect")
    assert len(examples.rows()) == 10


def test_hostile_texts_stay_text_and_stay_in_their_card(opened) -> None:
    examples = opened()
    examples.choose("Test set", "new")
    examples.choose("Show", "All examples")
    tab = examples.tab
    assert set(tab.locator(".examples-text").all_text_contents()) == {HOSTILE, LONG, RIGHT_TO_LEFT}
    assert tab.locator("main b").all_text_contents() == ["none of the classes, or unknown"] * 5
    assert tab.locator("main :is(i, u, script)").count() == 0
    assert tab.locator("main img").evaluate_all("all => all.map((one) => one.naturalWidth)") == [8]
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1280
    tab.set_viewport_size({"width": 400, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400


def test_every_control_has_a_label(opened) -> None:
    examples = opened()
    unlabelled = "all => all.filter((one) => one.labels.length !== 1 || !one.labels[0].textContent).length"
    assert examples.tab.locator("select, input").count() == 7
    assert examples.tab.locator("select, input").evaluate_all(unlabelled) == 0


def test_a_task_with_one_method_and_no_labels_is_shown(opened) -> None:
    data = data_of()
    data["methods"], data["splits"] = ["one"], [{"name": "s", "kind": "ood", "examples": 1}]
    lone = item(0, 0, -1, [0], [0.5])
    data["items"] = [{**lone, "label": [0, 1], "answers": [[0, 1]]}, {**lone, "row": 1, "label": [0], "answers": [[]]}]
    examples = opened(data)
    assert examples.rows() == names(1)
    examples.choose("Show", "Two methods disagree")
    assert examples.rows() == []
    examples.choose("Show", "Confident and correct")
    assert examples.rows() == names(0)
