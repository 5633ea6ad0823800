"""A home for each task: its readers, models, reports and commands."""
