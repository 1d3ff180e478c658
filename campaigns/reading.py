"""Functions that read a file as dubio does where no command reads it directly; each takes the folder of a case."""

from __future__ import annotations

from pathlib import Path

from campaigns import store_seeds


def read_idx(folder: Path) -> None:
    """Read images of an idx file."""
    from dubio.tasks.images.formats import read_idx

    read_idx(folder / "images.gz", 28)


def read_sheet(folder: Path) -> None:
    """Read an Excel sheet of labels."""
    from dubio.tasks.fundus.labels import read_records

    read_records(folder / "labels.xlsx")


def extract(name: str, folder: Path) -> None:
    """Open an archive that was fetched."""
    from dubio.tasks.sources.fetch import extract

    extract(folder / name, folder / "OUT")


def load_fit(folder: Path) -> None:
    """Restore a fit of a module and predict with it."""
    import numpy as np

    import dubio

    fit = dubio.load_fit(folder / "fit.safetensors", network=store_seeds.perceptron)
    probs = fit.predict(np.zeros((2, 4), np.float32)).probs
    if not np.isfinite(probs).all():
        raise AssertionError("probabilities that are no numbers")


def load_encoder(folder: Path) -> None:
    """Restore an encoder as a stored fit does."""
    from dubio.encoders import encoder_from_json
    from dubio.store.records import read_json

    encoder_from_json(read_json(folder / "encoder.json"))


def load_checkpoint(folder: Path) -> None:
    """Read a checkpoint; reading it again must do no harm either."""
    from dubio.store import Store

    with Store.open(folder / "store", create=False) as store:
        store.checkpoint("c" * 64).load()
        store.checkpoint("c" * 64).load()


def read_register(folder: Path) -> None:
    """Open the log of a server, read its queue, and open it again."""
    from dubio.serving.register import Register

    for _ in range(2):
        register = Register(folder / "log")
        try:
            list(register.queue(10))
        finally:
            register.close()


def read_fits(folder: Path) -> None:
    """Read what a run would reuse; what is damaged is refused or set aside."""
    from dubio.core.errors import DubioError
    from dubio.store import Store

    with Store.open(folder / "store", create=False) as store:
        for fit in store.ids("fits"):
            try:
                store.read_fit(fit)
            except DubioError:
                store.set_aside("fits", fit)
        store.failures()


def read_cifar(data: str, folder: Path) -> None:
    """Read CIFAR-10 in any of its formats."""
    from dubio.tasks.cifar import CIFAR10

    CIFAR10.training_and_test(str(folder / data), None)


def read_corpus(folder: Path) -> None:
    """Read a corpus of texts; the folder inside is called like the corpus."""
    from dubio.tasks import aapd, amazon, clinc, imdb, reuters, twenty_newsgroups
    from dubio.tasks.sources.locate import find_copy

    modules = (aapd, amazon, clinc, reuters, twenty_newsgroups)
    corpora = {corpus.name: corpus for corpus in (*(module.CORPUS for module in modules), imdb.TEN, imdb.EIGHT)}
    (inside,) = folder.iterdir()
    copy = find_copy(corpora[inside.name], str(inside))
    for document in copy.read() if copy is not None else ():
        if not all(isinstance(text, str) for text in (document.subset, document.text, document.id, *document.labels)):
            raise AssertionError("a document that is no text")


def read_imagenet(folder: Path) -> None:
    """Read photographs in the folders of ImageNet."""
    from dubio.core.registry import TASKS

    TASKS.make("imagenet", data=str(folder / "imagenet"), shorter=16, size=8, val=0.3)
