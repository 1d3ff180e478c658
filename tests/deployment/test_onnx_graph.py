from __future__ import annotations

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.deployment.model import TOLERANCE
from dubio.deployment.onnx_graph import write_onnx
from dubio.encoders import WordPieceEncoding
from dubio.methods import NetworkSpec
from tests.deployment.helpers import TASKS, fitted_model

onnxruntime = pytest.importorskip("onnxruntime")

SINGLE_PASS = [
    pytest.param("table", "deep-ensemble", {"epochs": 1, "members": 2}, id="table"),
    pytest.param("table", "packed-ensemble", {"epochs": 1}, id="table-packed"),
    pytest.param("table", "vbll", {"epochs": 1, "samples": 0}, id="table-vbll"),
    pytest.param("image", "batch-ensemble", {"epochs": 1}, id="image-batch", marks=pytest.mark.slow),
    pytest.param("text", "masksembles", {"epochs": 1}, id="text-masks", marks=pytest.mark.slow),
    pytest.param("image", "deterministic", {"epochs": 1}, id="image", marks=pytest.mark.slow),
    pytest.param("text", "deterministic", {"epochs": 1}, id="text", marks=pytest.mark.slow),
    *(pytest.param("table", name, {"epochs": 8, "cycles": 2}, id=name, marks=pytest.mark.slow)
      for name in ("csghmc", "csgld")),
    pytest.param("table", "snapshot-ensemble", {"epochs": 4, "cycles": 2}, id="snapshots", marks=pytest.mark.slow),
    pytest.param("table", "swag", {"epochs": 2, "samples": 3}, id="weights-drawn-once", marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "method", "arguments"), SINGLE_PASS)
def test_a_graph_gives_the_probabilities_of_torch_with_the_temperature(inputs, method, arguments, tmp_path):
    from dubio.calibration.recalibration import FittedOn, Recalibration, TemperatureScaling

    task = TASKS[inputs]()
    plain = fitted_model(method, task, **arguments)
    parts = ("temperature", "multiclass", len(plain.classes), None, TemperatureScaling(2.5), FittedOn(9, "", 1.0, 1.0))
    model = plain.with_parts(recalibration=Recalibration(*parts))
    write_onnx(model, tmp_path / "model.onnx", task.of_kind("id")[0].data)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    rows = task.of_kind("train")[0].data  # others than those of the export, and another number
    if inputs == "text":
        encoded = model.encoder.encode(rows)
        tokens = np.zeros((len(rows), 30), dtype=np.int64)
        for row, length in enumerate(encoded.lengths):
            tokens[row, :length] = encoded.tokens[encoded.offsets[row] : encoded.offsets[row + 1]]
        feed = {"tokens": tokens, "lengths": encoded.lengths.astype(np.int64)}
    else:
        feed = {"numbers": rows.inputs.astype(np.float32)} if inputs == "table" else {"images": rows.inputs}
    (probabilities,) = session.run(None, feed)
    np.testing.assert_allclose(probabilities, model.of_examples(rows).probs, atol=TOLERANCE, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("trained", "members"), [(None, 1), (1, 2)], ids=["all-blocks", "frozen-ensemble"])
def test_bert_is_a_graph_with_its_frozen_blocks(trained, members, tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="the extra bert is not installed")
    from dubio.encoders.pretrained import resolve_encoder
    from tests.networks.helpers import save_bert

    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tiny").mkdir()
    encoder = resolve_encoder(str(save_bert(tmp_path / "tiny")))
    task = TASKS["text"]()
    network = NetworkSpec("bert", {"encoder": encoder, "trainable_layers": trained})
    arguments = {"epochs": 1, "members": members} if members > 1 else {"epochs": 1}
    method = "deep-ensemble" if members > 1 else "deterministic"
    model = fitted_model(method, task, network=network, encoding=WordPieceEncoding(encoder=encoder), **arguments)
    write_onnx(model, tmp_path / "model.onnx", task.of_kind("id")[0].data)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    rows = task.of_kind("train")[0].data
    encoded = model.encoder.encode(rows)
    tokens = np.zeros((len(rows), 40), dtype=np.int64)  # longer than any text: padding changes nothing
    for row, length in enumerate(encoded.lengths):
        tokens[row, :length] = encoded.tokens[encoded.offsets[row] : encoded.offsets[row + 1]]
    (probabilities,) = session.run(None, {"tokens": tokens, "lengths": encoded.lengths.astype(np.int64)})
    np.testing.assert_allclose(probabilities, model.of_examples(rows).probs, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(
    ("method", "arguments", "words"),
    [
        ("mc-dropout", {"epochs": 1, "samples": 2}, "draws noise"),
        ("heteroscedastic", {"epochs": 1}, "in its head"),
        ("vbll", {"epochs": 1, "samples": 2}, "draws noise"),
        ("linear", {}, "is not a network"),
        ("laplace-ensemble", {"epochs": 1, "members": 5}, "has 100 weight states; a graph holds 64"),
    ],
)
def test_what_is_no_single_pass_is_refused_by_name(method, arguments, words, tmp_path):
    task = TASKS["table"]()
    with pytest.raises(UserError, match=f"{method}.*{words}"):
        write_onnx(fitted_model(method, task, **arguments), tmp_path / "model.onnx", task.of_kind("id")[0].data)
    assert list(tmp_path.iterdir()) == []
