"""Name metrics, methods, numbers and files in the words of the report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dubio.core.errors import plural
from dubio.core.files import file_name as file_name
from dubio.reporting.manifest_view import MethodView, printable
from dubio.store.examples import LONGEST_CELL, cut
from dubio.store.records import ManifestBudget

RANDOM = "random-referral"
"""The control's name in the long table."""

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True)
class Term:
    """The title of a metric, and what a reader needs to know about it."""

    title: str
    note: str


TERMS: dict[str, Term] = {
    "accuracy": Term("Accuracy", "share of test examples that are classified correctly"),
    "calibrated_nll": Term(
        "Calibrated NLL",
        "negative log-likelihood at a temperature fitted on the other half of the test set (test-time "
        "cross-validation): it does not depend on the scale of the logits",
    ),
    "nll": Term("NLL", "negative log-likelihood at temperature 1"),
    "brier": Term("Brier", "squared distance between probabilities and labels, between 0 and 2"),
    "macro_f1": Term("Macro F1", "F1 averaged over classes, or labels"),
    "accuracy_at_val_thresholds": Term("Accuracy, tuned", "exact match at each label's best threshold on validation"),
    "macro_f1_at_val_thresholds": Term("Macro F1, tuned", "at each label's best threshold on validation"),
    "micro_f1_at_val_thresholds": Term("Micro F1, tuned", "at each label's best threshold on validation"),
    "micro_f1": Term("Micro F1", "several labels: F1 over all decisions together"),
    "quadratic_kappa": Term("Kappa", "agreement of grades beyond chance, squared distances (Cohen)"),
    "rps": Term("RPS", "ranked probability score: squared distance of the cumulative probabilities, between 0 and 1"),
    "auc_from_grade": Term("AUC", "area under the ROC curve for grade 2 or more"),
    "ece": Term("ECE", "expected calibration error in 15 bins of equal width"),
    "aurc": Term(
        "AURC", "area under the risk–coverage curve: mean error rate of the retained examples over all coverages"
    ),
    "diversity": Term("Diversity", "mean KL divergence of members, or samples, from the pooled prediction"),
    "referral_accuracy": Term("Accuracy", "accuracy of the retained examples, the most uncertain referred first"),
    "referral_auc": Term("AUC", "area under the ROC curve of the retained examples, the most uncertain referred first"),
    "ood_auroc": Term(
        "AUROC", "probability that an OOD or shifted example is more uncertain than an in-domain one; 0.5 is chance"
    ),
    "ood_aupr": Term("AUPR", "average precision with OOD or shifted examples as positives; chance is their prevalence"),
    "ood_fpr95": Term("FPR95", "share of in-domain examples flagged when 95 % of the OOD or shifted ones are"),
    "id_aupr": Term("AUPR, in-domain", "average precision with in-domain examples as positives"),
    "ood_correlation": Term("Correlation", "signed correlation of the uncertainty with being OOD or shifted"),
    "generalisation_gap": Term("Gap", "in-domain accuracy minus accuracy under shift"),
}


def term(metric: str) -> Term:
    """Return how a metric is shown, whatever its arguments; one without a term shows its name."""
    return TERMS.get(metric.partition("(")[0], Term(metric, ""))


def quantity_words(name: str) -> str:
    """Return an uncertainty quantity in words; one that a system gives itself has the name of its file's column."""
    return cut(printable(name), LONGEST_CELL).replace("_", " ")


def named(text: str) -> str:
    """Return a sentence with metrics called by their titles, not by their registered names."""
    return re.sub(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)*\b", lambda match: _within(match[0]), text)


def _within(word: str) -> str:
    """Return a metric's title within a sentence; Brier was a person, acronyms stay as they are."""
    title = TERMS[word].title if word in TERMS else word
    return title if title == "Brier" or title.isupper() else title[:1].lower() + title[1:]


