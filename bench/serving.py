"""A served TextCNN against plain calls of the same model in one process: requests per second, p50 and p99."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dubio
from dubio.deployment.folder import export_model
from dubio.deployment.run_models import RunModel
from dubio.referral import fit_capacity_policy

METHOD, CLIENTS, ALONE, EACH = "mc-dropout", 64, 300, 12
WORDS = 40

QUIET = 0.02
"""The share of fastest requests, calls and flushes: the cost itself, where other programs wait for the same cores."""


class Load(NamedTuple):
    """Seconds of each request, and of all."""

    seconds: list[float]
    total: float

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.total

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.seconds, share))

    def __str__(self) -> str:
        return f"{self.rate:.0f}/s, p50 {1e3 * self.quantile(0.5):.1f} ms, p99 {1e3 * self.quantile(0.99):.1f} ms"


def run() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = _export(folder)
        loads: dict[bool, tuple[Load, Load, Load]] = {}
        for batching in (True, False):
            with _server(folder, batching) as port:
                alone, plain, flushes = _alone(port, model, folder)
                loads[batching] = alone, _together(port), plain
            if batching:
                yield _overhead(alone, plain, flushes)
        for batching, (alone, together, plain) in loads.items():
            switch, aim = ("on", "; aim ≥ 5 ×") if batching else ("off", "")
            yield (
                f"Served TextCNN, {CLIENTS} clients against one, batching {switch}: "
                f"{together.rate / alone.rate:.1f} × ({alone} → {together}{aim}); {together.rate / plain.rate:.1f} × "
                f"plain calls ({plain}) [{METHOD}, one text of {WORDS} words per request, loopback]"
            )


def _overhead(alone: Load, plain: Load, flushes: list[float]) -> str:
    texts = []
    for share, name in ((0.5, "medians"), (QUIET, "fastest 2 %: what a busy machine did not delay")):
        times = (alone.seconds, plain.seconds, flushes)
        request, model, flush = (1e3 * float(np.quantile(seconds, share)) for seconds in times)
        parts = f"request {request:.1f} ms, model {model:.1f} ms, fsync {flush:.1f} ms"
        texts.append(f"{request - model - flush:.1f} ms ({parts}; {name})")
    return (
        f"Served TextCNN, one client, beyond the model and one fsync: {', '.join(texts)} [{ALONE} in turns; "
        f"load average {os.getloadavg()[0]:.1f}; aim ≤ 2 ms]"
    )


def _text(rng: np.random.Generator, label: int) -> str:
    return " ".join(f"word{index}" for index in rng.zipf(1.3, WORDS) % 3000 + 1500 * label)


def _export(folder: Path) -> Any:
    """Train a TextCNN on invented texts, one epoch, and export it with a policy."""
    rng = np.random.default_rng(0)
    rows = [f"{_text(rng, label)},{'ab'[label]}" for label in rng.integers(0, 2, 600)]
    (folder / "texts.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    run = dubio.run(
        data=folder / "texts.csv", data_options={"text": "text", "label": "label"}, methods=[METHOD], seeds=1,
        settings={"epochs": 1}, store=folder / "store", jobs=1, progress=False,
    )  # fmt: skip
    selected = RunModel.select(run, METHOD)
    model = selected.model()
    calibration = selected.stored("cal", model)
    assert calibration is not None
    model = model.with_parts(policy=fit_capacity_policy(calibration, capacity=0.2))
    return dubio.load(export_model(selected, model, folder / "model"))


@contextmanager
def _server(folder: Path, batching: bool) -> Iterator[int]:
    switch = "--batching" if batching else "--no-batching"
    words = ["serve", str(folder / "model"), "--log", str(folder / f"log{switch}"), "--port", "0", switch]
    process = subprocess.Popen([sys.executable, "-m", "dubio", *words], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield next(int(match[1]) for line in process.stderr if (match := re.search(r"http://127.0.0.1:(\d+)/", line)))
    finally:
        process.terminate()
        process.wait(60)


def _request(connection: http.client.HTTPConnection, text: str, name: str) -> None:
    body = json.dumps({"rows": [{"id": name, "row": {"text": text}}]})
    connection.request("POST", "/decide", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    assert response.status == 200, answer


def _alone(port: int, model: Any, folder: Path) -> tuple[Load, Load, list[float]]:
    """One client: a request, a plain call of the model on another text and an fsync, in turns."""
    rng, connection = np.random.default_rng(1), http.client.HTTPConnection("127.0.0.1", port)
    requests, calls, flushes = [], [], []
    with (folder / "flushed").open("ab", buffering=0) as sink:
        for number in range(ALONE + 20):
            text, other = _text(rng, number % 2), _text(rng, number % 2)
            marks = [time.perf_counter()]
            _request(connection, text, f"alone-{number}")
            marks.append(time.perf_counter())
            model.predictions([{"text": other}])
            marks.append(time.perf_counter())
            sink.write(b"x" * 400)
            os.fsync(sink.fileno())
            marks.append(time.perf_counter())
            if number >= 20:
                for times, seconds in zip((requests, calls, flushes), np.diff(marks).tolist(), strict=True):
                    times.append(seconds)
    connection.close()
    return Load(requests, sum(requests)), Load(calls, sum(calls)), flushes


def _together(port: int) -> Load:
    """Clients that send at the same time, each its requests one after another."""
    seconds: list[float] = []
    barrier = threading.Barrier(CLIENTS + 1)

    def client(number: int) -> None:
        rng, connection = np.random.default_rng(number), http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        texts = [_text(rng, index % 2) for index in range(EACH)]
        _request(connection, texts[0], f"warm-{number}")
        barrier.wait()
        for index, text in enumerate(texts):
            started = time.perf_counter()
            _request(connection, text, f"{number}-{index}")
            seconds.append(time.perf_counter() - started)
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return Load(seconds, time.perf_counter() - started)
