"""Small benchmark runs for pages: one with stops that have a guarantee, one whose names try to be more than text."""

from __future__ import annotations

import copy

from tests.reporting.helpers import EVIL, part_of_run
from tests.reporting.stored_runs import World, identifier, make_world

METHODS = ("deterministic", "mc-dropout", "deep-ensemble")
HOSTILE = {
    "script": "</script><script>window.broken = 1; alert(1)</script>",
    "markup": f"{EVIL}<img src=x onerror='window.broken = 1'>",
    "template": "{{7*7}} {% raw %} ${7*7}",
    "expression": "datum['x'] + (window.broken = 1)",
    "address": "javascript:window.broken=1//https://example.org/x.png",
    "direction": "\u202eevil \u05e9\u05dc\u05d5\u05dd",
    "formula": "=HYPERLINK(\"https://example.org\")",
    "long": "z" * 10_000,
}
"""Kind → a name that a user could give to a task, class, method, test set, text or file."""


def calibrated_world() -> World:
    """Two tasks with a calibration split; digits are of two sites and have texts as examples."""
    store, manifest = make_world((0,), kept_aside=1500)
    manifest = part_of_run(manifest, "digits", "screening", methods=METHODS)
    digits = manifest["tasks"][0]
    digits["splits"] = [split for split in digits["splits"] if not split["name"].startswith("noise")]
    rows = " ".join(str(int(row % 4 == 0)) for row in range(300))
    digits["facts"] = {"test": {"site": {"values": ["clinic", "practice"], "rows": rows}}}
    store.examples[identifier("digits", "test")] = {row: f"the digit of row {row}" for row in range(300)}
    store.examples[identifier("digits", "novel")] = {row: f"a letter, row {row}" for row in range(150)}
    return store, manifest


def hostile_world() -> World:
    """Every name that a user can give is an attempt to break out."""
    store, manifest = calibrated_world()
    manifest = copy.deepcopy(manifest)
    task, other = manifest["tasks"]
    names = {task["name"]: HOSTILE["script"], other["name"]: HOSTILE["long"]}
    methods = dict(zip(METHODS, (HOSTILE["expression"], HOSTILE["markup"], HOSTILE["formula"]), strict=True))
    for run in manifest["runs"]:
        run["task"], run["method"] = names[run["task"]], methods[run["method"]]
    for own in (task, other):
        own["name"] = names[own["name"]]
        own["notes"], own["arguments"] = list(HOSTILE.values()), {HOSTILE["markup"]: HOSTILE["address"]}
        own["card"] = dict.fromkeys(("source", "revision", "licence", "citation", "description"), HOSTILE["markup"])
    task["classes"] = [HOSTILE[kind] for kind in ("template", "markup", "direction", "long")]
    task["facts"]["test"] = {HOSTILE["script"]: {**task["facts"]["test"]["site"], "values": [EVIL, HOSTILE["long"]]}}
    for method in manifest["methods"]:
        method |= {"name": methods[method["name"]], "title": methods[method["name"]], "family": EVIL}
    next(split for split in task["splits"] if split["name"] == "novel")["name"] = HOSTILE["address"]
    for pred, split in list(store.predictions):
        if split == "novel":
            store.predictions[pred, HOSTILE["address"]] = store.predictions[pred, split]
    texts = list(HOSTILE.values())
    store.examples = {key: {row: texts[row % len(texts)] for row in own} for key, own in store.examples.items()}
    manifest |= {"name": EVIL, "benchmark": {"name": HOSTILE["script"], "seeds": [0]}}
    return store, manifest
