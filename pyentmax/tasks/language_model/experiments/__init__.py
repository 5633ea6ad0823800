"""Experiments on language models, each a command that can be stopped and continued."""
