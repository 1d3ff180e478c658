"""Devices that a user names."""

from __future__ import annotations

import torch

from dubio.core.errors import UserError


def check_device(name: str, argument: str = "--devices") -> str:
    """The same name, of a device that is there.

    Args:
        name: As torch writes it: ``cpu``, ``cuda``, ``cuda:1``, ``mps``, …
        argument: Where it was named, for the message.

    Raises:
        UserError: For a name that is no device, or a device that this machine lacks.
    """
    try:
        torch.empty(1, device=torch.device(name)).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        raise UserError(
            f"{argument}: {name!r} cannot be used here; there {_spoken(available())}. "
            f"torch says: {str(fault).splitlines()[0]}"
        ) from fault
    return name


def available() -> tuple[str, ...]:
    """The devices of this machine, the CPU first."""
    found = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    return (*found, "mps") if torch.backends.mps.is_available() else tuple(found)


def _spoken(names: tuple[str, ...]) -> str:
    return f"is {names[0]}" if len(names) == 1 else f"are {', '.join(names)}"
