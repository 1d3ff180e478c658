"""A logistic model in numpy, a policy for it, and servers of both: in this process, or as the command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.referral import Policy, fit_capacity_policy
from dubio.serving.decider import Decider
from dubio.serving.guard import LOOPBACK, Guard
from dubio.serving.pipeline import Pipeline
from dubio.serving.register import Register
from dubio.serving.web import Limits, Service, health_of, make_app

CLASSES = ("ham", "spam")
WEIGHTS = np.array([1.5, -2.0])
LOCAL = "http://127.0.0.1"


class Logistic:
    """p(spam) = 1 / (1 + exp(−1.5 a + 2 b)); rows whose ``a`` is 13 are refused, as models do."""

    identity = "f" * 64
    classes = CLASSES
    inputs = "table"
    columns = ("a", "b")
    target = "multiclass"
    policy = None

    def __init__(self):
        self.batches = []

    def predictions(self, rows, references=()):
        self.batches.append(len(rows))
        for index, row in enumerate(rows):
            own = references[index] if references else f"row {index}"
            for name in self.columns:
                if not isinstance(row[name], int | float):
                    raise UserError(f"{own}: column {name!r} must be a number; given {row[name]!r}.")
            if row["a"] == 13:
                raise UserError(f"{own}: column 'a' must not be 13.")
        return logistic(np.array([[row["a"], row["b"]] for row in rows], dtype=float))


def logistic(values, labels=None, kind=None):
    scores = (values @ WEIGHTS).astype(np.float32)
    labels = np.full(len(values), -1) if labels is None else labels
    return Predictions(np.stack([np.zeros_like(scores), scores], axis=-1)[None], labels, classes=CLASSES, kind=kind)


def calibration(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, 2))
    labels = (rng.random(rows) < 1 / (1 + np.exp(-(values @ WEIGHTS)))).astype(np.int64)
    return logistic(values, labels, "cal")


def capacity_policy() -> Policy:
    return fit_capacity_policy(calibration(), capacity=0.4)


def rows(count, seed=1, prefix="r"):
    values = np.random.default_rng(seed).normal(size=(count, 2)).round(6).tolist()
    return [{"id": f"{prefix}{index}", "row": {"a": a, "b": b}} for index, (a, b) in enumerate(values)]


@contextmanager
def client_of(folder: Path, *, model=None, policy=None, limits=None, token=None, keep_rows="referred", batch_rows=256):
    """A client of a server in this process; ``client.service`` is the server."""
    decider = Decider(model or Logistic(), policy or capacity_policy())
    register = Register(folder, keep_rows=keep_rows)
    service = Service(decider, register, limits or Limits(), health_of(decider, "p" * 64))

    @asynccontextmanager
    async def lifespan(app):
        service.pipeline = Pipeline(decider, register, service.measured, batch_rows=batch_rows)
        yield
        await service.pipeline.close()

    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    app = make_app(service, Guard(frozenset(LOOPBACK), token), lifespan)
    try:
        with TestClient(app, LOCAL, headers=headers) as client:
            client.service = service
            yield client
    finally:
        register.close()


ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def command(*words: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start ``dubio serve`` on a free port; yield the process and its address, and end it."""
    process = start(*words, **environment)
    try:
        yield process, address_of(process)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def start(*words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dubio", "serve", *words, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
    )


def address_of(process: subprocess.Popen[str]) -> str:
    """Wait until a server says that it is ready; return its address."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if match := re.match(r"dubio serve: (http://\S+?)/$", line.strip()):
            return match[1]
    raise AssertionError("".join(lines))
