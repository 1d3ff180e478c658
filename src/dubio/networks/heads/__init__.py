"""Heads of networks: from features to logits, and their loss."""
