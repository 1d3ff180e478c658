"""Which fuzzer covers which argument of the command line and which module that opens files; a test compares it."""

from __future__ import annotations

PREDICTIONS = "npz, npy, safetensors, csv, tsv, csv.gz, jsonl, parquet"
OWN_DATA = "own.csv, own.tsv.gz, own.jsonl, own.parquet, own.npz, images"
STORE = "manifest, records, checkpoint, examples"
ROWS = "rows.csv, rows.jsonl, rows.parquet, rows.npz"
WRITTEN = "written, never read"
CODE = "Python that the user asks to run: see SECURITY.md"
TRUSTED = "a file of dubio itself"
INSTALLED = "a file of an installed package"
DOWNLOADED = "a file that is verified by its SHA-256"
CACHE = "a cache of dubio, read again from its source where it is damaged"
WORDS = "words of the command line, not files"
PROTOCOL = "what dubio's own processes tell each other"
SECRET = "the operator's own token, of which 4096 bytes are read as text"

REASONS = (WRITTEN, CODE, TRUSTED, INSTALLED, DOWNLOADED, CACHE, WORDS, PROTOCOL, SECRET)

ARGUMENTS = {
    "systems": PREDICTIONS,
    "ood": PREDICTIONS,
    "cal": PREDICTIONS,
    "shift": PREDICTIONS,
    "validation": PREDICTIONS,
    "predictions": PREDICTIONS,
    "ensemble": PREDICTIONS,
    "methods": PREDICTIONS,
    "thresholds_from": "npz of several labels",
    "labels": "labels, labels.csv",
    "calibration": "recalibration",
    "recalibration": "recalibration",
    "policy": "policy, policy of a model",
    "names": "results, results of papers, pages of files",
    "results": "results, results of papers",
    "benchmark": "benchmark",
    "data": OWN_DATA,
    "shift_data": "fundus",
    "data_dir": "cifar python, fundus, corpora",
    "store": STORE,
    "stores": STORE,
    "into": STORE,
    "log": "decision log",
    "model": "model",
    "from_model": "model",
    "rows": ROWS,
    "decisions": WRITTEN,
    "token_file": SECRET,
    "file": CODE,
    "output": WRITTEN,
    "report": WRITTEN,
    "junit": WRITTEN,
    "out": WRITTEN,
    "diagram": WRITTEN,
    "figure": WRITTEN,
    "figures": WRITTEN,
    "target": WRITTEN,
}
"""Parameter of a command → the readers that cover it, or why none is needed."""

MODULES = {
    "cli/app.py": WRITTEN,
    "cli/list.py": TRUSTED,
    "cli/show.py": "model",
    "core/documents.py": "policy, recalibration, benchmark, jsonl, own.jsonl",
    "core/files.py": WRITTEN,
    "core/npz.py": "npz, own.npz, cifar arrays",
    "core/specs.py": STORE,
    "core/unpacking.py": f"{PREDICTIONS}, {OWN_DATA}",
    "core/validate.py": "policy, recalibration, fit file",
    "deployment/prediction_job.py": PROTOCOL,
    "encoders/pretrained.py": DOWNLOADED,
    "encoders/torch_weights.py": "torch weights",
    "encoders/wordpieces.py": "encoder",
    "formats/npz.py": "npz, npy, labels",
    "formats/prediction_tables.py": "csv, tsv, jsonl, parquet",
    "formats/predictions.py": "safetensors",
    "formats/safetensors.py": "safetensors, fit file",
    "methods/encoding_cache.py": "encoder",
    "methods/fitting.py": PROTOCOL,
    "metrics/metric.py": "options",
    "reporting/manifest_view.py": TRUSTED,
    "reporting/page.py": TRUSTED,
    "reporting/report_cache.py": "kept pages",
    "reporting/stored_run.py": STORE,
    "runner/benchmark_file.py": "benchmark",
    "runner/executors.py": PROTOCOL,
    "runner/overrides.py": "options",
    "runner/ray_cluster.py": PROTOCOL,
    "runner/ray_executor.py": PROTOCOL,
    "runner/ray_node.py": PROTOCOL,
    "runner/transfer.py": PROTOCOL,
    "runner/worker.py": PROTOCOL,
    "runner/worker_process.py": PROTOCOL,
    "serving/guard.py": SECRET,
    "serving/log_file.py": "decision log",
    "serving/queue_page.py": TRUSTED,
    "serving/web.py": "requests",
    "statistics/result_files.py": "results, results of papers",
    "store/": STORE,
    "studies/published_numbers.py": TRUSTED,
    "tables/": "csv, tsv, csv.gz, jsonl, parquet, own.csv, own.tsv.gz, own.jsonl, own.parquet",
    "tasks/aapd.py": "corpora",
    "tasks/amazon.py": "corpora",
    "tasks/clinc.py": "corpora",
    "tasks/fundus/cache.py": CACHE,
    "tasks/fundus/labels.py": "fundus, xlsx",
    "tasks/fundus/layouts.py": "fundus",
    "tasks/imagenet.py": "imagenet",
    "tasks/images/corruptions.py": WRITTEN,
    "tasks/images/files.py": "images, own.npz, fundus",
    "tasks/images/formats.py": "cifar python, cifar binary, cifar arrays, idx",
    "tasks/images/streamed.py": "imagenet",
    "tasks/imdb.py": "corpora",
    "tasks/movie_reviews.py": INSTALLED,
    "tasks/reuters.py": "corpora",
    "tasks/sources/fetch.py": "tar, zip",
    "tasks/sources/locate.py": CACHE,
    "tasks/text_corpora.py": "corpora",
    "tasks/twenty_newsgroups.py": "corpora",
    "testing/methods.py": WRITTEN,
    "torch_module/checkpoint.py": "checkpoint",
}
"""Module, or folder of modules, that opens or parses files → the readers that cover it, or why none is needed."""
