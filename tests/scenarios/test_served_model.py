"""A served model decides as the loaded one does, whatever the batch; a policy of another model is refused."""

from __future__ import annotations

import signal
from dataclasses import replace

import httpx
import pytest

import dubio
from dubio.core.errors import UserError
from dubio.deployment.model import NEAR
from dubio.serving import serve
from dubio.serving.decider import Decider
from dubio.serving.messages import RowRequest
from tests.serving.helpers import command


@pytest.fixture(scope="module")
def folder(texts_run, tmp_path_factory):
    from dubio.deployment.folder import export_model
    from dubio.deployment.run_models import RunModel
    from dubio.referral import fit_capacity_policy

    selected = RunModel.select(texts_run, "mc-dropout")
    model = selected.model()
    policy = fit_capacity_policy(selected.stored("cal", model), capacity=0.3)
    return export_model(selected, model.with_parts(policy=policy), tmp_path_factory.mktemp("export") / "model")


@pytest.fixture(scope="module")
def texts(texts_csv):
    return [line.split('"')[1] for line in texts_csv.read_text().splitlines()[1:61]]


def test_the_server_decides_as_the_loaded_model_does_about_each_row_alone(folder, texts, tmp_path):
    model = dubio.load(folder)
    requests = [{"id": f"t{index}", "row": {"review": text}} for index, text in enumerate(texts)]
    with command(str(folder), "--log", str(tmp_path / "log")) as (process, address):
        assert httpx.get(f"{address}/health").json()["model"] == model.identity
        response = httpx.post(f"{address}/decide", json={"rows": requests}, timeout=60)
        assert response.status_code == 200, response.text
        decisions = response.json()["decisions"]
        one = httpx.post(f"{address}/decide", json={"rows": [{"row": {"review": texts[0]}}]}).json()["decisions"][0]
        bad = httpx.post(f"{address}/decide", json={"rows": [{"row": {"text": "x"}}]})
        assert (bad.status_code, "review" in bad.json()["error"]) == (422, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert one["probabilities"] == pytest.approx(decisions[0]["probabilities"], abs=1e-5)
    for text, decision in zip(texts, decisions, strict=True):
        (expected,) = model.decide([{"review": text}]).rows()
        probabilities = dict(zip(model.classes, model.predict_proba([text])[0].tolist(), strict=True))
        assert decision["probabilities"] == pytest.approx(probabilities, abs=1e-5)
        if not expected["reason"].endswith(NEAR):
            assert (decision["decision"], decision["answer"]) == (expected["decision"], expected["predicted"])


def test_a_policy_of_another_model_is_refused_unless_forced(folder, texts, tmp_path):
    model = dubio.load(folder)
    other = replace(model.policy, system="0" * 64)
    with pytest.raises(UserError, match="was fitted for the model 000000000000"):
        serve(model, policy=other, log=tmp_path, port=0)
    decider = Decider(model, other, force=True)
    (decision,) = decider.decide([decider.item(RowRequest({"review": texts[0]}), 0)])
    assert decision["decision"] in ("refer", "retain")


def test_a_row_at_the_threshold_is_said_to_be_there(folder, texts):
    model = dubio.load(folder)
    threshold = float(model.uncertainty([texts[0]])[0])
    decider = Decider(model, replace(model.policy, threshold=threshold))
    rows = [RowRequest({"review": text}) for text in (texts[0], "good good fast fine")]
    near, far = decider.decide([decider.item(row, number) for number, row in enumerate(rows)])
    assert near["reason"].endswith(NEAR)
    assert not far["reason"].endswith(NEAR)


def test_a_model_without_a_policy_needs_one(folder, tmp_path):
    model = dubio.load(folder).with_parts(policy=None)
    with pytest.raises(UserError, match="the model has no policy of its own: give one"):
        serve(model, log=tmp_path, port=0)
    with pytest.raises(UserError, match="no-such-model"):
        serve(tmp_path / "no-such-model", log=tmp_path, port=0)
