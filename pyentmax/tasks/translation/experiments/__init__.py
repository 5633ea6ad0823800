"""Experiments on translation, each a command that can be stopped and continued."""
