"""Files of texts and configurations: an error names the file that it is of."""

import errno

import pytest

from pyentmax.tasks.inflection.examples import read_examples
from pyentmax.tasks.language_model import read_text
from pyentmax.tasks.translation.configuration import read_experiment
from pyentmax.tasks.translation.parallel import read_parallel


@pytest.mark.parametrize(
    "read",
    [
        read_text,
        lambda path: read_parallel(path, path),
        lambda path: read_examples([path]),
        lambda path: read_experiment(path, "rnn"),
    ],
)
def test_an_error_in_the_middle_of_a_file_names_it(read, monkeypatch, tmp_path):
    """To open a file names it, to read it does not: the message was "Input/output error"."""

    def broken(path, *args, **options):
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "data.txt"
    path.write_text("a\tb\tV\n")
    for name in ("read_text", "read_bytes"):
        monkeypatch.setattr(type(path), name, broken)
    with pytest.raises(OSError, match="Input/output error: .*data.txt"):
        read(path)
