"""Batches of encoded examples as tensors."""
