"""Concurrent requests: no id is decided twice, one flush serves many, a refused request harms no other."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import asynccontextmanager

import pytest

from dubio.core.errors import UserError
from dubio.serving.decider import Decider
from dubio.serving.exposition import Measurements
from dubio.serving.log_file import LogFailed
from dubio.serving.messages import LabelRequest, RowRequest
from dubio.serving.pipeline import Conflict, Pipeline, UnknownRow
from dubio.serving.register import Register
from tests.serving.helpers import Logistic, capacity_policy, rows


class Slow(Logistic):
    """Waits for the test before it predicts."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()

    def predictions(self, rows, references=()):
        assert self.gate.wait(20)
        return super().predictions(rows)


@asynccontextmanager
async def opened(folder, model=None, batch_rows=256, keep_rows="referred"):
    register = Register(folder, keep_rows=keep_rows)
    decider = Decider(model or Logistic(), capacity_policy())
    pipeline = Pipeline(decider, register, Measurements(), batch_rows=batch_rows)

    async def decide(*requests):
        return await pipeline.decide([decider.item(RowRequest(**own), i) for i, own in enumerate(requests)])

    pipeline.decide_rows, pipeline.register = decide, register
    try:
        yield pipeline
    finally:
        await pipeline.close()
        register.close()


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 60))


def ids_in(folder):
    register = Register(folder)
    names = list(register.state.decisions)
    register.close()
    return names


def test_an_id_that_many_send_at_once_is_decided_once(tmp_path):
    async def scenario():
        model = Slow()
        async with opened(tmp_path, model) as pipeline:
            (row,) = rows(1)
            tasks = [asyncio.create_task(pipeline.decide_rows(row)) for _ in range(20)]
            await asyncio.sleep(0.05)
            with pytest.raises(Conflict, match="'r0' was used for other content"):
                await pipeline.decide_rows({**row, "row": {"a": 0, "b": 0}})
            model.gate.set()
            answers = await asyncio.gather(*tasks)
            assert all(answer == answers[0] for answer in answers)
            assert await pipeline.decide_rows(row) == answers[0]
            assert sum(model.batches) == 1

    run(scenario())
    assert (tmp_path / "decisions.log").read_text().count('"entry":"decision"') == 1


def test_rows_that_wait_are_predicted_together_unless_batching_is_off(tmp_path):
    async def scenario(folder, batch_rows):
        model = Slow()
        async with opened(folder, model, batch_rows) as pipeline:
            tasks = [asyncio.create_task(pipeline.decide_rows(row)) for row in rows(12)]
            await asyncio.sleep(0.05)
            model.gate.set()
            answers = await asyncio.gather(*tasks)
        return model.batches, [answer[0] for answer in answers]

    batches, together = run(scenario(tmp_path / "on", 8))
    assert sum(batches) == 12
    assert len(batches) <= 3
    assert max(batches) <= 8
    batches, alone = run(scenario(tmp_path / "off", 1))
    assert batches == [1] * 12
    assert together == alone


def test_requests_that_wait_share_a_flush(tmp_path, monkeypatch):
    flush, count = os.fsync, [0]

    def slow_flush(descriptor):
        count[0] += 1
        time.sleep(0.01)
        flush(descriptor)

    async def scenario():
        async with opened(tmp_path, batch_rows=1, keep_rows="none") as pipeline:
            monkeypatch.setattr(os, "fsync", slow_flush)
            await asyncio.gather(*(pipeline.decide_rows(row) for row in rows(100)))

    run(scenario())
    assert len(ids_in(tmp_path)) == 100
    assert count[0] < 60


