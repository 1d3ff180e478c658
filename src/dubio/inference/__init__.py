"""What a fit leaves behind, and how it is drawn from."""
