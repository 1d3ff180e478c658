"""Training: objectives, optimisers, schedules, the loop, and collectors of posteriors."""
