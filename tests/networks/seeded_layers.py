"""Layers and inputs that a seed decides."""

import torch


def seeded(build, seed=0):
    """What ``build`` makes, its first weights drawn from this seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def normals(*shape, seed=1):
    """Standard normal numbers from this seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