def test_a_refused_request_harms_no_other_and_frees_its_ids(tmp_path):
    async def scenario():
        model = Slow()
        async with opened(tmp_path, model) as pipeline:
            good, bad = rows(6), {"id": "bad", "row": {"a": 13, "b": 0}}
            tasks = [asyncio.create_task(pipeline.decide_rows(row)) for row in (*good[:3], bad, *good[3:])]
            await asyncio.sleep(0.05)
            model.gate.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(answers[3], UserError)
            assert "must not be 13" in str(answers[3])
            assert [answer[0]["id"] for answer in answers[:3] + answers[4:]] == [row["id"] for row in good]
            await pipeline.decide_rows({"id": "bad", "row": {"a": 1, "b": 0}})

    run(scenario())
    assert sorted(ids_in(tmp_path)) == ["bad", *(f"r{i}" for i in range(6))]


def test_a_request_with_one_conflict_decides_nothing(tmp_path):
    async def scenario():
        async with opened(tmp_path) as pipeline:
            first, second, third = rows(3)
            answer = await pipeline.decide_rows(first)
            with pytest.raises(Conflict):
                await pipeline.decide_rows(second, {**first, "row": {"a": 0, "b": 0}})
            with pytest.raises(UserError, match="'r2' is there twice"):
                await pipeline.decide_rows(third, third)
            mixed = await pipeline.decide_rows(second, first)
            assert mixed[1] == answer[0]

    run(scenario())
    assert ids_in(tmp_path) == ["r0", "r1"]


def test_labels_are_written_once_and_withdrawn(tmp_path):
    async def scenario():
        async with opened(tmp_path) as pipeline:
            await pipeline.decide_rows(*rows(2))
            with pytest.raises(UnknownRow, match="no row 'other'"):
                await pipeline.label(LabelRequest("other", "ham"))
            same = [pipeline.label(LabelRequest("r0", "ham")) for _ in range(5)]
            await asyncio.gather(*same)
            results = await asyncio.gather(
                *(pipeline.label(LabelRequest("r1", name)) for name in ("ham", "spam")), return_exceptions=True
            )
            assert [type(result) for result in results] == [type(None), Conflict]
            await pipeline.label(LabelRequest("r0", None))
            await pipeline.label(LabelRequest("r0", "spam"))
            assert pipeline.register.state.labels == {"r0": "spam", "r1": "ham"}

    run(scenario())
    assert (tmp_path / "decisions.log").read_text().count('"entry":"label"') == 4


def test_a_log_that_cannot_be_written_ends_the_acknowledgements(tmp_path, monkeypatch):
    async def scenario():
        async with opened(tmp_path) as pipeline:
            first, second, third = rows(3)
            answer = await pipeline.decide_rows(first)

            def fail(descriptor):
                raise OSError(5, "Input/output error")

            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fail)
                with pytest.raises(LogFailed, match="the disk reports an error"):
                    await pipeline.decide_rows(second)
            with pytest.raises(LogFailed):
                await pipeline.decide_rows(third)
            assert pipeline.failure is not None
            assert await pipeline.decide_rows(first) == answer

    run(scenario())


def test_a_row_that_was_lost_before_the_answer_is_kept_when_it_is_sent_again(tmp_path):
    row = {"id": "x", "row": {"a": 0.0, "b": 0.0}}

    async def once():
        async with opened(tmp_path) as pipeline:
            (answer,) = await pipeline.decide_rows(row)
            return answer, pipeline.register.row("x")

    answer, content = run(once())
    assert (answer["decision"], content) == ("refer", row["row"])
    (tmp_path / "rows.log").unlink()
    assert run(once()) == (answer, row["row"])


def test_a_client_that_goes_away_leaves_a_decision(tmp_path):
    async def scenario():
        model = Slow()
        async with opened(tmp_path, model) as pipeline:
            task = asyncio.create_task(pipeline.decide_rows(*rows(1)))
            await asyncio.sleep(0.05)
            task.cancel()
            model.gate.set()
            assert (await pipeline.decide_rows(*rows(1)))[0]["id"] == "r0"
            assert sum(model.batches) == 1

    run(scenario())
    assert ids_in(tmp_path) == ["r0"]
