"""What a restore writes and where: plan, survey, claims, offsets, batches for the target."""
