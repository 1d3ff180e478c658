"""Data as users have it, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import dubio
from dubio.methods.recipe import Recipe
from dubio.torch_module.examples import hold_out, read_examples
from tests.torch_module.helpers import CONTINUED, Convnet, dropping, perceptron, table

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
    with pytest.raises(dubio.UserError, match=r"not the module that was fitted: head\.linear\.weight"):
        dubio.load_fit(path, network=wider)
    with pytest.raises(dubio.UserError, match="there is no folder"):
        dubio.fit("deterministic", network=perceptron, train=table(), **FAST).save(tmp_path / "no" / "mine")
    dubio.write_predictions(
        tmp_path / "other.safetensors",
        dubio.fit("deterministic", network=perceptron, train=table(), **FAST).predict(table()),
    )
    with pytest.raises(dubio.BadFile, match="not a fit of a module"):
        dubio.load_fit(tmp_path / "other.safetensors", network=perceptron)
