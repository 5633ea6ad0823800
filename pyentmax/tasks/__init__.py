"""A home for each task: its readers, models, reports, experiments and commands."""
