"""Tiny data and modules."""

import numpy as np
from torch import nn

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
