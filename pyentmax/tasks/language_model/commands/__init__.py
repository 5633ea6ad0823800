"""The commands of language modelling."""

from pyentmax.tasks.command_line import Commands
from pyentmax.tasks.language_model.commands.reproduce import add_reproduce
from pyentmax.tasks.language_model.commands.sample import add_sample
from pyentmax.tasks.language_model.commands.train import add_train


def add_commands(commands: Commands) -> None:
    """Add all of them, in the order in which the help text lists them."""
    for add in (add_train, add_sample, add_reproduce):
        add(commands)
