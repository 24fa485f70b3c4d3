"""The job queue: states, scheduling, workers, waiting, archive."""
