"""The progress bars of training and of work that may be short."""

from __future__ import annotations

import sys

import pytest

from pyentmax.seq2seq.training import counting, progress


class Bar:
    """Stands for tqdm: records its options and its updates."""

    made: list[Bar] = []

    def __init__(self, **options):
        self.options, self.counted, self.open = options, [], True
        self.made.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open = False

    def update(self, n):
        self.counted.append(n)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(Bar, "made", [])
    monkeypatch.setattr(progress, "_on_screen", lambda: True)
    monkeypatch.setattr(progress, "_tqdm", lambda: Bar)


def test_bar_waits_two_seconds_and_counts(terminal):
    with counting(5, "word") as advance:
        advance(2)
        advance(3)
    [bar] = Bar.made
    assert bar.counted == [2, 3]
    assert not bar.open
    assert bar.options["total"] == 5
    assert bar.options["delay"] == 2


def test_unwanted_bar_is_not_shown(terminal):
    with counting(5, "word", show=False) as advance:
        advance(5)
    assert not Bar.made


def test_log_gets_no_bar(monkeypatch):
    monkeypatch.setattr(progress, "_tqdm", lambda: pytest.fail("a bar in a log"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with counting(5, "word") as advance:
        advance(5)


def test_missing_tqdm_says_what_to_install(monkeypatch):
    monkeypatch.setattr(progress, "_on_screen", lambda: True)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"pip install 'pyentmax\[models\]'"):
        with counting(5, "word"):
            pass


def test_figures_are_computed_only_when_drawn(terminal, monkeypatch):
    # On a GPU, reading the loss would make the host wait.
    drawn = iter([False, True])
    shown = []
    monkeypatch.setattr(Bar, "update", lambda bar, n: next(drawn))
    monkeypatch.setattr(Bar, "set_postfix_str", lambda bar, text: shown.append(text), raising=False)
    bar = progress.Progress(10, 0, show=True)
    bar.updated(lambda: pytest.fail("the bar was not drawn"))
    bar.updated(lambda: "loss 0.5")
    assert shown == ["loss 0.5"]
