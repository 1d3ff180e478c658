"""Counters and histograms of a server, in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Histogram:
    """Numbers of observations up to each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count a value; one thread observes, any may read."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterator[str]:
        """Yield the samples: cumulative counts by bound, sum and count."""
        counts = list(accumulate(self._counts))
        for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_sum {self._sum!r}"
        yield f"{name}_count {counts[-1]}"


class Measurements:
    """Count what a server does since it was started.

    Attributes:
        requests: (Path, status) → number.
        request: Seconds of requests to decide.
        batch: Rows that were predicted together.
        prediction: Seconds of a batch.
        flush: Seconds until decisions were on the disk.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.request, self.prediction, self.flush = Histogram(SECONDS), Histogram(SECONDS), Histogram(SECONDS)
        self.batch = Histogram(ROWS)

    def text(self, gauges: Mapping[str, tuple[str, float]], decisions: Mapping[str, int], labels: int) -> str:
        """Return everything in the text format.

        Args:
            gauges: Name → help and value.
            decisions: Decision → number of rows in the log.
            labels: Rows in the log with a label.
        """
        lines = [*_head("dubio_decisions_total", "counter", "Decisions in the log.")]
        for name in ("refer", "retain"):
            lines.append(f'dubio_decisions_total{{decision="{name}"}} {decisions.get(name, 0)}')
        gauges = {"dubio_labelled_rows": ("Rows in the log with a label.", labels), **gauges}
        lines += [*_head("dubio_requests_total", "counter", "Requests since the start, by path and status.")]
        lines += [f'dubio_requests_total{{path="{path}",status="{status}"}} {count}'
                  for (path, status), count in sorted(self.requests.items())]  # fmt: skip
        for name, (help_, value) in gauges.items():
            lines += [*_head(name, "gauge", help_), f"{name} {value}"]
        histograms = {
            "dubio_decide_seconds": ("Seconds of a request to decide.", self.request),
            "dubio_batch_rows": ("Rows predicted together.", self.batch),
            "dubio_prediction_seconds": ("Seconds of a batch.", self.prediction),
            "dubio_flush_seconds": ("Seconds until decisions were on the disk.", self.flush),
        }
        for name, (help_, histogram) in histograms.items():
            lines += [*_head(name, "histogram", help_), *histogram.lines(name)]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, help_: str) -> Iterator[str]:
    yield f"# HELP {name} {help_}"
    yield f"# TYPE {name} {kind}"
