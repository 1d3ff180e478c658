"""Servers of texts, tables and images in this process, and their queue in a headless Chromium."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn

from dubio.core.predictions import Predictions
from dubio.referral.policy import Policy
from dubio.serving.decider import Decider
from dubio.serving.guard import LOOPBACK, Guard
from dubio.serving.pipeline import Pipeline
from dubio.serving.register import Register
from dubio.serving.web import Limits, Service, health_of, make_app
from tests.reporting.browser.conftest import axe as axe
from tests.reporting.browser.conftest import browser as browser
from tests.serving.helpers import capacity_policy


class Stub:
    """Any rows; the probabilities of a class fall with the number of the row."""

    identity = "f" * 64
    target = "multiclass"
    policy = None

    def __init__(self, inputs: str, columns: tuple[str, ...], classes: tuple[str, ...]) -> None:
        self.inputs, self.columns, self.classes, self._count = inputs, columns, classes, 0

    def predictions(self, rows: list[Any], references: object = ()) -> Predictions:
        shifts = np.arange(self._count, self._count + len(rows))
        self._count += len(rows)
        logits = np.zeros((1, len(rows), len(self.classes)), dtype=np.float32)
        logits[0, :, 0] = 0.1 + 0.2 * shifts
        return Predictions(logits, np.full(len(rows), -1), classes=self.classes)


def picture(shade: int) -> str:
    image = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    pixels = (np.add.outer(np.arange(24), np.arange(24)) * 5 + shade).astype(np.uint8)
    image.fromarray(np.stack([pixels, pixels // 2, 255 - pixels], axis=-1)).save(buffer, "png")
    return base64.b64encode(buffer.getvalue()).decode()


@contextmanager
def live(folder: Path, model: Any = None, policy: Policy | None = None, token: str | None = None) -> Iterator[str]:
    """A server on a free port of the loopback address; yield its address."""
    register, decider = Register(folder), Decider(model, policy)
    service = Service(decider, register, Limits(), health_of(decider, None))

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        service.pipeline = Pipeline(decider, register, service.measured, batch_rows=256)
        yield
        await service.pipeline.close()

    app = make_app(service, Guard(frozenset(LOOPBACK), token), lifespan)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        register.close()


def send(address: str, *rows: dict[str, Any], token: str | None = None) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    requests = [{"id": f"row-{index}", "row": row} for index, row in enumerate(rows)]
    response = httpx.post(f"{address}/decide", json={"rows": requests}, headers=headers)
    assert response.status_code == 200, response.text


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start servers that refer every row; they end with the test."""
    with ExitStack() as stack:

        def start(inputs: str, columns: tuple[str, ...], classes: Any, *rows: Any, token: Any = None) -> str:
            address = stack.enter_context(live(tmp_path / inputs, Stub(inputs, columns, classes), token=token))
            send(address, *rows, token=token)
            return address

        yield start


@pytest.fixture
def probabilities(tmp_path: Path) -> Iterator[str]:
    """A server that is given probabilities of ham and spam."""
    with live(tmp_path / "probabilities", policy=capacity_policy()) as address:
        yield address


@pytest.fixture
def open_queue(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a server's queue; a request to another address, a warning or an error fails the test."""
    problems: list[str] = []
    contexts = []

    def open_(address: str, script: str = "", **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        context.add_init_script(script)
        tab = context.new_page()
        tab.set_default_timeout(60_000)
        local = (address, "data:")
        tab.on("request", lambda request: request.url.startswith(local) or problems.append(request.url))
        tab.on("console", lambda line: "401" in line.text or "409" in line.text or problems.append(line.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        tab.goto(address)
        tab.wait_for_selector("html[data-ready]")
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert problems == []
