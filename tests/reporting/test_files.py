from __future__ import annotations

from dubio.reporting.wording import file_name


def test_a_file_name_has_one_dash_for_everything_that_is_no_letter_or_digit() -> None:
    assert file_name("cifar10 (preresnet)-cost") == "cifar10-preresnet-cost"
    assert file_name("quality: low / high") == "quality-low-high"
    assert file_name("…") == "unnamed"
