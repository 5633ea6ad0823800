"""Experiments of the papers, each a command that can be stopped and continued."""
