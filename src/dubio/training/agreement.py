"""Whether the slots of a training go together, asked before anything is trained."""

from __future__ import annotations

from dubio.core.errors import UserError
from dubio.core.specs import name_of
from dubio.training.collectors import Collector
from dubio.training.objectives import Objective
from dubio.training.optimisers import Optimiser
from dubio.training.schedules import Schedule


def check_agreement(
    name: str, objective: Objective, optimiser: Optimiser, schedule: Schedule, collect: Collector
) -> None:
    """Refuse slots that would not do together what each says.

    Args:
        name: The method's name, for the message.
        objective: How long the training goes.
        optimiser: What moves the weights.
        schedule: How hot the steps are, and what is marked to be kept.
        collect: What is kept.

    Raises:
        UserError: When the epochs do not suit the schedule, noise is asked of an optimiser that draws none, early
            stopping would cut off snapshots, or nothing would be kept.
    """
    epochs = objective.epochs
    schedule.check_epochs(epochs)
    hot = any(schedule.temperature_in(epoch, epochs) for epoch in range(1, epochs + 1))
    if hot and not optimiser.draws_noise:
        raise UserError(
            f"{name}: the schedule {name_of(schedule)!r} has a temperature, but the optimiser {name_of(optimiser)!r} "
            "draws no noise; use sgld or sghmc, or temperature=0."
        )
    if objective.patience and not collect.stops_early:
        raise UserError(
            f"{name}: {name_of(collect)} keeps snapshots over all epochs, which early stopping would cut off; "
            f"set patience=0; given {objective.patience}."
        )
    if collect.states(schedule, epochs) < 1:
        raise UserError(
            f"{name}: {name_of(collect)} would keep nothing of {epochs} epochs; "
            f"keep fewer snapshots back, or use a schedule that marks some ({name_of(schedule)} is given)."
        )
