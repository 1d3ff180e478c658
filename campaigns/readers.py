"""Every reader of a user's file: valid files, how they are damaged, and the commands or functions that read them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random

from campaigns import reading, seeds, store_seeds
from campaigns.corpus_seeds import jsonl_corpora, photographs, text_corpora
from campaigns.mutators import Mutator, either
from campaigns.mutators.arrays import (
    mutate_npy,
    mutate_safetensors,
    mutate_zip,
    npy_bytes,
)
from campaigns.mutators.documents import mutate_json, mutate_json_lines, mutate_toml
from campaigns.mutators.parquet import mutate_parquet
from campaigns.mutators.pictures import (
    mutate_archive,
    mutate_idx,
    mutate_pickle,
    mutate_png,
    mutate_sheet,
    mutate_tar,
)
from campaigns.mutators.raw import any_bytes, gzipped
from campaigns.mutators.tables import mutate_table
from campaigns.seeds import Tree

Action = str | Callable[[Path], object]
"""A command line of dubio, or a function of the case's folder; either reads the damaged file."""


@dataclass(frozen=True)
class Reader:
    """One kind of file that dubio reads.

    Attributes:
        name: Its name.
        trees: Makes the valid files; one of the trees is damaged in a case.
        damaged: Patterns of the files that may be damaged, with the mutator of each.
        actions: Commands (words separated by spaces; OUT is a new file) and functions, one of which a case runs.
        share: How often it is drawn, relative to the others.
        writes: Whether its commands may change the folder beside what they write to OUT.
    """

    name: str
    trees: Callable[[], list[Tree]]
    damaged: tuple[tuple[str, Mutator], ...]
    actions: tuple[Action, ...]
    share: float = 1.0
    writes: bool = False

    def damage(self, rng: Random) -> tuple[Tree, str]:
        """Return the files of a case, and the one that was damaged."""
        tree = dict(rng.choice(self.trees()))
        matching = [
            (pattern, mutator) for pattern, mutator in self.damaged if any(fnmatch(name, pattern) for name in tree)
        ]
        pattern, mutator = rng.choice(matching)
        name = rng.choice([name for name in tree if fnmatch(name, pattern)])
        change = any_bytes if rng.random() < 0.15 else mutator
        tree[name] = change(rng, tree[name])
        return tree, name


def resealed(mutator: Mutator) -> Mutator:
    """Return a mutator that often gives the damaged record of a store a right seal again, as its author could."""

    def mutate(rng: Random, raw: bytes) -> bytes:
        from dubio.core.errors import DubioError
        from dubio.store.records import seal

        damaged = mutator(rng, raw)
        if rng.random() < 0.3:
            return damaged
        try:
            return seal(json.loads(damaged))
        except (ValueError, TypeError, AttributeError, RecursionError, DubioError):
            return damaged

    return mutate


def chained(mutator: Mutator) -> Mutator:
    """Return a mutator of one frame of a log that gives it, and all after it, right checksums, as its author could."""

    def mutate(rng: Random, raw: bytes) -> bytes:
        payloads = [line[33:] for line in raw.splitlines()]
        index = rng.randrange(len(payloads))
        payloads[index] = mutator(rng, payloads[index])
        previous, lines = b"0" * 32, []
        for payload in payloads:
            previous = sha256(previous + payload).hexdigest()[:32].encode()
            lines.append(previous + b" " + payload + b"\n")
        return b"".join(lines)

    return mutate


PLAIN = (
    "evaluate {} --json --replicates 5",
    "evaluate {} --replicates 5 --by site",
    "evaluate good.npz --ood {} --json --replicates 5",
    "calibrate fit {} -o OUT.json",
    "calibrate apply temperature.json {} -o OUT.npz",
    "calibrate fit {} --method isotonic -o OUT.json",
    "refer fit {} --max-risk 0.4 -o OUT.json",
    "refer apply risk.json {} -o OUT.csv --json",
    "calibrate fit {} --method vector -o OUT.json",
    "calibrate apply vector.json {} -o OUT.safetensors",
    "refer fit {} --capacity 0.2 -o OUT.json --json",
    "evaluate {} --group group --by site --replicates 5",
    "refer apply risk.json {} -o OUT.csv --per group",
)
SAMPLED = (
    "evaluate {} --json --replicates 5",
    "evaluate {} --replicates 5",
    "dee {} --ensemble {} --json --orders 1",
    "calibrate fit {} -o OUT.json",
    "refer fit {} --capacity 0.2 -o OUT.json --quantity mutual_information",
)
SEVERAL_LABELS = (
    "evaluate {} --json --replicates 5 --target multilabel",
    "evaluate {} --thresholds-from {} --replicates 5 --target multilabel",
    "calibrate fit {} -o OUT.json --target multilabel",
)
LABELS = ("evaluate probs.npy --values probs --labels {} --json --replicates 5",)
ARRAYS = (
    "evaluate {} --values probs --labels labels.npy --json --replicates 5",
    "calibrate apply temperature.json {} -o OUT.npz --values probs",
    "refer apply risk.json {} -o OUT.csv --values probs",
)


