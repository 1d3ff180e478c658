"""Networks that share a task."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.reporting.run_view import RunView
from dubio.reporting.style import SPARE, Style
from dubio.studies.text.networks import (
    Architectures,
    ScorePanel,
    architectures_chart,
    architectures_of,
    architectures_reading,
)
from tests.reporting.stored_runs import World, stored
from tests.studies.charts import HOSTILE, interpreted, rows_of


def test_networks_that_share_a_task_are_paired_by_method(text_world: World, text_run: RunView) -> None:
    (found,) = architectures_of(text_run)
    assert (found.task, found.networks) == ("reviews", ("textcnn", "bert"))
    assert [style.title for style in found.styles] == ["Deterministic"]
    (values,) = found.panels[0].values
    for network in found.networks:
        right = [
            (p.probs.argmax(axis=1) == p.labels).mean()
            for p in stored(text_world, "reviews", "deterministic", "test", network)
        ]
        assert values[network] == pytest.approx(np.mean(right))
    assert architectures_reading(found).startswith("bert is better than textcnn in accuracy for ")


def test_every_network_is_one_point_of_its_method() -> None:
    networks, styles = (f"{HOSTILE} net", "bert"), tuple(Style(title, *SPARE[0], False) for title in ("A", HOSTILE))
    values = ({networks[0]: 0.5, "bert": 0.75}, {"bert": 0.25})
    chart = architectures_chart(Architectures("t", networks, styles, (ScorePanel(HOSTILE, "higher", values),)))
    rows = [(row["method"], row["network"], row["value"], row["panel"]) for row in rows_of(chart)]
    panel = f"{HOSTILE} ↑"
    assert rows == [("A", networks[0], 0.5, panel), ("A", "bert", 0.75, panel), (HOSTILE, "bert", 0.25, panel)]
    assert not any(HOSTILE in text for text in interpreted(chart))
