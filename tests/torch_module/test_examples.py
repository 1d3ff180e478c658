"""Data as users have it, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

import dubio
from dubio.methods.recipe import Recipe
from dubio.torch_module.examples import hold_out, read_examples
from tests.torch_module.helpers import (
    CONTINUED,
    ONE_EPOCH,
    Convnet,
    Listed,
    dataset,
    dropping,
    perceptron,
    refused,
    table,
    with_value,
)

FAST = {"epochs": 2, "batch": 16}


class Counting(Dataset):
    """Rows made when they are asked for."""

    def __init__(self, rows=60, **more):
        self.inputs, self.labels = table(rows)
        self.asked = []
        self.__dict__.update(more)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        self.asked.append(row)
        return torch.from_numpy(self.inputs[row]), int(self.labels[row])


class Streaming(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(4), 0)])


def logits_of(train, val):
    fitted = dubio.fit("swag", network=perceptron, train=train, val=val, **CONTINUED, tail_epochs=2, samples=2)
    return fitted.predict(table(30, 2)).logits


def test_every_way_of_giving_the_same_data_gives_the_same_bits():
    inputs, labels = table()
    val = table(20, 1)
    tensors = (torch.from_numpy(inputs), torch.from_numpy(labels))
    wanted = logits_of((inputs, labels), val)
    np.testing.assert_array_equal(logits_of((inputs.astype(np.float64), labels.tolist()), val), wanted)
    np.testing.assert_array_equal(logits_of(tensors, DataLoader(TensorDataset(*map(torch.tensor, val)))), wanted)
    np.testing.assert_array_equal(logits_of(Counting(), val), wanted)
    shuffled = DataLoader(Counting(), batch_size=16, shuffle=True, drop_last=True)
    np.testing.assert_array_equal(logits_of(shuffled, val), wanted)


def test_a_loaders_batch_size_counts_unless_another_is_given():
    loader = DataLoader(Counting(), batch_size=10)
    assert dubio.fit("deterministic", network=perceptron, train=loader, epochs=1).recipe.objective.batch == 10
    given = dubio.fit("deterministic", network=perceptron, train=loader, epochs=1, batch=20)
    assert given.recipe.objective.batch == 20


def test_a_dataset_is_read_row_by_row_and_its_list_of_labels_trusted_where_it_is_one():
    plain = Counting()
    given = read_examples(plain, "train")
    assert sorted(set(plain.asked)) == list(range(60))
    listing = Counting(targets=table()[1].tolist())
    np.testing.assert_array_equal(read_examples(listing, "train").labels, given.labels)
    assert set(listing.asked) == {0}
    wrong = Counting(targets=[2] * 60)
    np.testing.assert_array_equal(read_examples(wrong, "train").labels, given.labels)
    listing.asked.clear()
    given.take(np.array([7, 3]))
    assert not listing.asked
    np.testing.assert_array_equal(given.take(np.array([7, 3])).at(np.array([1])), table()[0][[3]])


def test_a_collate_function_is_used():
    def double(examples):
        return torch.stack([x for x, _ in examples]) * 2.0, torch.tensor([y for _, y in examples])

    given = read_examples(DataLoader(Counting(), batch_size=4, collate_fn=double), "train")
    np.testing.assert_array_equal(given.rows.at(np.arange(5)), table()[0][:5] * 2.0)


def test_a_tenth_of_every_class_is_held_out():
    labels = np.repeat([0, 1, 2], [100, 50, 20])
    rest, held = hold_out(labels)
    assert sorted([*rest, *held]) == list(range(170))
    np.testing.assert_array_equal(np.bincount(labels[held]), [10, 5, 2])


def test_without_labels_predictions_are_unlabelled():
    fitted = dubio.fit("deterministic", network=perceptron, train=table(), classes=["a", "b", "c"], **FAST)
    inputs, labels = table()
    assert (fitted.predict(inputs).labels == -1).all()
    np.testing.assert_array_equal(fitted.predict(inputs, labels).labels, labels)
    np.testing.assert_array_equal(fitted.predict(DataLoader(Counting())).labels, labels)
    assert fitted.predict(inputs).classes == ("a", "b", "c")
    accuracy = dubio.evaluate(fitted.predict(inputs, labels), replicates=0)["accuracy"]
    assert accuracy == pytest.approx((fitted.probs(inputs).argmax(1) == labels).mean())


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x), x


def tied():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    return module


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"method": "swagg"}, "Did you mean 'swag'"),
        ({"method": "sngp"}, "cannot be used on your own module.*Supported: .*swag"),
        ({"method": "mc-concrete-dropout"}, "no site for 'concrete_dropout'"),
        ({"method": Recipe("mine")}, "epochs: a recipe has its arguments"),
        ({"network": 3}, "must be an nn.Module, or a function"),
        ({"network": lambda: 3}, "it made a int"),
        ({"network": Pair}, "it gave tuple"),
        ({"network": nn.Linear(4, 1)}, "at least 2 classes"),
        ({"network": Convnet}, "fails on a batch of shape"),
        ({"network": tied}, "weights must not be shared"),
        ({"network": perceptron().double}, "only torch.float32"),
        ({"network": lambda: nn.Sequential(nn.LazyLinear(3))}, "has no shape yet"),
        ({"network": lambda: perceptron().requires_grad_(False)}, "no trainable parameter"),
        ({"train": table()[0]}, "train: labels are needed"),
        ({"train": (table()[0], table(50)[1])}, "60 inputs, but 50 labels"),
        ({"train": (table()[0], table()[1] + 1)}, "between 0 and 2.*1 to 3"),
        ({"train": (table()[0], table()[1] + 0.5)}, "labels must be class indices"),
        ({"train": (np.array([["a"] * 4] * 60), table()[1])}, "inputs must be numbers"),
        ({"train": list(table())}, "as a tuple"),
        ({"train": (*table(), table()[1])}, "given a tuple of 3"),
        ({"train": Streaming()}, "only streams"),
        ({"train": DataLoader(Streaming())}, "only streams"),
        ({"val": (np.zeros((5, 3)), np.zeros(5, int))}, "val: an input has shape"),
        ({"classes": ["a", "b"]}, "classes: the module gives 3 logits"),
        ({"target": "regression"}, "unknown value of target"),
        ({"device": "nowhere"}, "device: 'nowhere' cannot be used"),
        ({"epoch": 3}, "unknown argument of deterministic 'epoch'"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(changed, words):
    told = {"method": "deterministic", "network": perceptron, "train": table(), **FAST, **changed}
    with pytest.raises(dubio.UserError, match=words):
        dubio.fit(told.pop("method"), **told)


def test_predicting_something_else_is_refused():
    fitted = dubio.fit("deterministic", network=perceptron, train=table(), **FAST)
    with pytest.raises(dubio.UserError, match=r"an input has shape \[3\]; the fit saw \[4\]"):
        fitted.predict(np.zeros((2, 3)))


class Scaled(nn.Module):
    """Ends with something else than a dense layer."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return 2.0 * self.fc(x)


