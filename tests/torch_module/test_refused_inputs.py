"""Data and modules that would give a wrong number, or none: refused by argument and row, before anything is trained."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

import dubio
from dubio.core.registry import METHODS
from dubio.torch_module.probe import check_logits
from tests.torch_module.helpers import CONTINUED, dropping, perceptron, table

FAST = {"epochs": 1, "batch": 16}


class Listed(Dataset):
    """Examples as they are listed, with ``targets`` unless told otherwise, so that nothing is read beforehand."""

    def __init__(self, inputs, labels, *, known=True):
        self.inputs = inputs
        self.labels = [int(label) for label in labels]
        if known:
            self.targets = self.labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return self.inputs[row], self.labels[row]


def with_value(value, row=7, rows=60):
    inputs, labels = table(rows)
    inputs[row, 2] = value
    return inputs, labels


def dataset(value, row=7, *, known=True):
    inputs, labels = with_value(value, row)
    return Listed(torch.from_numpy(inputs), labels, known=known)


def refused(words, method="deterministic", **changed):
    said = []
    told = {"network": perceptron, "train": table(), "progress": lambda *w: said.append(w), **FAST, **changed}
    with pytest.raises(dubio.UserError, match=words):
        dubio.fit(method, **told)
    assert not said


@pytest.mark.parametrize(
    "make",
    [
        with_value,
        lambda value: tuple(map(torch.from_numpy, with_value(value))),
        lambda value: TensorDataset(*map(torch.from_numpy, with_value(value))),
        dataset,
        lambda value: DataLoader(dataset(value, known=False), batch_size=8, shuffle=True),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_inputs_that_are_not_finite_are_named_by_argument_and_row(make, value):
    refused(rf"train: row 7 \(counted from 0\) is {value} at 2; inputs must be finite", train=make(value))
    refused(rf"val: row 7 \(counted from 0\) is {value} at 2", val=make(value))


def test_of_a_dataset_they_are_found_when_they_are_read():
    class Later(Listed):
        reads = 0

        def __getitem__(self, row):
            self.reads += row == 30
            return self.inputs[row] + (torch.nan if self.reads == 3 else 0.0), self.labels[row]

    said = []
    told = {"train": Later(*map(torch.from_numpy, table())), "val": table(20), "progress": lambda *w: said.append(w)}
    with pytest.raises(dubio.UserError, match=r"train: row 30 \(counted from 0\) is nan at 0"):
        dubio.fit("deterministic", network=perceptron, **{**told, **FAST, "epochs": 9})
    assert len(said) == 2  # two epochs read it as it should be


def test_too_large_for_float32_is_not_finite():
    inputs = table()[0].astype(np.float64)
    inputs[11, 1] = 1e300
    refused(r"train: row 11 \(counted from 0\) is inf at 1; inputs must be finite float32", train=(inputs, table()[1]))


def test_the_place_in_an_image_and_labels_that_are_none():
    images = np.zeros((9, 1, 2, 2), np.float32)
    images[4, 0, 1, 0] = np.nan
    refused(r"train: row 4 \(counted from 0\) is nan at \[0, 1, 0\]", train=(images, np.arange(9) % 3))
    inputs, labels = table()
    labels = labels.astype(float)
    labels[5] = np.nan
    refused(r"train: labels must be class indices.*row 5 \(counted from 0\) is nan", train=(inputs, labels))


@pytest.fixture(scope="module")
def fitted():
    return dubio.fit("deterministic", network=perceptron, train=table(), **FAST)


@pytest.mark.parametrize("make", [with_value, lambda v: with_value(v)[0], dataset, lambda v: DataLoader(dataset(v))])
def test_predictions_name_the_row_of_the_inputs(fitted, make):
    with pytest.raises(dubio.UserError, match=r"x: row 7 \(counted from 0\) is nan at 2"):
        fitted.predict(make(np.nan))
    with pytest.raises(dubio.UserError, match=r"x: row 7 \(counted from 0\) is nan at 2"):
        fitted.probs(make(np.nan))


def test_whole_numbers_are_floats_where_the_module_takes_floats(fitted):
    whole = np.arange(24).reshape(6, 4) - 9
    wanted = fitted.predict(whole.astype(np.float32)).logits
    np.testing.assert_array_equal(fitted.predict(whole).logits, wanted)
    np.testing.assert_array_equal(fitted.predict(whole.tolist()).logits, wanted)
    examples = Listed(torch.from_numpy(whole), [0] * 6)
    np.testing.assert_array_equal(fitted.predict(DataLoader(examples)).logits, wanted)
    with pytest.raises(dubio.UserError, match="x: inputs have type uint8; the fit saw float32"):
        fitted.predict(np.zeros((2, 4), np.uint8))
    inputs, labels = table()
    rounded = np.round(inputs)
    told = {"network": perceptron, "train": table(), **FAST}
    ours = dubio.fit("deterministic", val=(rounded.astype(np.int64), labels), **told)
    theirs = dubio.fit("deterministic", val=(rounded, labels), **told)
    assert ours.records[0]["history"] == theirs.records[0]["history"]


def test_tokens_must_be_whole_numbers():
    tokens, labels = np.arange(60)[:, None] % 9, np.arange(60) % 2

    def network():
        return nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(4, 2))

    found = dubio.fit("deterministic", network=network, train=(tokens, labels), **FAST)
    wanted = found.predict(tokens).logits
    np.testing.assert_array_equal(found.predict(tokens.astype(np.int32)).logits, wanted)
    with pytest.raises(dubio.UserError, match="x: inputs have type float32; the fit saw int64"):
        found.predict(tokens.astype(float))
    with pytest.raises(dubio.UserError, match="val: inputs have type float32; those of train have int64"):
        dubio.fit("deterministic", network=network, train=(tokens, labels), val=(tokens * 1.0, labels), **FAST)


def ragged(*, known=True, odd=7):
    return Listed([torch.zeros(5 if row == odd else 4) for row in range(60)], table()[1], known=known)


def test_inputs_of_unequal_length_are_named():
    words = r"train: rows 0, 1, 2, … .* cannot be .* row 0 has shape \[4\], that of row 7 \[5\]. .* collate_fn"
    refused(words, train=ragged(known=False))
    words = r"train: an input has shape \[4\], that of row 7 \[5\]. Inputs must be of one shape: pad"
    refused(words, train=ragged(), val=table(20), batch=1)
    refused(r"val: .*shape \[[45]\], that of row \d+ \[[45]\]. Inputs must be of one shape", val=ragged())

    def padded(examples):
        return default_collate([(nn.functional.pad(x, (0, 5 - len(x)))[:4], y) for x, y in examples])

    dubio.fit("deterministic", network=perceptron, train=DataLoader(ragged(), collate_fn=padded), **FAST)


def test_examples_that_make_no_batch():
    refused(
        r"row 0 \(counted from 0\) cannot be put into one batch: default_collate fails: TypeError",
        train=Listed([object()] * 9, [0] * 9),
    )


@pytest.mark.parametrize("known", [True, False])
def test_several_inputs_are_refused(known):
    two = [(torch.zeros(4), torch.zeros(4))] * 60
    words = "train: the input of an example must be one tensor; given 2 parts. A module takes one input tensor"
    refused(words, train=Listed(two, table()[1], known=known))
    refused(words, train=Listed([{"a": torch.zeros(4), "b": torch.zeros(4)}] * 60, table()[1], known=known))
    inputs, labels = table()
    refused("train: 2 inputs, but 60 labels. A module takes one input tensor", train=((inputs, inputs), labels))
    refused("train: the inputs are not an array .* A module takes one", train=((inputs, inputs[:, :3]), labels))


def test_a_loader_that_makes_no_batches():
    loader = DataLoader(Listed(*map(torch.from_numpy, table())), batch_size=None)
    refused("train: a DataLoader with batch_size=None makes no batches", train=loader)


@pytest.mark.parametrize("seed", [1.5, "1", None, True, -1])
def test_a_seed_is_a_whole_number(seed):
    refused(f"seed: must be a whole number, at least 0; given {seed!r}", seed=seed)


def test_a_seed_may_be_numpys(tmp_path):
    dubio.fit("deterministic", network=perceptron, train=table(), seed=np.int64(3), **FAST).save(tmp_path / "a")
    assert dubio.load_fit(tmp_path / "a", network=perceptron).seed == 3


class Sized(nn.Module):
    def __init__(self, width, *, depth):
        super().__init__()


def test_a_function_that_needs_arguments():
    refused("network: the function is called without arguments, and needs k; .*lambda: MyModule", network=lambda k: k)
    refused("called without arguments, and needs width, depth", network=Sized)
    said = {"network": lambda p=0.5, *more, **named: dropping(p), "train": table(), **FAST}
    assert dubio.fit("deterministic", **said).samples == 1


def test_a_gaussian_needs_two_snapshots():
    words = "swag: tail_epochs must be at least 2: each gives one snapshot, .*; given 1"
    refused(words, "swag", **CONTINUED, tail_epochs=1)
    assert METHODS.make("swa", tail_epochs=1).objective.epochs == 1


def test_too_few_to_hold_some_out():
    inputs, labels = table(3)
    refused("train: 3 examples are too few to hold out a tenth .*; give more, or give val", train=(inputs, labels))
    dubio.fit("deterministic", network=perceptron, train=(inputs, labels), val=table(6), **FAST)


class Probabilities(nn.Module):
    """Logits while it is trained, probabilities otherwise."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x) if self.training else self.fc(x).exp() / self.fc(x).exp().sum(1, keepdim=True)


def test_a_module_that_gives_probabilities_is_refused():
    words = "network: the module gives probabilities"
    refused(words, network=lambda: nn.Sequential(perceptron(), nn.Softmax(1)))
    refused(words, network=Probabilities)
    several = np.eye(3, dtype=int)[table()[1]]
    told = {"train": (table()[0], several), "target": "multilabel"}
    refused(words, network=Probabilities, **told)
    refused("network: the module ends with a sigmoid", network=nn.Sequential(perceptron(), nn.Sigmoid()), **told)


@pytest.mark.parametrize("last", [nn.LogSoftmax(1), nn.ReLU(), nn.Sigmoid()])
def test_other_ends_are_logits(last):
    network = nn.Sequential(perceptron(), last)
    assert dubio.fit("deterministic", network=network, train=table(), **FAST).samples == 1
    check_logits(nn.Linear(4, 3).double(), torch.zeros(3, 4, dtype=torch.float64), "multiclass")
