"""Kill a server again and again (``kill -9``) while clients send rows, and compare its log with what was answered.

Clients send rows under ids of their own, retry what was not answered, send some answered rows again, and label some.
The server is killed at random moments while requests are under way and started again on the same log. At the end it
must hold, by a reader of the log that shares no code with the server, that

- every decision and label that was answered is in the log, with the bits that were answered;
- no id was decided twice, however often it was sent, and every answer to it was the same;
- the checksums of the log are right from the first line to the last.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.predictions import Predictions
from dubio.referral import fit_capacity_policy

PATIENCE = 300.0
"""Seconds in which a server starts, and in which a row is answered; more is a hang."""

CLASSES = ("ham", "spam")
FAULTS = (OSError, http.client.HTTPException)


@dataclass
class Tally:
    """What the campaign has counted.

    Attributes:
        answers: Id → its first answer.
        labels: Id → the label that was answered.
        kills: Kills of a running server.
        under_way: Kills while at least one request was under way.
        retried: Requests that were sent again because no answer came.
        repeated: Answered rows that were sent again.
        problems: What must not happen.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    kills: int = 0
    under_way: int = 0
    retried: int = 0
    repeated: int = 0
    problems: list[str] = field(default_factory=list)


class Server:
    """A server on a fixed port and log that is started again whenever it was killed."""

    def __init__(self, folder: Path) -> None:
        """Choose a port and write the policy."""
        self.log = folder / "log"
        self._folder, self._policy = folder, folder / "policy.json"
        self._policy.write_text(_policy(), encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the command and wait until it answers."""
        source = Path(__file__).resolve().parents[1] / "src"
        environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": str(self._folder / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        words = ["serve", "--policy", str(self._policy), "--log", str(self.log), "--port", str(self.port)]
        with (self._folder / "messages").open("ab") as sink:
            self.process = subprocess.Popen([sys.executable, "-m", "dubio", *words], env=environment, stderr=sink)
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit and self.process.poll() is None:
            try:
                if _call(self.port, "GET", "/health")[0] == 200:
                    return
            except FAULTS:
                time.sleep(0.02)
        raise RuntimeError(f"the server did not start: {(self._folder / 'messages').read_text()[-2000:]}")

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def _policy() -> str:
    rng = np.random.default_rng(0)
    scores = rng.normal(scale=2, size=400).astype(np.float32)
    labels = (rng.random(400) < 1 / (1 + np.exp(-scores))).astype(np.int64)
    logits = np.stack([np.zeros_like(scores), scores], axis=-1)[None]
    return fit_capacity_policy(Predictions(logits, labels, classes=CLASSES, kind="cal"), capacity=0.4).to_json()


def _call(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


class Client(threading.Thread):
    """Sends its share of the rows, each until it is answered."""

    def __init__(self, number: int, rows: int, seed: int, port: int, tally: Tally, active: Counter[int]) -> None:
        """Keep what it needs; ``active`` counts the requests of each client that are under way."""
        super().__init__(name=f"client {number}", daemon=True)
        self._number, self._rows, self._port, self._tally, self._active = number, rows, port, tally, active
        self._rng = random.Random(f"{seed} {number}")

    def run(self) -> None:
        """Send requests of one to four rows."""
        sent = 0
        while sent < self._rows and not self._tally.problems:
            count = min(self._rng.randint(1, 4), self._rows - sent)
            rows = [self._row(sent + index) for index in range(count)]
            sent += count
            self._decide(rows)
            if self._rng.random() < 0.1:  # a client that does not know that it was answered
                self._tally.repeated += count
                self._decide(rows)
            if self._rng.random() < 0.1:
                label = self._rng.choice(CLASSES)
                self._send("/label", {"id": rows[0]["id"], "label": label})
                self._tally.labels[rows[0]["id"]] = label

    def _row(self, index: int) -> dict[str, Any]:
        spam = round(self._rng.random(), 6)
        name = f"{self._number}-{index}"
        return {"id": name, "row": {"text": f"row {name}"}, "probabilities": {"ham": 1 - spam, "spam": spam}}

    def _decide(self, rows: list[dict[str, Any]]) -> None:
        document = self._send("/decide", {"rows": rows})
        for decision in document["decisions"] if document else ():
            first = self._tally.answers.setdefault(decision["id"], decision)
            if decision != first:
                self._tally.problems.append(f"{decision['id']} got {decision}, after {first}")

    def _send(self, path: str, body: Any) -> Any:
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            self._active[self._number] = 1
            try:
                status, document = _call(self._port, "POST", path, body)
            except FAULTS:
                self._tally.retried += 1
                time.sleep(0.05)
                continue
            finally:
                self._active[self._number] = 0
            if status == 200:
                return document
            self._tally.problems.append(f"status {status}: {document}")
            return None
        self._tally.problems.append(f"no answer within {PATIENCE:.0f} s")
        return None


def campaign(folder: Path, *, decisions: int, kills: int, clients: int = 8, seed: int = 0) -> Tally:
    """Run the campaign; everything that must not happen is in ``problems``.

    Args:
        folder: An empty folder.
        decisions: Rows to decide about.
        kills: Kills of the server.
        clients: Clients that send at the same time.
        seed: Seed of rows, requests and moments.
    """
    tally, active, rng = Tally(), Counter[int](), random.Random(seed)
    server = Server(folder)
    server.start()
    shares = [decisions // clients + (number < decisions % clients) for number in range(clients)]
    threads = [Client(n, share, seed, server.port, tally, active) for n, share in enumerate(shares)]
    for thread in threads:
        thread.start()
    for kill in range(kills):
        # At an even pace, then at any moment of the next requests.
        while len(tally.answers) < decisions * (kill + 0.5) / (kills + 0.5) and not tally.problems:
            time.sleep(0.001)
        time.sleep(rng.random() * 0.05)
        tally.under_way += any(active.values())
        if server.end(signal.SIGKILL) == -signal.SIGKILL:
            tally.kills += 1
        server.start()
    for thread in threads:
        thread.join(PATIENCE)
    if (code := server.end(signal.SIGTERM)) != 0:
        tally.problems.append(f"the last server ended with exit code {code}")
    tally.problems += check_log(server.log / "decisions.log", tally)
    return tally


def check_log(path: Path, tally: Tally) -> list[str]:
    """Compare the log with what was answered; return what differs."""
    problems, decided, labels = [], Counter[str](), dict[str, str]()
    previous = "0" * 32
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1]):
        digits, payload = line[:32].decode(), line[33:]
        if hashlib.sha256(previous.encode() + payload).hexdigest()[:32] != digits:
            problems.append(f"line {number} has a wrong checksum")
        previous = digits
        for entry in json.loads(payload):
            if entry.get("entry") == "decision":
                decided[entry["id"]] += 1
                if tally.answers.get(entry["id"]) != entry["decision"]:
                    problems.append(f"{entry['id']} was answered otherwise, or never")
            elif entry.get("entry") == "label":
                labels[entry["id"]] = entry["label"]
    problems += [f"{name} is in the log {count} times" for name, count in decided.items() if count > 1]
    problems += [f"{name} was answered and is not in the log" for name in tally.answers if name not in decided]
    for name, label in tally.labels.items():
        if labels.get(name) != label:
            problems.append(f"the label of {name} is {labels.get(name)}")
    return problems


def main() -> int:
    """Run the campaign and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = campaign(Path(folder), **vars(options))
        torn = len(list((Path(folder) / "log").glob("*.torn-*")))
    print(f"decisions answered: {len(tally.answers)}, labels: {len(tally.labels)}")
    print(f"kills: {tally.kills}, with requests under way: {tally.under_way}, torn tails cut off: {torn}")
    print(f"requests without an answer, sent again: {tally.retried}; answered rows sent again: {tally.repeated}")
    for problem in tally.problems:
        print(f"problem: {problem}")
    print(f"problems: {len(tally.problems)}")
    return 1 if tally.problems or len(tally.answers) != options.decisions else 0


if __name__ == "__main__":
    sys.exit(main())
