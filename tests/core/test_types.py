"""Examples, splits and tasks: fingerprints, and how splits are found."""

import numpy as np
import pytest

from dubio.core.errors import UnknownName, UserError
from dubio.core.types import Examples, SourceCard, Split, Task


def test_fingerprints_depend_on_content_alone():
    texts = Examples(("a", "bc"), np.array([0, 1]))
    assert texts.fingerprint() == Examples(("a", "bc"), np.array([0, 1])).fingerprint()
    assert texts.fingerprint() != Examples(("ab", "c"), np.array([0, 1])).fingerprint()
    assert texts.fingerprint() != Examples(("a", "bc"), np.array([1, 1])).fingerprint()
    narrow = Examples(("a", "b"), np.array([0, 1]), ids=np.array(["x", "y"]))
    wide = Examples(("a", "b"), np.array([0, 1]), ids=np.array(["x", "y"], dtype="U40"))
    assert narrow.fingerprint() == wide.fingerprint()


def test_tasks_find_their_splits_by_name_and_kind():
    data = Examples(("a", "b"), np.array([0, 1]))
    task = Task(
        "t", "text", "multiclass", ("x", "y"), (Split.of("train", "train", data), Split.of("test", "id", data)),
        SourceCard("here", "1", "none", "nobody"),
    )  # fmt: skip
    assert task.split("test").kind == "id"
    assert [split.name for split in task.of_kind("train")] == ["train"]
    with pytest.raises(UnknownName, match="Did you mean 'train'"):
        task.split("trian")
    with pytest.raises(UnknownName, match="value of kind"):
        Split.of("x", "tset", data)
    with pytest.raises(UserError, match="labels has 1 rows, inputs has 2"):
        Examples(("a", "b"), np.array([0]))


def test_family_and_severity_are_not_in_the_fingerprint():
    data = Examples(("a", "b"), np.array([0, 1]))
    plain = Split.of("fog-3", "shift", data)
    graded = Split.of("fog-3", "shift", data, family="fog", severity=3)
    assert (plain.family, plain.severity) == (None, None)
    assert (graded.family, graded.severity) == ("fog", 3)
    assert plain.fingerprint == graded.fingerprint