def _about(path: str, *commands: str) -> tuple[str, ...]:
    return tuple(command.replace("{}", path) for command in commands)


def _beside(path: str, *contents: bytes) -> list[Tree]:
    """Return trees of a file of predictions and the files that the commands need beside it."""
    made = seeds.referral_files()
    others = {name: made[name] for name in ("temperature.json", "risk.json", "vector.json")}
    arrays = {"labels.npy": npy_bytes(seeds.class_labels()), "probs.npy": npy_bytes(seeds.probabilities())}
    return [{"good.npz": made["new.npz"], **others, **arrays, path: content} for content in contents]


def _predictions(
    name: str,
    path: str,
    contents: Callable[[], list[bytes]],
    mutator: Mutator,
    share: float = 1.0,
    commands: tuple[str, ...] = PLAIN,
) -> Reader:
    return Reader(name, _once(lambda: _beside(path, *contents())), ((path, mutator),), _about(path, *commands), share)


def _once(make: Callable[[], list[Tree]]) -> Callable[[], list[Tree]]:
    kept: list[list[Tree]] = []

    def trees() -> list[Tree]:
        if not kept:
            kept.append(make())
        return kept[0]

    return trees


def _made(*names: str) -> Callable[[], list[Tree]]:
    """Return trees of files that dubio's own commands wrote; the first is the file ``damaged``."""

    def trees() -> list[Tree]:
        made = seeds.referral_files()
        rows = {name: made["two.npz" if name == "screening.json" else "cal.npz"] for name in names}
        return [{"damaged.json": made[name], "rows.npz": rows[name]} for name in names]

    return _once(trees)


def _own(ending: str, content: Callable[[], bytes], mutator: Mutator) -> Reader:
    path = f"own{ending}"
    commands = _about(
        path,
        "data check {} --text text --label label",
        "data check {} --label label --features age,dose --json",
        "data check {} --text text --label label --group patient --time date",
        "data check {} --label label --features age,dose --id id --split-seed 3",
        "data check {} --text text --label label --domain site --train-domain north",
        "data check {} --text text --label site --novel auto",
        "data check {} --label label --features age --label-separator ;",
    )
    return Reader(f"own{ending}", _once(lambda: [{path: content()}]), ((path, mutator),), commands)


def _corpora() -> list[Tree]:
    packed = [{f"{name}.gz": gzip.compress(raw, mtime=0) for name, raw in tree.items()} for tree in jsonl_corpora()]
    return [*text_corpora(), *jsonl_corpora(), *packed]


def _text(text: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode()]


def _results() -> list[Tree]:
    return [
        {f"results{Path(name).suffix}": text.encode()} for name, text in seeds.RESULTS.items() if name != "long.csv"
    ]


MUTATE_OWN_JSON = either(mutate_json_lines, any_bytes, chances=(5, 1))
RECORDED = store_seeds.store_tree

