"""Parts: what they are described as, and that a field that came later leaves old descriptions alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dubio.core.specs import added, describe, part, restore


@part("test-lens")
@dataclass(frozen=True)
class Lens:
    width: int = 3
    tint: str = added("clear")


def test_every_field_is_described_also_at_its_default():
    assert describe(Lens(tint="red")) == {"part": "test-lens", "version": 1, "width": 3, "tint": "red"}


def test_a_later_field_at_its_default_is_no_part_of_the_description():
    assert describe(Lens()) == {"part": "test-lens", "version": 1, "width": 3}
    assert describe(Lens(tint="clear")) == describe(Lens())


@pytest.mark.parametrize("lens", [Lens(), Lens(5), Lens(tint="red")])
def test_a_description_gives_the_same_value_back(lens):
    assert restore(describe(lens)) == lens
