"""The experiments of the papers, each a command that can be stopped and gone on with."""
