"""Rules of the job queue: states, order, filters, dependencies and attempts of jobs."""
