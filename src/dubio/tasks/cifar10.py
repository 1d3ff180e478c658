"""CIFAR-10, clean, corrupted, and beside images of other sorts."""

from __future__ import annotations

from dubio.core.registry import task
from dubio.core.types import Task
from dubio.tasks.cifar.cutting import Wishes, task_of
from dubio.tasks.cifar.sets import CIFAR10

CARD = CIFAR10.corpus.card
CORPORA = (CIFAR10.corpus,)


@task("cifar10")
def cifar10(
    *,
    data: str | None = None,
    train: int | None = None,
    test: int | None = None,
    val: float = 0.1,
    cal: float = 0.0,
    corruptions: str = "none",
    severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    ood: str = "none",
    split_seed: int = 0,
    data_dir: str | None = None,
) -> Task:
    """CIFAR-10: 32×32 photographs in 10 classes, clean, corrupted, and beside images of other sorts.

    Splits: train, val, cal where asked for, test; of each corruption and severity a split such as ``jpeg-3``; of each
    set out of distribution a split called after it (``noise``: ``noise-uniform`` and ``noise-gaussian``), at most as
    large as test.

    Args:
        data: A folder, an original archive or an npz; looked for if left out (``dubio data where cifar10``).
        train: So many training images, equally of all classes; all that are left if left out.
        test: So many test images, equally of all classes.
        val: Share of the training images for validation.
        cal: Share of the training images for calibration.
        corruptions: Names joined by ``+``, such as ``gaussian-noise+jpeg``; ``all`` or ``none``.
        severities: Of the corruptions, from 1 to 5.
        ood: ``cifar100``, ``fashion-mnist`` and ``noise``, joined by ``+``; ``all`` or ``none``.
        split_seed: Of the choice of images and of what is random in corruptions and noise.
        data_dir: A folder to look for data in, before DUBIO_DATA.
    """
    wishes = Wishes(train, test, val, cal, corruptions, severities, ood, split_seed)
    return task_of(CIFAR10, wishes, data, data_dir, ("cifar100", "fashion-mnist"))
