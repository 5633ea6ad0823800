"""The commands of translation, from configurations and files to what is printed."""

import io
import signal
import subprocess
import sys

import numpy as np
import pytest

from pyentmax.cli import main
from pyentmax.data import DataError, Vocabulary
from pyentmax.decoding import forced_decoding
from pyentmax.system.files import replacing
from pyentmax.tasks.inflection.reports import _file_name as of_words
from pyentmax.tasks.translation import Translator, demo, read_experiment, toy_german
from pyentmax.tasks.translation.reports import _file_name as of_sentences
from pyentmax.tasks.translation.segmentation import Subwords, Words
from pyentmax.tasks.translation.translator import ARCHITECTURES
from pyentmax.training import TrainingConfig, progress

SMALL = """
[data]
train = ["train.de", "train.en"]
dev = "dev.tsv"
tokens = 300

[model]
width = 8
layers = 1
heads = 2
inner = 8

[training]
updates = 4
rate = 1e-2
schedule = "inverse_sqrt"
warmup = 2
betas = [0.9, 0.98]
accumulate = 2
average = 2
"""
RNN = SMALL.replace(
    "width = 8\nlayers = 1\nheads = 2\ninner = 8", "hidden = 8\nlabel_smoothing = 0.1"
)


@pytest.fixture
def folder(tmp_path):
    pairs = toy_german()[:120]
    (tmp_path / "train.de").write_text("".join(p.source + "\n" for p in pairs[:100]), "utf-8")
    (tmp_path / "train.en").write_text("".join(p.target + "\n" for p in pairs[:100]), "utf-8")
    (tmp_path / "dev.tsv").write_text("".join("\t".join(p) + "\n" for p in pairs[100:]), "utf-8")
    (tmp_path / "small.toml").write_text(SMALL, "utf-8")
    (tmp_path / "rnn.toml").write_text(RNN, "utf-8")
    return tmp_path


def run(*words):
    return main([str(word) for word in words])


@pytest.mark.parametrize(("model", "config"), [("transformer", "small"), ("rnn", "rnn")])
def test_train_resume_and_translate(folder, capsys, monkeypatch, model, config):
    out = folder / "run"
    command = ("train", model, "--config", folder / f"{config}.toml", "--out", out, "--quiet")
    assert run(*command) == 0
    assert "4 updates in" in capsys.readouterr().out
    assert Translator.load(out).architecture == model
    assert run(*command) == 1
    assert "already holds a run" in capsys.readouterr().err
    assert run(*command, "--resume") == 0
    assert run(*command, "--resume", "--seed", 1) == 1
    assert "belongs to another run" in capsys.readouterr().err

    assert run("translate", out, "der hund", "das ei") == 0
    said = capsys.readouterr()
    given = said.out.splitlines()
    assert len(given) == 2  # and nothing else, so that lines go with those of the input
    assert said.err.startswith("pyentmax runs ")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\ufeffder hund\ndas ei\n"))
    assert run("translate", out, "-") == 0
    assert capsys.readouterr().out.splitlines() == given
    assert run("translate", out, "-", "das ei") == 1  # it was translated as a word
    assert "sentences: expected - for standard input alone" in capsys.readouterr().err
    assert run("translate", out, "--ensemble", out, "der hund", "das ei") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run("translate", out, "--list", "der hund", "--search", "exact", "--budget", 5) == 0
    assert "total probability" in capsys.readouterr().out
    assert run("translate", out, "--list", "der hund", "--best", 1) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No other has a probability above" in said or "Exact and complete" in said


@pytest.mark.parametrize("shown", [["--list"], []])
def test_a_bar_counts_sentences_while_translations_go_elsewhere(tmp_path, monkeypatch, shown):
    untrained().save(tmp_path / "best.npz")
    bars = []

    class Bar:
        def __init__(self, total, unit, **others):
            self.total, self.unit, self.done, self.closed = total, unit, 0, False
            bars.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.closed = True

        def update(self, count):
            self.done += count

    monkeypatch.setattr(progress, "_on_a_screen", lambda: True)
    monkeypatch.setattr(progress, "_tqdm", lambda: Bar)
    command = ("translate", tmp_path, *shown, "der hund", "das ei", "der hund")
    assert run(*command) == 0
    assert [(bar.total, bar.unit, bar.done, bar.closed) for bar in bars] == [
        (3, "sentence", 3, True)
    ]
    assert run(*command, "--quiet") == 0
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(*command) == 0
    assert len(bars) == 1


