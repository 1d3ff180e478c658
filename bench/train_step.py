"""Our TextCNN training step against the obvious PyTorch loop, on CLINC-like lengths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from bench.corpus import clinc_like
from bench.obvious import ObviousTextCNN, padded
from bench.timing import in_turns, line
from dubio.inference.batches import LabelledRows
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.noise import DropoutEdit
from dubio.networks.textcnn import textcnn
from dubio.training.collectors import Last
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.objectives import Objective
from dubio.training.optimisers import Adam
from dubio.training.schedules import Constant

TEXTS, CLASSES, VOCABULARY, BATCH = 3200, 150, 2196, 32


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    rows = clinc_like(TEXTS)
    labels = np.random.default_rng(0).integers(0, CLASSES, size=TEXTS)
    body = textcnn((VOCABULARY,))
    model = Model(body, Softmax().build(body.width, CLASSES))
    DropoutEdit(0.5).apply(model)
    slots = Slots(Objective(batch=BATCH, epochs=1, patience=0), Adam(), Constant(), Last())
    data, check = LabelledRows(rows, labels, CLASSES), LabelledRows(rows.take(np.arange(1)), labels[:1], CLASSES)
    context = LoopContext(torch.device("cpu"), lambda fraction, words: None)

    obvious = ObviousTextCNN(VOCABULARY, CLASSES, 0.5)
    optimiser = torch.optim.Adam(obvious.parameters(), lr=1e-3)
    targets = torch.from_numpy(labels)

    def theirs() -> None:
        obvious.train()
        for index in torch.randperm(TEXTS).split(BATCH):
            loss = torch.nn.functional.cross_entropy(obvious(padded(rows, index)), targets[index])
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(obvious.parameters(), 10.0)
            optimiser.step()

    def ours() -> None:
        train(model, slots, data, check, seed=0, member=0, context=context)

    ratio = in_turns(theirs, ours, rounds=3)
    conditions = f"{TEXTS} texts in batches of {BATCH}, dropout 0.5, Adam, clipping, float32, one thread"
    yield line("TextCNN training, one epoch, against the obvious PyTorch loop", ratio, "≥ 4 ×", conditions)
