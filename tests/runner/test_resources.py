"""Resources of a job: what ``--resources`` accepts, and that it goes with the Ray executor alone."""

from __future__ import annotations

import pytest

from dubio.core.errors import UserError
from dubio.runner.benchmark_run import check_executor
from dubio.runner.resources import parse_resources, resource_text


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        (None, {}),
        ("cpu=2", {"cpu": 2.0}),
        ("CPU=2, gpu=0.5 ,memory=4GB", {"cpu": 2.0, "gpu": 0.5, "memory": 4e9}),
        ("memory=1GiB,TPU=4,gpu=0", {"memory": 2.0**30, "TPU": 4.0, "gpu": 0.0}),
    ],
)
def test_what_is_accepted(text: str | None, resources: dict[str, float]) -> None:
    assert parse_resources(text) == resources


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu", "must be such as cpu=2,gpu=0.5,memory=4GB; given 'gpu'"),
        ("=2", "given '=2'"),
        ("", "must be such as cpu=2,gpu=0.5,memory=4GB; given ''"),
        (" , ", "given ' , '"),
        ("cpu=many", "cpu must be a positive number in digits, such as 2 or 0.5; given 'many'"),
        ("cpu=nan", "cpu must be a positive number"),
        ("cpu=-1", "cpu must be a positive number in digits, such as 2 or 0.5; given '-1'"),
        ("cpu=1e400", "cpu must be a positive number"),
        ("cpu=0", "cpu must be at least 0.0001"),
        ("gpu=0.00001", "gpu must be at least 0.0001"),  # Ray refuses less
        ("cpu=1.5", "must be a whole number where it is above 1"),
        ("cpu=2GB", "cpu must be a positive number in digits, such as 2 or 0.5; given '2GB'"),
        ("memory=4XB", "memory must be a size such as 8GB, 500MB or 1GiB; given '4XB'"),
        ("cpu=1,cpu=2", "names 'cpu' twice"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(UserError) as refusal:
        parse_resources(text)
    assert str(refusal.value).startswith("--resources")
    assert words in str(refusal.value)


def test_resources_read_as_they_are_written() -> None:
    assert resource_text(parse_resources("cpu=2,memory=4GB,gpu=0.5")) == "cpu=2,memory=4GB,gpu=0.5"


def test_only_the_ray_executor_takes_resources() -> None:
    assert check_executor("ray", "cpu=2", None) == {"cpu": 2.0}
    with pytest.raises(UserError, match="--resources is an option of --executor ray; given --executor local"):
        check_executor("local", "cpu=2", None)
    with pytest.raises(UserError, match="--devices cannot be used with gpu in --resources"):
        check_executor("ray", "gpu=1", "cuda:0")
    with pytest.raises(UserError, match="Did you mean 'ray'"):
        check_executor("rya", None, None)