def test_a_standard_input_that_is_closed_is_no_empty_one(tmp_path):
    untrained().save(tmp_path / "best.npz")
    command = [sys.executable, "-m", "pyentmax", "translate", str(tmp_path), "-"]
    for redirected, status, said in (("<&-", 1, "which is closed"), ("</dev/null", 0, "")):
        words = ["sh", "-c", f'exec "$@" {redirected}', "sh", *command]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == status
        assert said in done.stderr


def test_a_number_that_no_training_has_is_told_with_its_place(folder, capsys):
    path = folder / "wrong.toml"
    path.write_text(SMALL.replace("rate = 1e-2", "rate = -1.0"), "utf-8")
    command = ("train", "transformer", "--config", path, "--out", folder / "run", "--quiet")
    assert run(*command) == 1
    assert f"{path}, [training] rate: expected" in capsys.readouterr().err
    assert run(*command[:3], folder / "small.toml", *command[4:], "--updates", 0) == 1
    assert capsys.readouterr().err.startswith("pyentmax train: updates: expected")


def test_a_given_translation_is_forced_step_by_step(folder, capsys):
    out = folder / "run"
    command = ("train", "transformer", "--config", folder / "small.toml", "--out", out, "--quiet")
    assert run(*command, "--updates", 2) == 0
    capsys.readouterr()
    force = ("translate", out, "der hund", "--force", "the dog")
    assert run(*force, "--pictures", folder / "pictures") == 0
    said = capsys.readouterr().out
    decoding = Translator.load(out).force("der hund", "the dog")
    assert decoding.text(Translator.load(out).target.tokens.__getitem__, what="translation") in said
    for line in ("  1  the ", "  2  dog ", "  3  </s> "):
        assert line in said
    names = {path.name for path in (folder / "pictures").iterdir()}
    assert names == {"der.hund-forced.png", "der.hund-forced-attention.png"}
    assert run("translate", out, "das ei", *force[2:]) == 1
    assert "--force: expected one sentence" in capsys.readouterr().err
    assert run("translate", out, "der hund", "--pictures", folder) == 1
    assert "--pictures: expected --list or --force" in capsys.readouterr().err
    assert run("translate", out, "der hund", "--force", "the xylophone") == 0
    assert "<unk>" in capsys.readouterr().out


def untrained(segmenter=None, seed=0):
    """A small model that has learned nothing."""
    shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    rng = np.random.default_rng(seed)
    return Translator.untrained(
        "transformer", toy_german()[:100], segmenter or Words(), rng, **shape
    )


@pytest.fixture
def model(tmp_path):
    """Its file."""
    untrained().save(tmp_path / "best.npz")
    return tmp_path / "best.npz"


@pytest.fixture
def of_subwords(tmp_path):
    """The file of one that cuts sentences into sub-words."""
    sentences = (side for pair in toy_german()[:100] for side in pair)
    untrained(Subwords.learn(sentences, 110)).save(tmp_path / "subwords.npz")
    return tmp_path / "subwords.npz"


@pytest.mark.parametrize("which", ["model", "of_subwords"])
def test_a_forced_translation_that_is_no_utf8_is_told(which, request, capsys):
    """With sub-words it ended in a traceback."""
    path = request.getfixturevalue(which)
    assert run("translate", path, "ein hund", "--force", "a \udcff dog") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "pyentmax translate: --force: expected UTF-8, got byte 0xff after 'a '"


def test_subwords_refuse_half_a_surrogate_pair(of_subwords):
    with pytest.raises(DataError, match="sentence 'ein .udcff': expected text that UTF-8 can"):
        Translator.load(of_subwords).translate("ein \udcff")


