"""How a run shows where it is: a live display on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import IO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from dubio.runner.execute import State
from dubio.runner.plan import Node

VERBS = {"fit": "training", "predict": "predicting", "ensemble": "pooling", "method": "running"}


def spoken(seconds: float) -> str:
    """A duration as one says it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Clock:
    """Estimates what is left, correcting the plan's estimate by how long things have really taken."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._left = 0.0
        self._total = 0.0

    def begin(self, seconds: float) -> None:
        """So many seconds of work are ahead, as far as one can know."""
        self._started = time.monotonic()
        self._left = self._total = seconds

    def done(self, seconds: float) -> None:
        """A piece of work that was estimated at so many seconds is over."""
        self._left = max(0.0, self._left - seconds)

    def left(self, under_way: float, jobs: int) -> float | None:
        """Seconds still to go; None before anything can be said.

        Args:
            under_way: Estimated seconds of work already done on what is not finished.
            jobs: Processes at work.
        """
        done = self._total - self._left + under_way
        elapsed = time.monotonic() - self._started
        if self._total <= 0 or elapsed < 1:
            return None
        planned = (self._left - under_way) / jobs
        if done < 0.05 * self._total:
            return planned
        return max(0.0, elapsed * (self._total - done) / done)


class _Counted:
    """What both displays count."""

    def __init__(self, estimates: dict[str, float]) -> None:
        self._estimates = estimates
        self._clock = Clock()
        self._running: dict[str, float] = {}
        self._todo = self._done = self._failed = 0
        self._jobs = 1

    def begin(self, todo: int, found: int, seconds: float, jobs: int) -> None:
        """Start counting."""
        self._todo, self._done, self._failed, self._jobs = todo, 0, 0, jobs
        self._clock.begin(seconds)

    def start(self, node: Node) -> None:
        """Count a node as under way."""
        self._running[node.id] = 0.0

    def tell(self, node: Node, fraction: float, words: str) -> None:
        """A node is so far."""
        self._running[node.id] = fraction

    def end(self, node: Node, state: State, words: str) -> None:
        """Count a node as over."""
        self._running.pop(node.id, None)
        self._clock.done(self._estimates.get(node.id, 0.0))
        self._done += 1
        self._failed += state == "failed"

    def remaining(self) -> str:
        """What is left of the time, in words."""
        under_way = sum(self._estimates.get(i, 0.0) * fraction for i, fraction in self._running.items())
        left = self._clock.left(under_way, self._jobs)
        return "" if left is None else f"about {spoken(left)} left"


class LogProgress(_Counted):
    """Plain lines with the time of day, for logs and pipes."""

    def __init__(self, estimates: dict[str, float], sink: IO[str] | None = None) -> None:
        super().__init__(estimates)
        self._sink = sink or sys.stderr
        self._since: dict[str, float] = {}

    def begin(self, todo: int, found: int, seconds: float, jobs: int) -> None:
        """Say what is ahead."""
        super().begin(todo, found, seconds, jobs)
        if todo:
            self.note(f"{todo} to make, {found} there already, {jobs} {'job' if jobs == 1 else 'jobs'}")

    def start(self, node: Node) -> None:
        """Remember when."""
        super().start(node)
        self._since[node.id] = time.monotonic()

    def end(self, node: Node, state: State, words: str) -> None:
        """Say what is over."""
        super().end(node, state, words)
        took = f" in {spoken(time.monotonic() - self._since[node.id])}" if node.id in self._since else ""
        if state == "done" and node.kind in ("predict", "ensemble"):
            return  # a line for each training is enough; these come many to one
        if state == "done":
            tail = ", ".join(filter(None, [f"{self._done}/{self._todo}", self.remaining()]))
            self.note(f"{words or f'done{took}'}: {node.kind} of {node.label} ({tail})")
        else:
            self.note(f"{state}: {node.kind} of {node.label}: {words}")

    def note(self, words: str) -> None:
        """Say something now."""
        print(f"{datetime.now():%H:%M:%S} {words}", file=self._sink, flush=True)

    def close(self) -> None:
        """Nothing to put away."""


class LiveProgress(_Counted):
    """One line for the whole and one for each thing under way, redrawn in place."""

    def __init__(self, estimates: dict[str, float], console: Console | None = None) -> None:
        super().__init__(estimates)
        self._console = console or Console(stderr=True)
        bar = BarColumn(bar_width=24)
        self._whole = Progress(TextColumn("[bold]in all"), bar, MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
        self._parts = Progress(TextColumn("{task.fields[verb]}"), bar, TextColumn("{task.description}"))
        self._bar: TaskID | None = None
        self._bars: dict[str, TaskID] = {}
        self._live = Live(Group(self._whole, self._parts), console=self._console, refresh_per_second=4, transient=True)

    def begin(self, todo: int, found: int, seconds: float, jobs: int) -> None:
        """Show the whole."""
        super().begin(todo, found, seconds, jobs)
        if not todo:
            return
        if found:
            self.note(f"{found} of {todo + found} are in the store already.")
        self._bar = self._whole.add_task("", total=todo, left="")
        self._live.start()

    def start(self, node: Node) -> None:
        """Show one more."""
        super().start(node)
        self._bars[node.id] = self._parts.add_task(escape(node.label), total=1.0, verb=VERBS[node.kind])

    def tell(self, node: Node, fraction: float, words: str) -> None:
        """Move its bar."""
        super().tell(node, fraction, words)
        if node.id in self._bars:
            text = f"{escape(node.label)} [dim]{escape(words)}"
            self._parts.update(self._bars[node.id], completed=fraction, description=text)
        self._refresh()

    def end(self, node: Node, state: State, words: str) -> None:
        """Take its bar away; say why where it did not end well."""
        super().end(node, state, words)
        if node.id in self._bars:
            self._parts.remove_task(self._bars.pop(node.id))
        if state != "done":
            self._console.print(Text(f"{state}: {node.kind} of {node.label}: {words}", style="red"))
        self._refresh()

    def note(self, words: str) -> None:
        """Say something above the bars."""
        self._console.print(Text(words))

    def _refresh(self) -> None:
        if self._bar is not None:
            failed = f", {self._failed} failed" if self._failed else ""
            self._whole.update(self._bar, completed=self._done, left=self.remaining() + failed)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._live.stop()
        if self._bar is not None:
            self._whole.remove_task(self._bar)
            self._bar = None


def make_progress(estimates: dict[str, float]) -> LogProgress | LiveProgress:
    """A live display where standard error is a terminal that can be redrawn, log lines elsewhere."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(estimates, console)
    return LogProgress(estimates)
