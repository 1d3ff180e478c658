"""What stands at the end of a network: how features become logits, and the loss."""
