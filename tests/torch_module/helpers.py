"""Tiny data and modules."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import dubio

CONTINUED = {"epochs": 2, "patience": 0, "collect": "last", "batch": 16}


def table(rows=60, seed=0, classes=3):
    """Rows whose first numbers tell the class."""
    generator = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    inputs = generator.normal(size=(rows, 4)) + 2.0 * np.eye(classes, 4)[labels]
    return inputs.astype(np.float32), labels


def pictures(rows=40, seed=0):
    """Dark and light images."""
    generator = np.random.default_rng(seed)
    labels = np.arange(rows) % 2
    return (generator.normal(size=(rows, 1, 6, 6)) + labels[:, None, None, None]).astype(np.float32), labels


def perceptron():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def dropping(p=0.5):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(p), nn.Linear(8, 3))


class Convnet(nn.Module):
    """Batch-norm, channel dropout, and one dropout layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.channels = nn.Dropout2d(0.25)
        self.drop = nn.Dropout(0.5)
        self.hidden = nn.Linear(27, 6)
        self.fc = nn.Linear(6, 2)

    def forward(self, x):
        h = self.channels(self.norm(self.conv(x)).relu())
        h = self.drop(nn.functional.max_pool2d(h, 2).flatten(1))
        return self.fc(self.drop(self.hidden(h).relu()))


class Otherwise(nn.Module):
    """A module that ends otherwise than with a dense layer, and has layers of which no curvature can be taken."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.unused = nn.Linear(4, 2)  # called, and nothing comes of it
        self.apart = nn.Linear(4, 8)  # passed without a gradient
        self.turned = nn.Linear(1, 1)  # the batch is its second axis
        self.flat = nn.Linear(2, 2)  # examples and positions are one axis
        self.fixed = nn.Linear(8, 8)
        self.fixed.bias.requires_grad_(False)
        self.last = nn.Linear(8, 3)
        self.warmth = nn.Parameter(torch.ones(1))

    def forward(self, x):
        self.unused(x)
        with torch.no_grad():
            apart = self.apart(x)
        h = (self.first(x) + apart).relu()
        h = h + self.turned(h.T[:, :, None])[:, :, 0].T
        h = h + self.flat(h.reshape(-1, 2)).reshape(h.shape)
        return self.last(self.fixed(h).relu()) * self.warmth


class Mixing(nn.Module):
    """No dense or convolutional layer at all."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 3))

    def forward(self, x):
        return x @ self.weight


ONE_EPOCH = {"epochs": 1, "batch": 16}


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
    told = {"network": perceptron, "train": table(), "progress": lambda *w: said.append(w), **ONE_EPOCH, **changed}
    with pytest.raises(dubio.UserError, match=words):
        dubio.fit(method, **told)
    assert not said
