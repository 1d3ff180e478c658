"""Every reader of a user's file: valid files, how they are damaged, and the commands or functions that read them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

from campaigns import reading, seeds, store_seeds
from campaigns.corpus_seeds import jsonl_corpora, photographs, text_corpora
from campaigns.model_readers import MODEL_READERS
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
from campaigns.reader import Reader, about, chained, once, resealed
from campaigns.seeds import Tree

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
    return Reader(name, once(lambda: _beside(path, *contents())), ((path, mutator),), about(path, *commands), share)


def _made(*names: str) -> Callable[[], list[Tree]]:
    """Return trees of files that dubio's own commands wrote; the first is the file ``damaged``."""

    def trees() -> list[Tree]:
        made = seeds.referral_files()
        rows = {name: made["two.npz" if name == "screening.json" else "cal.npz"] for name in names}
        return [{"damaged.json": made[name], "rows.npz": rows[name]} for name in names]

    return once(trees)


def _own(ending: str, content: Callable[[], bytes], mutator: Mutator) -> Reader:
    path = f"own{ending}"
    commands = about(
        path,
        "data check {} --text text --label label",
        "data check {} --label label --features age,dose --json",
        "data check {} --text text --label label --group patient --time date",
        "data check {} --label label --features age,dose --id id --split-seed 3",
        "data check {} --text text --label label --domain site --train-domain north",
        "data check {} --text text --label site --novel auto",
        "data check {} --label label --features age --label-separator ;",
    )
    return Reader(f"own{ending}", once(lambda: [{path: content()}]), ((path, mutator),), commands)


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

FILE_READERS = (
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
        _made("risk.json", "capacity.json", "group.json", "screening.json", *seeds.GRID),
        (("damaged.json", mutate_json),),
        (
            "refer apply damaged.json rows.npz -o OUT.csv --json",
            "refer apply damaged.json rows.npz -o OUT.csv --per group --force",
        ),
        2,
    ),
    Reader(
        "decision log",
        once(lambda: [seeds.decision_log()]),
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
        once(lambda: [{"results.csv": seeds.RESULTS["long.csv"].encode()}]),
        (("results.csv", mutate_table),),
        ("compare results.csv --metric nll --json", "compare results.csv --metric nll --round 2 --seed-col seed"),
    ),
    Reader(
        "results of papers",
        once(_results),
        (("results*", mutate_table),),
        tuple(
            command
            for ending in (".csv", ".md", ".tex")
            for command in about(
                f"results{ending}",
                "compare {} --metric accuracy --json",
                "compare {} --metric score --better score=higher",
            )
        ),
    ),
    Reader(
        "benchmark",
        once(lambda: [{"tiny.toml": seeds.BENCHMARK, "own.csv": seeds.delimited(seeds.own_rows())}]),
        (("tiny.toml", mutate_toml),),
        ("run tiny.toml --dry-run --json", "run tiny.toml --preset small --dry-run"),
        2,
    ),
    Reader(
        "manifest",
        once(lambda: [RECORDED()]),
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
        once(lambda: [RECORDED()]),
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
        once(lambda: [RECORDED()]),
        (
            ("store/*/*/record.json", resealed(mutate_json)),
            ("store/*/*/spec.json", mutate_json),
            ("store/*/*/encoder.json", mutate_json),
            ("store/*/*/*.safetensors", mutate_safetensors),
            ("store/failures/*", mutate_json),
            ("store/index.sqlite", any_bytes),
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
        once(lambda: [RECORDED()]),
        (("store/checkpoints/*/latest.json", mutate_json), ("store/checkpoints/*/*.safetensors", mutate_safetensors)),
        (reading.load_checkpoint, "store verify --store store", "store gc --store store"),
        writes=True,
    ),
    Reader(
        "fit file",
        once(lambda: [{"fit.safetensors": raw} for raw in store_seeds.module_fits().values()]),
        (("fit.safetensors", mutate_safetensors),),
        (reading.load_fit,),
    ),
    Reader(
        "encoder",
        once(lambda: [{"encoder.json": raw} for raw in store_seeds.encoders()]),
        (("encoder.json", mutate_json),),
        (reading.load_encoder,),
    ),
    Reader(
        "torch weights",
        once(lambda: [{"weights.pth": store_seeds.torch_weights()}]),
        (("weights.pth", any_bytes),),
        (reading.read_weights,),
    ),
    Reader(
        "images",
        once(lambda: [seeds.image_folder()]),
        (("pictures/*/*", mutate_png),),
        ("data check pictures", "data check pictures --size 8 --json"),
        1.5,
    ),
    Reader(
        "own.npz",
        once(
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
        once(lambda: [seeds.cifar_files()["python"]]),
        (("cifar/*", mutate_pickle),),
        ("data check cifar10 --data-dir cifar", partial(reading.read_cifar, "cifar")),
        writes=True,
    ),
    Reader(
        "cifar binary",
        once(lambda: [seeds.cifar_files()["binary"]]),
        (("cifar/*", any_bytes),),
        (partial(reading.read_cifar, "cifar"),),
        0.3,
    ),
    Reader(
        "cifar arrays",
        once(lambda: [seeds.cifar_files()["arrays"]]),
        (("cifar10.npz", mutate_zip),),
        (partial(reading.read_cifar, "cifar10.npz"),),
    ),
    Reader("idx", once(lambda: [seeds.cifar_files()["idx"]]), (("images.gz", mutate_idx),), (reading.read_idx,), 0.5),
    Reader(
        "fundus",
        once(lambda: [seeds.fundus_folder()]),
        (("aptos/train.csv", mutate_table), ("aptos/train_images/*", mutate_png)),
        ("data check retina --data-dir aptos --size 64",),
        writes=True,
    ),
    Reader(
        "xlsx",
        once(lambda: [{"labels.xlsx": seeds.sheet()}]),
        (("labels.xlsx", mutate_sheet),),
        (reading.read_sheet,),
        0.7,
    ),
    Reader(
        "tar",
        once(lambda: [{"data.tar.gz": seeds.tar_gz()}]),
        (("data.tar.gz", mutate_tar),),
        (partial(reading.extract, "data.tar.gz"),),
    ),
    Reader(
        "zip",
        once(lambda: [{"data.zip": seeds.archive_zip()}]),
        (("data.zip", mutate_archive),),
        (partial(reading.extract, "data.zip"),),
        0.5,
    ),
    Reader(
        "corpora",
        once(_corpora),
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
        once(lambda: [photographs()]),
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

READERS = (*FILE_READERS, *MODEL_READERS)
BY_NAME: dict[str, Reader] = {reader.name: reader for reader in READERS}