@pytest.mark.parametrize("listing", [(), ("--list", "--best", "1")])
def test_a_sentence_of_which_sub_words_leave_nothing_is_named_first(
    of_subwords, capsys, monkeypatch, listing
):
    """With --list it was found when its turn came, after the output of those before."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("der hund\n\u200b\n"))
    assert run("translate", of_subwords, "-", *listing) == 1
    said = capsys.readouterr()
    assert r"sentence 2: expected a word or a sub-word, got none of '\u200b'" in said.err
    assert not said.out


def test_each_sentence_has_pictures_of_its_own(model, tmp_path, capsys, monkeypatch):
    """The second sentence's were written over the first one's."""
    long = 80 * "hund "
    sentences = ["ein hund ?", "ein hund :", "Ein Hund", f"{long} a", f"{long} b"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(sentences)))
    listing = ("--list", "--best", 1, "--beam", 1)
    assert run("translate", model, "-", *listing, "--pictures", tmp_path / "all") == 0
    drawn = [line for line in capsys.readouterr().out.splitlines() if line.startswith("picture: ")]
    assert len({line.casefold() for line in drawn}) == 3 * len(sentences)
    assert len(list((tmp_path / "all").iterdir())) == 3 * len(sentences)
    # The first of a name has the one that it has alone.
    assert run("translate", model, sentences[0], *listing, "--pictures", tmp_path / "one") == 0
    for path in (tmp_path / "one").iterdir():
        assert (tmp_path / "all" / path.name).read_bytes() == path.read_bytes()
    assert (tmp_path / "all" / "Ein.Hund-3-tree.png").exists()


def test_characters_without_a_picture_are_told_once_and_not_by_matplotlib(
    model, tmp_path, capsys, monkeypatch, recwarn
):
    monkeypatch.setattr(sys, "stdin", io.StringIO("ein hund \U0001f469"))
    listing = ("--list", "--best", 1, "--beam", 1)
    assert run("translate", model, "-", *listing, "--pictures", tmp_path) == 0
    assert capsys.readouterr().err.count("the pictures lack some characters") == 1
    assert not [warning for warning in recwarn if "missing from font" in str(warning.message)]


class StoppedAtTheFirst(io.StringIO):
    """Standard output; a signal comes when the first translations are written."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, text):
        if self.number is not None:
            signal.raise_signal(self.number)
            self.number = None
        return super().write(text)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_whoever_stops_a_translation_keeps_what_is_done(model, capsys, monkeypatch, number, code):
    """Nothing was written before all was translated."""
    sentences = [f"der {'alte ' * (i % 3)}hund" for i in range(1000)]

    def translate(stream):
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(sentences)))
        monkeypatch.setattr(sys, "stdout", stream)
        return run("translate", model, "-", "--beam", 1), stream.getvalue()

    finished, all_of_it = translate(io.StringIO())
    assert (finished, all_of_it.count("\n")) == (0, 1000)
    capsys.readouterr()
    stopped, part = translate(StoppedAtTheFirst(number))
    assert stopped == code
    assert capsys.readouterr().err.endswith(
        "pyentmax translate: stopped; 512 of 1,000 translations are written\n"
    )
    assert part == "".join(all_of_it.splitlines(keepends=True)[:512])


@pytest.mark.parametrize("options", [("--list", "--best", "1"), ("--force", "a dog")])
def test_half_a_surrogate_pair_among_the_words_is_drawn(model, tmp_path, monkeypatch, options):
    translator = Translator.load(model)
    tokens = translator.target.tokens
    strange = Vocabulary((*tokens[:4], *(f"\ud800{token}" for token in tokens[4:])))
    Translator(translator.model, translator.source, strange, Words()).save(model)
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # which takes it, as __main__ makes any do
    pictures = tmp_path / "pictures"
    assert run("translate", model, "der hund", *options, "--pictures", pictures) == 0
    assert list(pictures.iterdir())


def test_two_dashes_are_a_sentence_behind_two_others(model, capsys):
    """Nothing was printed, and the command said that it had done what it was asked for."""
    assert run("translate", "--quiet", model, "--", "ein", "--") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run("translate", "--quiet", model, "--", "--") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("name_of", [of_sentences, of_words])
