"""A failed system call leaves the old or the new, a sentence, and nothing that a second try could trip over.

`make faults` fails every call of every operation; here it is every ninth. Without a C compiler this fails, and says so.
"""

from __future__ import annotations

import pytest
from campaigns.faults import preloaded
from campaigns.shim import FAULTS

STORE = "store|fit$|ensemble|predictions|checkpoint|failure|pictures|index|lock|aside|sweep"


@pytest.fixture(scope="module")
def figures(monkeypatch_module_environment):
    return preloaded("campaigns.system_calls", "--every", "9", "--only", STORE)


@pytest.fixture(scope="module")
def monkeypatch_module_environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUBIO_FAKE_LOG", "")
        yield


def test_no_failed_call_does_harm(figures):
    assert figures["problems"] == []


def test_faults_of_every_kind_were_injected(figures):
    assert set(FAULTS) <= figures["cases"].keys()
    assert sum(figures["cases"].values()) > 100
    # An error ends most operations, an interrupt and a short write none.
    assert figures["refused"]["EIO"] > figures["cases"]["EIO"] / 2
    assert figures["refused"]["EINTR"] == figures["refused"]["short"] == 0
    assert figures["calls"]["write a fit"] > 30
