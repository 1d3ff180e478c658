from __future__ import annotations

from dataclasses import replace

import numpy as np

from dubio.metrics.decisions import predicted
from dubio.reporting import Report, build_report
from dubio.reporting.page import render
from dubio.reporting.sections.gallery import ROWS, choose
from dubio.runner.benchmark_run import thumbnail
from tests.reporting.helpers import EVIL, Outline
from tests.reporting.sections.helpers import World, runs_of, screening_world
from tests.reporting.stored_runs import identifier


def test_images_are_shown_and_their_names_stay_text(eyes: Report) -> None:
    store, manifest = screening_world(EVIL)
    for (made, split), run in list(store.predictions.items()):
        store.predictions[made, split] = replace(run, ids=np.array([f"{EVIL}{row}" for row in range(len(run))]))
    image = thumbnail(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    store.pictures[identifier("eyes", "test")] = dict.fromkeys(range(120), image)
    page = render(build_report(store, manifest))
    outline = Outline(page)
    sources = [value for tag, name, value in outline.attributes if (tag, name) == ("img", "src")]
    assert 12 < len(sources) <= 24
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert outline.tags.count("script") == 1
    assert not [name for _, name, _ in outline.attributes if name.startswith("on")]
    assert '<script>alert("x")</script>' not in page
    assert ROWS["sure_wrong"] in " ".join(outline.words)
    without = Outline(render(eyes))
    assert "img" not in without.tags
    assert "Gallery" not in without.words


def test_captions_name_the_predicted_class_and_the_label_where_it_differs(eyes_world: World, eyes: Report) -> None:
    run = runs_of(eyes_world, "deterministic", "test")[0]
    choices, classes = choose(eyes.tasks[0], run), predicted(run)
    for name in ROWS:
        for row, example in choices[name].items():
            answer, label = (eyes.tasks[0].classes[value] for value in (classes[row], run.labels[row]))
            assert example.id == f"test-{row}"
            assert example.caption.startswith(f"{answer}, {run.probs[row].max():.0%}")
            assert (f"label: {label}" in example.caption) == (answer != label) == name.endswith("wrong")
