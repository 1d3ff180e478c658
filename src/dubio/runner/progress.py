"""Show the progress of a run: a live display on a terminal, plain log lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Literal

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from dubio.runner.plan import Node

State = Literal["todo", "running", "other_process", "done", "failed", "blocked"]

VERBS = {"fit": "training", "predict": "predicting", "ensemble": "pooling", "method": "running"}


def duration(seconds: float) -> str:
    """Return a duration for a reader, such as ``10 min`` or ``12 days``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.0f} days"


class SilentProgress:
    """Counts nodes and estimates the remaining time: first by the plan's estimate, then by experience. Shows nothing.

    Args:
        estimates: Id → estimated seconds; may be filled later.
    """

    def __init__(self, estimates: Mapping[str, float]) -> None:
        self._estimates = estimates
        self._running: dict[str, float] = {}
        self._todo = self._ended = self._failed = 0
        self._started = self._open = self._total = 0.0
        self._jobs = 1

    def begin(self, todo: int, stored: int, seconds: float, jobs: int) -> None:
        """Start with the numbers of planned and stored nodes, and the estimated seconds of all work."""
        self._todo, self._ended, self._failed, self._jobs = todo, 0, 0, jobs
        self._started, self._open, self._total = time.monotonic(), seconds, seconds

    def start(self, node: Node) -> None:
        """Count a node as running."""
        self._running[node.id] = 0.0

    def update(self, node: Node, fraction: float, detail: str) -> None:
        """Record the fraction of a node that is done."""
        self._running[node.id] = fraction

    def end(self, node: Node, state: State, reason: str) -> None:
        """Count a node as ended; ``reason`` is why it failed, or that another process made it."""
        self._running.pop(node.id, None)
        self._open = max(0.0, self._open - self._estimates.get(node.id, 0.0))
        self._ended += 1
        self._failed += state == "failed"

    def note(self, text: str) -> None:
        """Show a message."""

    def close(self) -> None:
        """Restore what the display has changed."""

    def remaining_seconds(self) -> float | None:
        """Return the remaining seconds; None before an estimate is possible."""
        elapsed = time.monotonic() - self._started
        if self._total <= 0 or elapsed < 1:
            return None
        open_work = self._open - sum(self._estimates.get(i, 0.0) * share for i, share in self._running.items())
        finished = self._total - open_work
        if finished < 0.05 * self._total:
            return open_work / self._jobs
        return max(0.0, elapsed * open_work / finished)

    def remaining(self) -> str:
        """Return the remaining time as a text."""
        seconds = self.remaining_seconds()
        return "" if seconds is None else f"about {duration(seconds)} left"


class LogProgress(SilentProgress):
    """Plain lines with the time of day, for logs and pipes."""

    def __init__(self, estimates: Mapping[str, float], sink: IO[str] | None = None) -> None:
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
        """Log the end of everything but the pooling of members, which takes no time, and every failure."""
        super().end(node, state, reason)
        elapsed = f" in {duration(time.monotonic() - self._since[node.id])}" if node.id in self._since else ""
        if state == "done" and node.kind == "ensemble":
            return
        if state == "done":
            tail = ", ".join(filter(None, [f"{self._ended}/{self._todo}", self.remaining()]))
            self.note(f"{reason or f'done{elapsed}'}: {node} ({tail})")
        else:
            self.note(f"{state}: {node}: {reason}")

    def note(self, text: str) -> None:
        """Log a message."""
        print(f"{datetime.now():%H:%M:%S} {text}", file=self._sink, flush=True)


class LiveProgress(SilentProgress):
    """One bar for all nodes and one for each running node, redrawn in place."""

    def __init__(self, estimates: Mapping[str, float], console: Console | None = None) -> None:
        super().__init__(estimates)
        self._console = console or Console(stderr=True)
        bar = BarColumn(bar_width=24)
        remark = TextColumn("{task.fields[remark]}")
        self._all = Progress(TextColumn("[bold]total"), bar, MofNCompleteColumn(), remark)
        self._nodes = Progress(TextColumn("{task.fields[verb]}"), bar, TextColumn("{task.description}"))
        self._bar: TaskID | None = None
        self._bars: dict[str, TaskID] = {}
        self._live = Live(Group(self._all, self._nodes), console=self._console, refresh_per_second=4, transient=True)

    def begin(self, todo: int, stored: int, seconds: float, jobs: int) -> None:
        """Show the bar of all nodes."""
        super().begin(todo, stored, seconds, jobs)
        if not todo:
            return
        if stored:
            self.note(f"{stored} of {todo + stored} are already in the store.")
        self._bar = self._all.add_task("", total=todo, remark="")
        self._live.start()

    def start(self, node: Node) -> None:
        """Show a bar of the node."""
        super().start(node)
        if node.id in self._bars:  # it is tried again
            self._nodes.remove_task(self._bars[node.id])
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
            self._console.print(Text(f"{state}: {node}: {reason}", style="red"))
        self._refresh()

    def note(self, text: str) -> None:
        """Print a message above the bars."""
        self._console.print(Text(text))

    def _refresh(self) -> None:
        if self._bar is not None:
            failed = f", {self._failed} failed" if self._failed else ""
            self._all.update(self._bar, completed=self._ended, remark=self.remaining() + failed)

    def close(self) -> None:
        """Restore the terminal."""
        self._live.stop()
        if self._bar is not None:
            self._all.remove_task(self._bar)
            self._bar = None


def make_progress(estimates: Mapping[str, float], *, show: bool = True) -> SilentProgress:
    """Return a live display if standard error is a terminal that can be redrawn, log lines otherwise.

    Args:
        estimates: Id → estimated seconds; may be filled later.
        show: False for no display at all.
    """
    if not show:
        return SilentProgress(estimates)
    console = Console(stderr=True)
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveProgress(estimates, console) if live else LogProgress(estimates)
