"""Two ways to do the same thing, timed in turns so that a busy machine slows both alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple


class Ratio(NamedTuple):
    """Median seconds of both ways and how many times faster the second is."""

    first: float
    second: float

    @property
    def times(self) -> float:
        return self.first / self.second


def in_turns(
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:
    """Median seconds of a clock (the wall's, unless given) over rounds, after one unmeasured round."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 1):
        for way, kept in zip((first, second), seconds, strict=True):
            started = clock()
            way()
            if turn:
                kept.append(clock() - started)
    return Ratio(median(seconds[0]), median(seconds[1]))


def cpu_in_turns(first: Callable[[], object], second: Callable[[], object], *, rounds: int) -> Ratio:
    """The same in seconds of this process, which a busy machine hardly changes."""
    return in_turns(first, second, rounds=rounds, clock=time.process_time)


def least(way: Callable[[], object], *, rounds: int, clock: Callable[[], float] = time.process_time) -> float:
    """The least seconds of a clock (this process's, unless given) over rounds: what others do only ever adds."""
    seconds = []
    for _ in range(rounds):
        started = clock()
        way()
        seconds.append(clock() - started)
    return min(seconds)


def line(what: str, ratio: Ratio, aim: str, conditions: str) -> str:
    """One line of the output."""
    return f"{what}: {ratio.times:.1f} × ({ratio.first:.3f} s → {ratio.second:.3f} s; aim {aim}) [{conditions}]"
