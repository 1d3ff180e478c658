"""Posteriors: weights and distributions of weights, their draws, and predictions from them."""