def test_the_name_of_a_picture_has_nothing_that_no_file_has(name_of):
    assert name_of("a\0b") == name_of("a\udcffb") == "a.b"


@pytest.mark.parametrize("character", ["a", "ä", "字", "𝄞"])
def test_the_name_of_a_picture_is_not_too_long_for_file_systems(tmp_path, character):
    """80 characters of a sentence were, where one takes three bytes: nothing was drawn."""
    ending = "-forced-attention.png"  # the longest
    for name in (
        of_sentences(90 * character),
        of_words(90 * character, "V;PST", 90 * character),
    ):
        with replacing(tmp_path / f"{name}{ending}") as file:
            file.write(b"drawn")
        assert name[:50] == 50 * character


def test_subwords_from_a_number_or_a_file(folder, capsys):
    out, path = folder / "run", folder / "small.toml"
    path.write_text(SMALL.replace("[data]", "[data]\nsubwords = 110"), "utf-8")
    command = ("train", "transformer", "--config", path, "--out", out, "--quiet")
    assert run(*command) == 0
    translator = Translator.load(out)
    assert len(translator.source) == len(translator.target) == 110
    (folder / "joint.model").write_bytes(translator.segmenter.state())
    path.write_text(SMALL.replace("[data]", '[data]\nsubwords = "joint.model"'), "utf-8")
    assert run(*command[:-2], folder / "other", "--quiet") == 0
    assert Translator.load(folder / "other").source == translator.source
    (folder / "joint.model").write_bytes(b"broken")
    assert run(*command[:-2], folder / "third", "--quiet") == 1
    assert "joint.model: expected a sentencepiece model" in capsys.readouterr().err
    assert not (folder / "third").exists()


def test_bad_files_are_told_in_one_line(folder, capsys):
    command = ("train", "transformer", "--config", folder / "small.toml", "--out", folder / "run")
    (folder / "train.en").write_text("a\n", "utf-8")
    assert run(*command) == 1
    error = capsys.readouterr().err
    assert "100 in" in error
    assert "and 1 in" in error
    assert error.count("\n") == 1
    (folder / "train.en").unlink()
    assert run(*command) == 1
    assert "train.en: No such file" in capsys.readouterr().err
    assert not (folder / "run").exists()
    assert run("translate", folder / "run", "x") == 1
    assert "no checkpoint" in capsys.readouterr().err


def test_an_empty_sentence_is_named(folder, capsys, monkeypatch):
    command = ("train", "transformer", "--config", folder / "small.toml", "--out", folder / "run")
    run(*command, "--quiet")
    monkeypatch.setattr(sys, "stdin", io.StringIO("der hund\nein \udcff hund\n"))
    assert run("translate", folder / "run", "-") == 1
    assert "sentence 2: expected UTF-8, got byte 0xff after 'ein '" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("der hund\n\n"))
    assert run("translate", folder / "run", "-") == 1
    assert "sentence 2: expected at least one word" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[data]", "[data", "expected TOML"),
        ("[data]", "[date]", "expected the tables data, model, training; got 'date'"),
        ("tokens = 300", "token = 300", r"\[data\]: expected train, .*; got 'token'"),
        ("tokens = 300", "tokens = 0", r"\[data\] tokens: expected a number above 0, got 0"),
        ("tokens = 300", "tokens = 9\nbatch_size = 3", "expected tokens or batch_size, got both"),
        ("tokens = 300", "subwords = 0.5", r"\[data\] subwords: expected a number above 0 or a"),
        ("tokens = 300", "subwords = 0", r"\[data\] subwords: expected a number above 0 or a"),
        ("tokens = 300", r'subwords = "a\u0000b"', r"\[data\] subwords: expected a number above 0"),
        ("tokens = 300", "tokens = " + "1" * 5000, "small.toml: expected TOML"),
        ("tokens = 300", "tokens = " + "[" * 5000, "small.toml: expected TOML"),
        ('dev = "dev.tsv"', r'dev = "a\u0000b"', r"\[data\] dev: expected names of files, got 'a"),
        ('dev = "dev.tsv"', "", r"\[data\] dev: expected two files .* got None"),
        ('dev = "dev.tsv"', 'dev = ["a"]', r"\[data\] dev: expected two files"),
        ("width = 8", "hidden = 8", r"\[model\]: expected width, .*; got 'hidden'"),
        ("updates = 4", "epochs = 4", r"\[training\]: expected updates, .*; got 'epochs'"),
    ],
)
def test_a_configuration_that_cannot_be_read(folder, old, new, message):
    path = folder / "small.toml"
    path.write_text(SMALL.replace(old, new), "utf-8")
    with pytest.raises(DataError, match=message):
        read_experiment(path, "transformer")


