"""Functions that read a file as dubio does where no command reads it directly; each takes the folder of a case."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from campaigns import model_seeds, store_seeds


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


def read_weights(folder: Path) -> None:
    """Read weights that torch saved."""
    from dubio.encoders.torch_weights import read_torch_weights

    read_torch_weights(folder / "weights.pth")


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


def load_model(folder: Path) -> None:
    """Load an exported model and predict rows with it."""
    import numpy as np

    import dubio

    model = dubio.load(folder / "model")
    rows = model_seeds.model_rows(model.inputs, 5)
    if not np.isfinite(model.predict_proba(rows)).all():
        raise AssertionError("probabilities that are no numbers")


def send_request(folder: Path) -> None:
    """Send a body to a server in this process, and to its log; the log must be readable afterwards."""
    import asyncio
    import json

    from dubio.core.errors import UserError
    from dubio.serving.register import Register

    (path,) = folder.iterdir()
    status, answer = asyncio.run(_answer(folder / "log", path.stem, path.read_bytes()))
    json.loads(answer, parse_constant=_no_number)
    Register(folder / "log").close()
    if status >= 500:
        raise AssertionError(f"status {status}: {answer[:500]!r}")
    if status != 200:
        raise UserError(answer.decode())


async def _answer(log: Path, endpoint: str, body: bytes) -> tuple[int, bytes]:
    """Return status and body of the answer of a server that has decided about one row before."""
    import json

    from dubio.serving.decider import Decider
    from dubio.serving.guard import LOOPBACK, Guard
    from dubio.serving.pipeline import Pipeline
    from dubio.serving.register import Register
    from dubio.serving.web import Limits, Service, health_of, make_app

    model = model_seeds.model("table")
    decider, register = Decider(model, model.policy), Register(log)
    service = Service(decider, register, Limits(), health_of(decider, "p" * 64))
    app = make_app(service, Guard(frozenset(LOOPBACK), None), None)  # type: ignore[arg-type]  # no lifespan

    async def post(path: str, content: bytes) -> tuple[int, bytes]:
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
            "raw_path": path.encode(), "root_path": "", "scheme": "http", "query_string": b"", "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        messages: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        await app(scope, receive, send)
        return messages[0]["status"], b"".join(message.get("body", b"") for message in messages[1:])

    try:
        service.pipeline = Pipeline(decider, register, service.measured, batch_rows=8)
        known = {"rows": [{"id": "known", "row": dict.fromkeys(model.columns, 0.5)}]}
        await post("/decide", json.dumps(known).encode())
        answer = await post(f"/{endpoint}", body)
        await service.pipeline.close()
        return answer
    finally:
        register.close()


def _no_number(name: str) -> Any:
    raise AssertionError(f"{name} in an answer")


def read_kept_page(folder: Path) -> None:
    """Read a page that a store keeps; a damaged one is made again."""
    from dubio.core.errors import BadFile
    from dubio.reporting.report_cache import ReportCache

    cache = ReportCache(None, {})  # type: ignore[arg-type]  # reading needs neither store nor manifest
    if cache.read(folder / "store" / "derived" / "page.report") is None:
        raise BadFile("made again")


def read_examples(folder: Path) -> None:
    """Read the examples of every split of a store."""
    from dubio.core.errors import BadFile
    from dubio.store import Store
    from dubio.store.examples import read_examples

    with Store.open(folder / "store", create=False) as store:
        names = [path.name for path in (folder / "store" / "examples").iterdir()]
        contents = [read_examples(store.layout, name) for name in names]
        if not all(contents):
            raise BadFile("left out")


def run_with_option(folder: Path) -> None:
    """Run the command of an option with a value as a shell would pass it."""
    from dubio.cli.app import main

    (path,) = (folder / "option").iterdir()
    value = path.read_bytes().replace(b"\0", b"").decode("utf-8", "surrogateescape")
    sys.argv = ["dubio", *model_seeds.OPTIONS[path.name][0].split(), value]
    main()
