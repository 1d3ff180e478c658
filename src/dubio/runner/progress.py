"""Show the progress of a run: a live display on a terminal, plain log lines otherwise."""

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


def duration(seconds: float) -> str:
    """Return a duration for a reader, such as ``10 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Clock:
    """Estimates the remaining time: first by the plan's estimate, then by the time the finished work has taken."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._open = 0.0
        self._total = 0.0

    def begin(self, seconds: float) -> None:
        """Start with the estimated seconds of all work."""
        self._started = time.monotonic()
        self._open = self._total = seconds

    def finish(self, seconds: float) -> None:
        """Subtract finished work that was estimated at that many seconds."""
        self._open = max(0.0, self._open - seconds)

    def remaining(self, under_way: float, jobs: int) -> float | None:
        """Return the remaining seconds; None before an estimate is possible.

        Args:
            under_way: Estimated seconds of work done on unfinished nodes.
            jobs: Number of processes.
        """
        finished = self._total - self._open + under_way
        elapsed = time.monotonic() - self._started
        if self._total <= 0 or elapsed < 1:
            return None
        planned = (self._open - under_way) / jobs
        if finished < 0.05 * self._total:
            return planned
        return max(0.0, elapsed * (self._total - finished) / finished)


class _Counter:
    """Counts what both displays show."""

    def __init__(self, estimates: dict[str, float]) -> None:
        self._estimates = estimates
        self._clock = Clock()
        self._running: dict[str, float] = {}
        self._todo = self._ended = self._failed = 0
        self._jobs = 1

    def begin(self, todo: int, stored: int, seconds: float, jobs: int) -> None:
        """Start counting."""
        self._todo, self._ended, self._failed, self._jobs = todo, 0, 0, jobs
        self._clock.begin(seconds)

    def start(self, node: Node) -> None:
        """Count a node as running."""
        self._running[node.id] = 0.0

    def update(self, node: Node, fraction: float, detail: str) -> None:
        """Record the fraction of a node that is done."""
        self._running[node.id] = fraction

    def end(self, node: Node, state: State, reason: str) -> None:
        """Count a node as ended."""
        self._running.pop(node.id, None)
        self._clock.finish(self._estimates.get(node.id, 0.0))
        self._ended += 1
        self._failed += state == "failed"

    def remaining(self) -> str:
        """Return the remaining time as a text."""
        under_way = sum(self._estimates.get(i, 0.0) * fraction for i, fraction in self._running.items())
        seconds = self._clock.remaining(under_way, self._jobs)
        return "" if seconds is None else f"about {duration(seconds)} left"


class NoProgress(_Counter):
    """Shows nothing."""

    def note(self, text: str) -> None:
        """Drop a message."""

    def close(self) -> None:
        """Do nothing."""


class LogProgress(_Counter):
    """Plain lines with the time of day, for logs and pipes."""

    def __init__(self, estimates: dict[str, float], sink: IO[str] | None = None) -> None:
        super().__init__(estimates)
        self._sink = sink or sys.stderr
        self._since: dict[str, float] = {}

    def begin(self, todo: int, stored: int, seconds: float, jobs: int) -> None:
        """Log the amount of work."""
        super().begin(todo, stored, seconds, jobs)
        if todo:
            self.note(f"{todo} to make, {stored} already in the store, {jobs} {'job' if jobs == 1 else 'jobs'}")

    def start(self, node: Node) -> None:
        """Remember the time."""
        super().start(node)
        self._since[node.id] = time.monotonic()

    def end(self, node: Node, state: State, reason: str) -> None:
        """Log the end of a training, and every failure."""
        super().end(node, state, reason)
        elapsed = f" in {duration(time.monotonic() - self._since[node.id])}" if node.id in self._since else ""
        if state == "done" and node.kind in ("predict", "ensemble"):
            return  # one line per training is enough; a training has many of these
        if state == "done":
            tail = ", ".join(filter(None, [f"{self._ended}/{self._todo}", self.remaining()]))
            self.note(f"{reason or f'done{elapsed}'}: {node.kind} of {node.label} ({tail})")
        else:
            self.note(f"{state}: {node.kind} of {node.label}: {reason}")

    def note(self, text: str) -> None:
        """Log a message."""
        print(f"{datetime.now():%H:%M:%S} {text}", file=self._sink, flush=True)

    def close(self) -> None:
        """Do nothing: a log has nothing to restore."""


class LiveProgress(_Counter):
    """One bar for all nodes and one for each running node, redrawn in place."""

    def __init__(self, estimates: dict[str, float], console: Console | None = None) -> None:
        super().__init__(estimates)
        self._console = console or Console(stderr=True)
        bar = BarColumn(bar_width=24)
        remark = TextColumn("{task.fields[remark]}")
        self._total = Progress(TextColumn("[bold]total"), bar, MofNCompleteColumn(), remark)
        self._nodes = Progress(TextColumn("{task.fields[verb]}"), bar, TextColumn("{task.description}"))
        self._bar: TaskID | None = None
        self._bars: dict[str, TaskID] = {}
        self._live = Live(Group(self._total, self._nodes), console=self._console, refresh_per_second=4, transient=True)

    def begin(self, todo: int, stored: int, seconds: float, jobs: int) -> None:
        """Show the bar of all nodes."""
        super().begin(todo, stored, seconds, jobs)
        if not todo:
            return
        if stored:
            self.note(f"{stored} of {todo + stored} are already in the store.")
        self._bar = self._total.add_task("", total=todo, remark="")
        self._live.start()

    def start(self, node: Node) -> None:
        """Show a bar of the node."""
        super().start(node)
        self._bars[node.id] = self._nodes.add_task(escape(node.label), total=1.0, verb=VERBS[node.kind])

    def update(self, node: Node, fraction: float, detail: str) -> None:
        """Move the bar of the node."""
        super().update(node, fraction, detail)
        if node.id in self._bars:
            text = f"{escape(node.label)} [dim]{escape(detail)}"
            self._nodes.update(self._bars[node.id], completed=fraction, description=text)
        self._refresh()

    def end(self, node: Node, state: State, reason: str) -> None:
        """Remove the bar of the node; print the reason of a failure."""
        super().end(node, state, reason)
        if node.id in self._bars:
            self._nodes.remove_task(self._bars.pop(node.id))
        if state != "done":
            self._console.print(Text(f"{state}: {node.kind} of {node.label}: {reason}", style="red"))
        self._refresh()

    def note(self, text: str) -> None:
        """Print a message above the bars."""
        self._console.print(Text(text))

    def _refresh(self) -> None:
        if self._bar is not None:
            failed = f", {self._failed} failed" if self._failed else ""
            self._total.update(self._bar, completed=self._ended, remark=self.remaining() + failed)

    def close(self) -> None:
        """Restore the terminal."""
        self._live.stop()
        if self._bar is not None:
            self._total.remove_task(self._bar)
            self._bar = None


def make_progress(estimates: dict[str, float], *, show: bool = True) -> LogProgress | LiveProgress | NoProgress:
    """Return a live display if standard error is a terminal that can be redrawn, log lines otherwise.

    Args:
        estimates: Id → estimated seconds; may be filled later.
        show: False for no display at all.
    """
    if not show:
        return NoProgress(estimates)
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(estimates, console)
    return LogProgress(estimates)
