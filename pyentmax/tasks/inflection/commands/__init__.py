"""The commands of inflection."""

from pyentmax.tasks.analyse import Analysis
from pyentmax.tasks.command_line import Commands
from pyentmax.tasks.inflection.commands.data import add_data
from pyentmax.tasks.inflection.commands.demo import add_demo
from pyentmax.tasks.inflection.commands.train import add_train
from pyentmax.tasks.inflection.commands.use import SparsityAnalysis, add_force, add_inflect
from pyentmax.tasks.inflection.inflector import KIND

ANALYSES: dict[str, Analysis] = {KIND: SparsityAnalysis()}
"""Kind of checkpoint → its part of the `analyse` command."""


def add_commands(commands: Commands) -> None:
    """Add all of them, in the order in which the help text lists them."""
    for add in (add_demo, add_train, add_inflect, add_force, add_data):
        add(commands)