def test_a_last_layer_is_needed_only_where_it_is_the_method():
    assert dubio.fit("laplace", network=Scaled, train=table(), samples=2, **FAST).samples == 2
    told = []
    with pytest.raises(dubio.UserError, match="needs a last layer"):
        dubio.fit(
            "laplace", network=Scaled, train=table(), structure="last-kron", progress=lambda *w: told.append(w), **FAST
        )
    assert not told  # known before anything is trained


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("swag-ensemble", {**CONTINUED, "tail_epochs": 2, "samples": 2, "members": 2}),
        ("mc-dropout", {"epochs": 1, "samples": 3}),
        ("laplace", {"epochs": 1, "samples": 2}),
        ("mean-field-vi", {"epochs": 1, "samples": 2}),
        ("fge", {**CONTINUED, "cycles": 2, "store": "float16"}),
    ],
)
def test_what_is_saved_predicts_the_same(tmp_path, name, more):
    fitted = dubio.fit(name, network=dropping, train=table(), classes=["a", "b", "c"], **more)
    fitted.save(tmp_path / "mine.safetensors")
    again = dubio.load_fit(tmp_path / "mine.safetensors", network=dropping)
    wanted, found = fitted.predict(table()), again.predict(table())
    np.testing.assert_array_equal(found.logits, wanted.logits)
    assert found.classes == wanted.classes
    np.testing.assert_array_equal(found.member, wanted.member)
    assert (again.recipe, again.records) == (fitted.recipe, fitted.records)


def test_a_file_of_another_module_is_refused(tmp_path):
    path = tmp_path / "mine.safetensors"
    dubio.fit("deterministic", network=perceptron, train=table(), **FAST).save(path)
    wider = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 3))
    with pytest.raises(dubio.UserError, match=r"not the module that was fitted: \d+\.weight"):
        dubio.load_fit(path, network=wider)
    with pytest.raises(dubio.UserError, match="there is no folder"):
        dubio.fit("deterministic", network=perceptron, train=table(), **FAST).save(tmp_path / "no" / "mine")
    dubio.write_predictions(
        tmp_path / "other.safetensors",
        dubio.fit("deterministic", network=perceptron, train=table(), **FAST).predict(table()),
    )
    with pytest.raises(dubio.BadFile, match="not a fit of a module"):
        dubio.load_fit(tmp_path / "other.safetensors", network=perceptron)


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
        dubio.fit("deterministic", network=perceptron, **{**told, **ONE_EPOCH, "epochs": 9})
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

    dubio.fit("deterministic", network=perceptron, train=DataLoader(ragged(), collate_fn=padded), **ONE_EPOCH)


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