def test_a_longest_that_leaves_no_pair_is_named(folder):
    path = folder / "small.toml"
    path.write_text(SMALL.replace("tokens = 300", "tokens = 300\nlongest = 1"), "utf-8")
    with pytest.raises(DataError, match=r"\[data\] longest: expected at least \d+, the words of"):
        read_experiment(path, "transformer").pairs()


def test_values_that_do_not_fit_are_errors_of_one_line(folder, capsys):
    path = folder / "small.toml"
    for old, new, message in (
        ("warmup = 2", "", "warmup: expected with the schedule"),
        ("heads = 2", "heads = 3", "heads: expected a divisor"),
        (
            "updates = 4",
            'updates = "four"',
            "[training] updates: expected a whole number, got 'four'",
        ),
        ("width = 8", "width = 8.5", "[model] width: expected a whole number, got 8.5"),
        ("layers = 1", "attention_bias = 1", "attention_bias: expected true or false, got 1"),
        ("betas = [0.9, 0.98]", "betas = 0.9", "betas: expected a list, got 0.9"),
        ("layers = 1", "attention = 0.5", "mapping: expected"),
        ("tokens = 300", "tokens = 3", "the length of the longest pair"),
    ):
        path.write_text(SMALL.replace(old, new), "utf-8")
        assert run("train", "transformer", "--config", path, "--out", folder / "run") == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_shipped_configurations_are_found_by_name():
    for name in ("rnn", "transformer"):
        experiment = read_experiment(f"toy-{name}", name)
        train, dev = experiment.pairs()
        assert (len(train), len(dev)) == (3000, 200)
        assert not {p.source for p in train} & {p.source for p in dev}
    with pytest.raises(
        DataError, match="expected a file or one of .*toy-rnn, toy-transformer.*; got"
    ):
        read_experiment("nowhere.toml", "rnn")


@pytest.mark.parametrize(
    "name",
    ["peters2019-rnn", "correia2019-transformer", "explicit2019-transformer"]
    + ["multi30k-rnn", "multi30k-transformer"],
)
def test_settings_of_the_papers_can_be_trained_with(name):
    architecture = name.rpartition("-")[2]
    experiment = read_experiment(name, architecture)
    _, shape = ARCHITECTURES[architecture]
    shape(source_size=9, target_size=9, **experiment.model)
    TrainingConfig(**experiment.training)


def test_an_alpha_may_be_written_as_a_number(folder):
    path = folder / "small.toml"
    path.write_text(
        SMALL.replace("layers = 1", "layers = 1\nattention = 1.25\noutput = 2"), "utf-8"
    )
    model = read_experiment(path, "transformer").model
    assert (model["attention"], model["output"]) == ("1.25", "2")


def test_long_pairs_can_be_left_out_of_training(folder):
    path = folder / "small.toml"
    path.write_text(SMALL.replace("tokens = 300", "longest = 6"), "utf-8")
    train, dev = read_experiment(path, "transformer").pairs()
    assert 0 < len(train) < 100
    assert max(len(side.split()) for pair in train for side in pair) == 6
    assert len(dev) == 20


