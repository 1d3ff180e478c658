"""Networks that share a task."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.reporting.run_view import RunView
from dubio.studies.text.networks import architectures_of, architectures_reading
from tests.reporting.stored_runs import World, stored


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
