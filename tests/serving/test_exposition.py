"""Counts are read by Prometheus's own parser, and are those of the requests that were sent."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dubio.serving.exposition import Histogram
from tests.serving.helpers import client_of, rows


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counts_are_those_of_the_requests(tmp_path):
    with client_of(tmp_path) as client:
        decisions = client.post("/decide", json={"rows": rows(30)}).json()["decisions"]
        client.post("/decide", json={"rows": rows(30)})
        client.post("/decide", json={"rows": []})
        referred = [own["id"] for own in decisions if own["decision"] == "refer"]
        client.post("/label", json={"id": referred[0], "label": "ham"})
        client.get("/nowhere")
        response = client.get("/metrics")
        size = client.service.register.log.size
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    values = samples(response.text)
    assert values["dubio_decisions_total", ("decision", "refer")] == len(referred)
    assert values["dubio_decisions_total", ("decision", "retain")] == 30 - len(referred)
    assert values["dubio_queue_rows",] == len(referred) - 1
    assert values["dubio_labelled_rows",] == 1
    assert values["dubio_log_bytes",] == size
    assert values["dubio_requests_total", ("path", "/decide"), ("status", "200")] == 2
    assert values["dubio_requests_total", ("path", "/decide"), ("status", "422")] == 1
    assert values["dubio_requests_total", ("path", "other"), ("status", "404")] == 1
    assert values["dubio_decide_seconds_count",] == 2
    assert values["dubio_batch_rows_sum",] == 30
    assert values["dubio_flush_seconds_count",] == 2


def test_a_histogram_counts_up_to_each_bound():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 5.0):
        histogram.observe(value)
    values = samples("# TYPE h histogram\n" + "\n".join(histogram.lines("h")) + "\n")
    assert [values["h_bucket", ("le", bound)] for bound in ("1.0", "2.0", "+Inf")] == [2, 3, 4]
    assert (values["h_count",], values["h_sum",]) == (4, pytest.approx(8.0))
