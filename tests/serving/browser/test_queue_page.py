"""The queue as an expert works through it: keys, undo, progress, texts, tables, images, and hostile content."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.serving.browser.conftest import picture

TEXTS = [{"text": text} for text in ("The plot is thin, and I loved it.", "Two hours that I want back.", "Fine.")]
CLASSES = ("negative", "positive")


def state(address: str, **headers: str) -> dict[str, Any]:
    return httpx.get(f"{address}/queue?limit=200", headers=headers).json()


def waiting(address: str) -> list[str]:
    return [row["decision"]["id"] for row in state(address)["rows"]]


def shown(tab: Any, name: str) -> None:
    tab.wait_for_function("name => document.getElementById('name').textContent === name", arg=name)


def test_an_expert_labels_skips_and_takes_back_by_keys_alone(serving, open_queue):
    address = serving("text", ("text",), CLASSES, *TEXTS)
    tab = open_queue(address)
    shown(tab, "row-0")  # the most uncertain
    assert tab.locator("#row").inner_text().strip() == TEXTS[0]["text"]
    assert tab.locator("#count").inner_text() == "0 of 3 labelled, 3 waiting"
    tab.keyboard.press("2")
    shown(tab, "row-1")
    assert waiting(address) == ["row-1", "row-2"]
    assert tab.locator("#count").inner_text() == "1 of 3 labelled, 2 waiting"
    assert tab.locator("#bar").get_attribute("value") == "1"
    tab.keyboard.press("s")
    shown(tab, "row-2")
    tab.keyboard.press("b")
    shown(tab, "row-1")
    tab.keyboard.press("u")
    shown(tab, "row-0")
    assert waiting(address) == ["row-0", "row-1", "row-2"]
    for name in ("row-1", "row-2"):
        tab.keyboard.press("1")
        shown(tab, name)
    tab.keyboard.press("2")
    tab.wait_for_selector("#empty:visible")
    assert waiting(address) == []
    assert tab.locator("#status").inner_text() == "row-2: positive."
    tab.keyboard.press("u")
    shown(tab, "row-2")
    assert waiting(address) == ["row-2"]


def test_everything_is_reached_by_tab_and_buttons_do_the_same(serving, open_queue):
    tab = open_queue(serving("text", ("text",), CLASSES, *TEXTS))
    shown(tab, "row-0")
    names = []
    for _ in range(4):
        tab.keyboard.press("Tab")
        names.append(tab.evaluate("document.activeElement.textContent.trim()"))
    assert names[:3] == ["1negative", "2positive", "s Skip"]
    tab.locator("#classes button").nth(1).click()
    shown(tab, "row-1")
    tab.locator("#undo").click()
    shown(tab, "row-0")


def test_a_row_that_another_expert_labelled_is_passed_over(serving, open_queue):
    address = serving("text", ("text",), CLASSES, *TEXTS)
    tab = open_queue(address)
    shown(tab, "row-0")
    assert httpx.post(f"{address}/label", json={"id": "row-0", "label": "negative"}).status_code == 200
    tab.keyboard.press("2")
    shown(tab, "row-1")
    assert "row-0" not in waiting(address)
    assert not tab.locator("#undo").is_enabled()


def test_new_rows_appear_by_themselves(serving, open_queue):
    address = serving("text", ("text",), CLASSES, TEXTS[0])
    tab = open_queue(address)
    shown(tab, "row-0")
    tab.keyboard.press("1")
    tab.wait_for_selector("#empty:visible")
    httpx.post(f"{address}/decide", json={"rows": [{"id": "late", "row": TEXTS[1]}]})
    shown(tab, "late")


def test_tables_and_images_are_shown(serving, open_queue):
    tab = open_queue(serving("table", ("age", "site"), CLASSES, {"age": 61.5, "site": None}))
    shown(tab, "row-0")
    assert tab.locator("#row tbody tr").all_inner_texts() == ["age\t61.5", "site\tmissing"]
    tab = open_queue(serving("image", ("image",), CLASSES, {"image": picture(0)}))
    shown(tab, "row-0")
    image = tab.locator("#row img")
    image.wait_for()
    assert image.evaluate("one => [one.naturalWidth, one.naturalHeight]") == [24, 24]
    assert image.get_attribute("alt") == "Image of image"


def test_an_image_beside_probabilities_is_shown_too(probabilities, open_queue):
    row = {"id": "a", "probabilities": {"ham": 0.5, "spam": 0.5}, "row": {"scan": picture(9), "code": "iVBOR"}}
    assert httpx.post(f"{probabilities}/decide", json={"rows": [row]}).status_code == 200
    tab = open_queue(probabilities)
    shown(tab, "a")
    assert tab.locator("#row img").evaluate("one => one.naturalWidth") == 24
    assert tab.locator("#row tbody tr").all_inner_texts() == ["code\tiVBOR"]


HOSTILE = "</script><img src=x onerror=alert(1)><b>\u202e{{7*7}}"


def test_what_clients_send_stays_text(probabilities, open_queue):
    row = {"id": HOSTILE, "probabilities": {"ham": 0.5, "spam": 0.5}, "row": {HOSTILE: HOSTILE, "note": "x" * 5000}}
    assert httpx.post(f"{probabilities}/decide", json={"rows": [row]}).status_code == 200
    tab = open_queue(probabilities, viewport={"width": 400, "height": 800})
    shown(tab, HOSTILE)
    assert HOSTILE in tab.locator("#row").text_content()
    assert tab.locator("#work img, #work b, #work script").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
    tab.keyboard.press("1")
    tab.wait_for_selector("#empty:visible")


def test_many_classes_have_keys_and_a_filter(serving, open_queue):
    classes = tuple(f"class {index:02d}" for index in range(60))
    address = serving("text", ("text",), classes, *TEXTS)
    tab = open_queue(address)
    shown(tab, "row-0")
    tab.keyboard.press("a")  # the tenth
    shown(tab, "row-1")
    assert "class 09" in tab.locator("#status").inner_text()
    tab.keyboard.press("f")
    tab.keyboard.type("57")
    assert tab.locator("#classes button").all_inner_texts() == ["class 57"]
    tab.keyboard.press("Enter")
    shown(tab, "row-2")
    assert "class 57" in tab.locator("#status").inner_text()


def test_the_token_is_asked_for_once(serving, open_queue):
    token = "0123456789abcdef"
    address = serving("text", ("text",), CLASSES, *TEXTS, token=token)
    tab = open_queue(address)
    tab.wait_for_selector("#token:visible")
    tab.keyboard.type("wrong-wrong-wrong")
    tab.keyboard.press("Enter")
    tab.wait_for_function("() => document.getElementById('secret').value === ''")
    tab.keyboard.type(token)
    tab.keyboard.press("Enter")
    shown(tab, "row-0")
    tab.keyboard.press("1")
    shown(tab, "row-1")
    assert state(address, authorization=f"Bearer {token}")["waiting"] == 2


SLOW_SERVER = """
    const fetched = window.fetch, repeated = window.setInterval;
    window.answers = 0;
    window.fetch = async (...request) => {
      await new Promise((resolve) => setTimeout(resolve, 300));
      const response = await fetched(...request);
      setTimeout(() => { window.answers += 1; }, 20);
      return response;
    };
    window.setInterval = (action) => repeated(action, 50);
"""


def test_a_slow_answer_does_not_empty_the_field_of_the_token(serving, open_queue):
    tab = open_queue(serving("text", ("text",), CLASSES, *TEXTS, token="0123456789abcdef"), script=SLOW_SERVER)
    tab.wait_for_selector("#token:visible")
    tab.keyboard.type("0123")
    tab.wait_for_timeout(600)
    assert tab.evaluate("document.getElementById('secret').value") == "0123"
    assert tab.evaluate("window.answers") == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(serving, open_queue, axe, scheme):
    address = serving("text", ("text",), CLASSES, *TEXTS[:1])
    tab = open_queue(address, color_scheme=scheme)
    shown(tab, "row-0")

    def violations():
        # Playwright evaluates outside the page's own policy.
        tab.evaluate(axe)
        results = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in results["violations"]]

    assert violations() == []
    tab.keyboard.press("1")
    tab.wait_for_selector("#empty:visible")
    assert violations() == []