READERS = (
    _predictions("npz", "mine.npz", seeds.predictions_npz, mutate_zip, 2),
    _predictions("npz of samples", "mine.npz", seeds.sampled_npz, mutate_zip, 1, SAMPLED),
    _predictions("npz of several labels", "mine.npz", seeds.multilabel_npz, mutate_zip, 0.5, SEVERAL_LABELS),
    _predictions("npy", "probs.npy", lambda: [npy_bytes(seeds.probabilities())], mutate_npy, 1, ARRAYS),
    _predictions("labels", "labels.npy", lambda: [npy_bytes(seeds.class_labels())], mutate_npy, 0.5, LABELS),
    _predictions(
        "labels.csv",
        "labels.csv",
        _text("label\n" + "".join(f"{k}\n" for k in seeds.class_labels())),
        mutate_table,
        0.5,
        LABELS,
    ),
    _predictions(
        "safetensors", "mine.safetensors", lambda: [seeds.referral_files()["own.safetensors"]], mutate_safetensors, 1.5
    ),
    _predictions("csv", "mine.csv", _text(seeds.table_text()), mutate_table, 1.5),
    _predictions("csv of samples", "mine.csv", _text(seeds.long_table()), mutate_table, 0.5, SAMPLED[:4]),
    _predictions("tsv", "mine.tsv", _text(seeds.table_text("\t")), mutate_table, 0.7),
    _predictions(
        "csv.gz",
        "mine.csv.gz",
        lambda: [gzip.compress(seeds.table_text().encode(), mtime=0)],
        gzipped(mutate_table),
        0.7,
    ),
    _predictions("jsonl", "mine.jsonl", lambda: [seeds.json_lines(seeds.records())], mutate_json_lines),
    _predictions("parquet", "mine.parquet", lambda: [seeds.parquet_predictions()], mutate_parquet, 2),
    Reader(
        "policy",
        _made("risk.json", "capacity.json", "group.json", "screening.json"),
        (("damaged.json", mutate_json),),
        (
            "refer apply damaged.json rows.npz -o OUT.csv --json",
            "refer apply damaged.json rows.npz -o OUT.csv --per group --force",
        ),
        2,
    ),
    Reader(
        "decision log",
        _once(lambda: [seeds.decision_log()]),
        (("log/*.log", chained(mutate_json)),),
        (reading.read_register,),
        writes=True,
    ),
    Reader(
        "recalibration",
        _made("temperature.json", "vector.json", "isotonic.json"),
        (("damaged.json", mutate_json),),
        (
            "calibrate apply damaged.json rows.npz -o OUT.npz",
            "evaluate rows.npz --calibration damaged.json --replicates 5 --json",
        ),
        2,
    ),
    Reader(
        "results",
        _once(lambda: [{"results.csv": seeds.RESULTS["long.csv"].encode()}]),
        (("results.csv", mutate_table),),
        ("compare results.csv --metric nll --json", "compare results.csv --metric nll --round 2 --seed-col seed"),
    ),
    Reader(
        "results of papers",
        _once(_results),
        (("results*", mutate_table),),
        tuple(
            command
            for ending in (".csv", ".md", ".tex")
            for command in _about(
                f"results{ending}",
                "compare {} --metric accuracy --json",
                "compare {} --metric score --better score=higher",
            )
        ),
    ),
    Reader(
        "benchmark",
        _once(lambda: [{"tiny.toml": seeds.BENCHMARK, "own.csv": seeds.delimited(seeds.own_rows())}]),
        (("tiny.toml", mutate_toml),),
        ("run tiny.toml --dry-run --json", "run tiny.toml --preset small --dry-run"),
        2,
    ),
    Reader(
        "manifest",
        _once(lambda: [RECORDED()]),
        (("store/runs/*.json", resealed(mutate_json)), ("store/store.json", mutate_json)),
        (
            "store ls --store store",
            "store verify --store store",
            "dee --store store --orders 1 --json",
            "store gc --store store --unreferenced",
            "store export OUT.zip --store store",
            "store merge store --into OUT",
            "store ls --store store --json",
        ),
        2,
        writes=True,
    ),
    Reader(
        "pages of a store",
        _once(lambda: [RECORDED()]),
        (("store/runs/*.json", resealed(mutate_json)), ("store/*/*/record.json", resealed(mutate_json))),
        (
            "compare --store store --json",
            "compare --store store --kind shift",
            "report --store store --out OUT",
        ),
        0.05,
        writes=True,
    ),
    Reader(
        "records",
        _once(lambda: [RECORDED()]),
        (
            ("store/*/*/record.json", resealed(mutate_json)),
            ("store/*/*/spec.json", mutate_json),
            ("store/*/*/encoder.json", mutate_json),
            ("store/*/*/*.safetensors", mutate_safetensors),
            ("store/failures/*", mutate_json),
            ("store/index.sqlite", any_bytes),
            ("store/pictures/*", mutate_png),
        ),
        (
            "store ls --store store",
            "store verify --store store --json",
            "dee --store store --orders 1",
            "store gc --store store --unreferenced --json",
            "store export OUT.tar --store store",
            reading.read_fits,
        ),
        2,
        writes=True,
    ),
    Reader(
        "checkpoint",
        _once(lambda: [RECORDED()]),
        (("store/checkpoints/*/latest.json", mutate_json), ("store/checkpoints/*/*.safetensors", mutate_safetensors)),
        (reading.load_checkpoint, "store verify --store store", "store gc --store store"),
        writes=True,
    ),
    Reader(
        "fit file",
        _once(lambda: [{"fit.safetensors": raw} for raw in store_seeds.module_fits().values()]),
        (("fit.safetensors", mutate_safetensors),),
        (reading.load_fit,),
    ),
    Reader(
        "encoder",
        _once(lambda: [{"encoder.json": raw} for raw in store_seeds.encoders()]),
        (("encoder.json", mutate_json),),
        (reading.load_encoder,),
    ),
    Reader(
        "images",
        _once(lambda: [seeds.image_folder()]),
        (("pictures/*/*", mutate_png),),
        ("data check pictures", "data check pictures --size 8 --json"),
        1.5,
    ),
    Reader(
        "own.npz",
        _once(
            lambda: [
                {"own.npz": raw}
                for raw in (
                    seeds.npz(x=seeds.pixels(40, 1).reshape(40, 32, 32, 3)[:, :8, :8], y=seeds.pixels(40, 2)[:, 0] % 2),
                    seeds.npz(
                        x=seeds.pixels(40, 1).reshape(40, 32, 32, 3)[:, :8, :8, 0],
                        y=seeds.pixels(40, 2)[:, 0] % 3,
                        id=seeds.pixels(1, 3)[0, :40],
                    ),
                )
            ]
        ),
        (("own.npz", mutate_zip),),
        ("data check own.npz", "data check own.npz --size 4 --label y --json"),
        1.5,
    ),
    Reader(
        "cifar python",
        _once(lambda: [seeds.cifar_files()["python"]]),
        (("cifar/*", mutate_pickle),),
        ("data check cifar10 --data-dir cifar", partial(reading.read_cifar, "cifar")),
        writes=True,
    ),
    Reader(
        "cifar binary",
        _once(lambda: [seeds.cifar_files()["binary"]]),
        (("cifar/*", any_bytes),),
        (partial(reading.read_cifar, "cifar"),),
        0.3,
    ),
    Reader(
        "cifar arrays",
        _once(lambda: [seeds.cifar_files()["arrays"]]),
        (("cifar10.npz", mutate_zip),),
        (partial(reading.read_cifar, "cifar10.npz"),),
    ),
    Reader("idx", _once(lambda: [seeds.cifar_files()["idx"]]), (("images.gz", mutate_idx),), (reading.read_idx,), 0.5),
    Reader(
        "fundus",
        _once(lambda: [seeds.fundus_folder()]),
        (("aptos/train.csv", mutate_table), ("aptos/train_images/*", mutate_png)),
        ("data check retina --data-dir aptos --size 64",),
        writes=True,
    ),
    Reader(
        "xlsx",
        _once(lambda: [{"labels.xlsx": seeds.sheet()}]),
        (("labels.xlsx", mutate_sheet),),
        (reading.read_sheet,),
        0.7,
    ),
    Reader(
        "tar",
        _once(lambda: [{"data.tar.gz": seeds.tar_gz()}]),
        (("data.tar.gz", mutate_tar),),
        (partial(reading.extract, "data.tar.gz"),),
    ),
    Reader(
        "zip",
        _once(lambda: [{"data.zip": seeds.archive_zip()}]),
        (("data.zip", mutate_archive),),
        (partial(reading.extract, "data.zip"),),
        0.5,
    ),
    Reader(
        "corpora",
        _once(_corpora),
        (
            ("*.json", mutate_json),
            ("*.csv", mutate_table),
            ("*.jsonl", mutate_json_lines),
            ("*.jsonl.gz", gzipped(mutate_json_lines)),
            ("*.whl", mutate_archive),
            ("*/*_*", any_bytes),
            ("*/cats.txt", any_bytes),
            ("*.sgm", any_bytes),
            ("*.review", any_bytes),
            ("20news/*/*/*", any_bytes),
        ),
        (reading.read_corpus,),
        1.5,
    ),
    Reader(
        "imagenet",
        _once(lambda: [photographs()]),
        (("imagenet/val/val_labels.txt", any_bytes), ("imagenet/*.JPEG", mutate_png)),
        (reading.read_imagenet,),
        0.5,
        writes=True,
    ),
    _own(".csv", lambda: seeds.delimited(seeds.own_rows()), mutate_table),
    _own(".tsv.gz", lambda: gzip.compress(seeds.delimited(seeds.own_rows(), "\t"), mtime=0), gzipped(mutate_table)),
    _own(".jsonl", lambda: seeds.json_lines(seeds.own_rows()), MUTATE_OWN_JSON),
    _own(
        ".parquet",
        lambda: seeds.parquet({name: [row[name] for row in seeds.own_rows()] for name in seeds.own_rows()[0]}),
        mutate_parquet,
    ),
)

BY_NAME: dict[str, Reader] = {reader.name: reader for reader in READERS}