@pytest.mark.slow
def test_a_short_demonstration(tmp_path, capsys):
    assert demo.run_demo(tmp_path, seed=0, updates=40) == 0
    text = capsys.readouterr().out
    assert demo.AMBIGUOUS in text
    assert "total probability" in text
    assert "of 200 translated as in the corpus" in text
    assert "α of the context heads" in text
    pictures = {p.name for p in tmp_path.glob("*.png")}
    assert len(pictures) == 7
    assert all(str(tmp_path / name) in text for name in pictures)


def test_the_demonstration_shows_sentences_that_it_has_not_seen():
    train, dev = demo.demo_pairs(read_experiment(demo.CONFIG, "transformer"))
    assert not {demo.AMBIGUOUS, demo.CLEAR} & {pair.source for pair in train}
    words = {word for pair in train for word in pair.source.split()}
    assert set(demo.AMBIGUOUS.split()) | set(demo.CLEAR.split()) <= words


def test_a_folder_with_a_run_of_the_users_is_left_alone(folder):
    run("train", "transformer", "--config", folder / "small.toml", "--out", folder / "run")
    before = (folder / "run" / "best.npz").read_bytes()
    with pytest.raises(ValueError, match="a run that is not the demonstration's"):
        demo.run_demo(folder / "run", seed=0)
    assert (folder / "run" / "best.npz").read_bytes() == before


@pytest.mark.deep
def test_the_demonstration_lists_both_translations_and_no_other(tmp_path, capsys):
    assert demo.run_demo(tmp_path, seed=0) == 0
    found = Translator.load(tmp_path).translate(demo.AMBIGUOUS)
    assert found.exact
    sentences = {"the woman has painted the old bank", "the woman has painted the old bench"}
    translator = Translator.load(tmp_path)
    assert {translator.sentence(h.tokens) for h in found.hypotheses} == sentences
    assert "Exact and complete" in capsys.readouterr().out
    # Where the beam says that its list is complete, every string there is, is on it.
    _, dev = demo.demo_pairs(read_experiment(demo.CONFIG, "transformer"))
    results = [(pair.source, translator.translate(pair.source)) for pair in dev[:40]]
    complete = [(source, result) for source, result in results if result.exact]
    assert len(complete) >= 20
    assert any(len(result.hypotheses) > 1 for _, result in complete)
    for source, result in complete:
        strings = every_string(translator, source)
        assert {h.tokens for h in result.hypotheses} == set(strings)
        for h in result.hypotheses:
            assert h.probability == pytest.approx(strings[h.tokens], rel=1e-3, abs=1e-9)


def every_string(translator, sentence):
    """All strings that a model finds possible, with their probabilities, length by length."""
    ids, found, prefixes = translator.source_ids(sentence), {}, [()]
    while prefixes:
        source = np.repeat(ids[None], len(prefixes), axis=0)
        longer = []
        decoded = forced_decoding(translator.model, source, source >= 0, prefixes)
        for prefix, steps in zip(prefixes, decoded, strict=True):
            if steps.support[-1, translator.model.eos]:
                found[prefix] = steps.probability
            tokens = np.flatnonzero(steps.support[-1])
            longer += [(*prefix, int(t)) for t in tokens if t != translator.model.eos]
        prefixes = longer
    return found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--best", "2"], "--best: expected --list with it"),
        (["--budget", "9"], "--budget: expected --list with it"),
        (["--search", "exact"], "--search exact: expected --list with it"),
        (["--list", "--budget", "9"], "--budget: expected --search exact with it"),
        (["--list", "--whole"], "--whole: is for the best translation"),
        (["--list", "--search", "exact", "--beam", "7"], "--beam: expected without --search exact"),
        (["--force", "a dog", "--beam", "7"], "--beam: expected without --force a dog"),
        (["--force", "a dog", "--whole"], "--whole: is for the best translation"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(capsys, options, message):
    assert main(["translate", "nowhere", "ein hund", *options]) == 1
    assert message in capsys.readouterr().err


def test_a_configuration_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text("\ufeff" + SMALL, "utf-8")
    assert read_experiment(path, "transformer").model["width"] == 8
    path.write_bytes("# größer\n".encode("latin-1"))
    with pytest.raises(DataError, match="small.toml: expected text in UTF-8"):
        read_experiment(path, "transformer")
