"""The commands of captions."""

from pyentmax.tasks.captions.commands.reproduce import add_reproduce
from pyentmax.tasks.captions.commands.train import add_train
from pyentmax.tasks.command_line import Commands


def add_commands(commands: Commands) -> None:
    """Add all of them, in the order in which the help text lists them."""
    for add in (add_train, add_reproduce):
        add(commands)
