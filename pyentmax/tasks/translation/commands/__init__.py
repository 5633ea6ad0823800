"""The commands of translation."""

from pyentmax.tasks.analyse import Analysis
from pyentmax.tasks.command_line import Commands
from pyentmax.tasks.translation.commands.analyse import HeadAnalysis
from pyentmax.tasks.translation.commands.demo import add_demo
from pyentmax.tasks.translation.commands.reproduce import add_reproduce
from pyentmax.tasks.translation.commands.train import add_train
from pyentmax.tasks.translation.commands.translate import add_translate
from pyentmax.tasks.translation.translator import KIND

ANALYSES: dict[str, Analysis] = {KIND: HeadAnalysis()}
"""Kind of checkpoint → its part of the `analyse` command."""


def add_commands(commands: Commands) -> None:
    """Add all of them, in the order in which the help text lists them."""
    for add in (add_demo, add_train, add_translate, add_reproduce):
        add(commands)