def sentence(method: MethodView) -> str:
    """Describe a method in one sentence."""
    if method.summary:
        return method.summary
    if method.ensemble:
        return f"{number(method.members).capitalize()} independently trained fits of {method.family}, pooled."
    return f"{method.title}, a method of the benchmark's own."


def sample_count(members: int, samples: int) -> str:
    """Return the number of predictions that are pooled: ``one pass``, ``10 samples``, ``5 × 10 samples``."""
    single = f"{samples} samples" if samples else "one pass"
    return f"{members} × {single}" if members > 1 else single


def draws(method: MethodView) -> str:
    """Return the number of predictions that a method pools for one answer."""
    return method.pools or sample_count(method.members, method.samples)


def number(value: int) -> str:
    """Return a small number as a word."""
    return NUMBERS[value] if 0 <= value < len(NUMBERS) else f"{value:,}".replace(",", " ")


def counted(value: int, noun: str) -> str:
    """Return a number with its noun: ``three seeds``, ``one seed``."""
    return f"{number(value)} {plural(noun, value)}"


def seconds(value: float) -> str:
    """Return a duration in seconds: ``0.42 s``, ``7.5 s``, ``1,204 s``."""
    return f"{value:,.0f} s" if value >= 10 else f"{value:.2g} s"


UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def duration(value: float) -> str:
    """Return seconds in the largest unit of which there are at least one: ``1.2 µs``, ``12.7 s``, ``1.4 h``."""
    unit, size = next((own for own in UNITS if value >= own[1]), UNITS[-1])
    number = value / size
    return f"{number:.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"


def signed(value: float, places: int = 3) -> str:
    """Return a change with its sign."""
    return f"{value:+.{places}f}".replace("-", "−")


def enough_digits(first: float, second: float) -> tuple[str, str]:
    """Return two numbers with the fewest digits, from two to seven, that show which is larger."""
    for digits in range(2, 8):
        shown = f"{first:.{digits}g}", f"{second:.{digits}g}"
        if shown[0] != shown[1]:
            return shown
    return f"{first:.2g}", f"{second:.2g}"


def listed(items: list[str]) -> str:
    """Return items as a sentence lists them: ``a, b and c``, or ``a, d; b; and c`` where one has a comma itself."""
    if len(items) > 2 and any(", " in item for item in items):
        return f"{'; '.join(items[:-1])}; and {items[-1]}"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def named_few(names: list[str]) -> str:
    """Return names as a sentence lists them, those beyond three counted: ``a, b and five others``."""
    return listed(names if len(names) <= 3 else [*names[:2], f"{number(len(names) - 2)} others"])


def budget_note(budgets: Mapping[str, ManifestBudget], titles: Mapping[str, str]) -> str:
    """Return which methods were not trained with the budget of the most methods, in one sentence; empty if all were.

    Args:
        budgets: Method → its budget, of the methods that are compared on one network.
        titles: Method → its title.
    """
    groups: dict[ManifestBudget, list[str]] = {}
    for method, budget in budgets.items():
        groups.setdefault(budget, []).append(titles.get(method, method))
    if len(groups) < 2:
        return ""
    usual, *others = sorted(groups, key=lambda budget: -len(groups[budget]))
    phrases = [f"{listed(groups[budget])} {_budget(budget)}" for budget in others]
    return f"Not the same budget: {'; '.join(phrases)}; the others {_budget(usual)}."


def _budget(budget: ManifestBudget) -> str:
    if budget.epochs is None:
        return "trained by a method of its own, whose epochs are not known"
    stopping = f"stopping after {budget.patience} without improvement" if budget.patience else "without early stopping"
    tuning = f", tuned in {counted(budget.trials, 'trial')}" if budget.trials else ""
    return f"trained for {counted(budget.epochs, 'epoch')} {stopping}{tuning}"


ROLES = {
    "train": "training", "val": "validation, chooses the epoch", "cal": "held-out calibration set",
    "id": "in-domain test", "shift": "shifted test", "ood": "OOD test",
}  # fmt: skip
"""Kind of a split → what it is for."""
