"""Language models from a text to the table: training, resuming, writing, measuring."""

import json
import os
import signal
import sys

import numpy as np
import pytest

from pyentmax.cli import main
from pyentmax.data import SPECIALS, DataError
from pyentmax.tasks.language_model import Text, Writer, read_shakespeare, read_text, train_writer
from pyentmax.tasks.language_model.experiments import report, rows, runs
from pyentmax.tasks.language_model.experiments.rows import row
from pyentmax.tasks.runs import Run, read_curve, training_state
from pyentmax.training import CheckpointError, TrainingConfig

LINES = "the cat sat on the mat\nthe dog sat on the log\n" * 40
SHAPE = {"width": 8, "layers": 1, "heads": 2, "inner": 8, "dropout": 0.1}
SIZES = ["--width", 8, "--layers", 1, "--heads", 2, "--inner", 8, "--context", 16]
QUICK = TrainingConfig(updates=3, rate=1e-2, validate_every=2)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "input.txt").write_text(LINES, "utf-8")
    return tmp_path


@pytest.fixture
def tiny_rows(monkeypatch):
    """Rows that are trained in an instant."""
    monkeypatch.setattr(rows, "MODEL", rows.MODEL | SHAPE)
    settings = {"updates": 4, "warmup": 2, "validate_every": 2}
    monkeypatch.setattr(rows, "TRAINING", rows.TRAINING | settings)
    for name, value in {"CONTEXT": 16, "LENGTHS": (8, 16), "MEASURED": 64, "KS": (1, 4)}.items():
        monkeypatch.setattr(runs, name, value)


def run(*words):
    return main([str(word) for word in words])


def test_train_resume_and_sample(folder, capsys):
    out = folder / "run"
    command = ("train", "language-model", folder / "input.txt", "--out", out, "--quiet", *SIZES)
    assert run(*command, "--updates", 4, "--warmup", 2, "--slow", 0.1) == 0
    assert "4 updates in" in capsys.readouterr().out
    assert run(*command) == 1
    assert "already holds a run" in capsys.readouterr().err
    assert run("sample", out, "--beginning", "Who") == 1
    assert "--beginning: the model's text has no 'W'; expected" in capsys.readouterr().err
    assert run("sample", out, "--beginning", "the ", "--length", 30, "--samples", 2) == 0
    first, second = capsys.readouterr().out.split("-" * 20)
    assert first.startswith("the ")
    assert first.strip() != second.strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["top8", "learned-late", "never"])
def test_a_row_is_trained_measured_and_reported(folder, capsys, tiny_rows, name):
    out = folder / "rows"
    command = ("reproduce", "language-model", "--data", folder, "--out", out, "--row", name)
    assert run(*command, "--quiet", "--pause-after", 2) == 0
    assert "not finished" in capsys.readouterr().out
    assert run(*command, "--quiet") == 0
    assert f"| {name} | {row(name).what} | 1 | 4 |" in capsys.readouterr().out
    result = json.loads((out / f"{name}.seed-0" / "result.json").read_text("utf-8"))
    assert len(result["attended"]) == 1
    assert ("alphas" in result) == (name == "learned-late")
    assert 0 < result["scores"]["sparsemax_score"] < 1
    # What a sparse output rules out has no bits, with whatever k its heads are read.
    assert ("by_k" in result) == (name == "top8")
    if name == "top8":
        assert set(result["by_k"]) == {"1", "4", "all"}
        assert result["bits"] == pytest.approx(np.log2(len(set(LINES))), abs=2)
    assert run(*command, "--quiet") == 0
    assert "(finished)" in capsys.readouterr().out
    assert run(*command, "--report") == 0
    # The loss of a sparse output is not in bits.
    assert (out / "curves.png").exists() == (name != "never")


def test_a_curve_has_the_updates_of_the_validations_however_a_run_got_longer(folder, tiny_rows):
    out = folder / "rows"
    command = ("reproduce", "language-model", "--data", folder, "--out", out, "--row", "1.5")
    assert run(*command, "--quiet", "--updates", 3) == 0
    assert run(*command, "--quiet", "--updates", 9, "--pause-after", 5) == 0
    assert run(*command, "--quiet", "--updates", 9) == 0
    curve = [entry["update"] for entry in read_curve(out / "1.5.seed-0")]
    assert curve == training_state(out / "1.5.seed-0")["history"]["update"] == [2, 3, 4, 6, 8, 9]


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to itself")
def test_ctrl_c_stops_all_runs_though_they_are_to_pause(folder, tiny_rows, monkeypatch, capsys):
    validate = Writer.validate

    def interrupted(self, tokens):
        os.kill(os.getpid(), signal.SIGINT)
        return validate(self, tokens)

    monkeypatch.setattr(Writer, "validate", interrupted)
    out = folder / "rows"
    command = ("reproduce", "language-model", "--data", folder, "--out", out, "--quiet")
    assert run(*command, "--row", "1.5", "top8", "--pause-after", 3) == 130
    assert "interrupted; the same command continues" in capsys.readouterr().out
    assert training_state(out / "1.5.seed-0")["updates"] == 2
    assert not (out / "top8.seed-0").exists()


def test_another_text_leaves_no_trace_of_the_run(folder, capsys, tiny_rows):
    out = folder / "rows"
    out.mkdir()
    (out / "settings.json").write_text('{"text": "another"}')
    command = ("reproduce", "language-model", "--data", folder, "--out", out, "--row", "top8")
    assert run(*command, "--quiet") == 1
    assert "was begun with other settings" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["settings.json"]


@pytest.mark.parametrize("command", ["reproduce captions", "reproduce table1", "train captions"])
def test_a_device_that_is_not_there_leaves_nothing_behind(tmp_path, command, monkeypatch, capsys):
    """Settings and the file of a lock were there."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    out = tmp_path / "new"
    assert main([*command.split(), "--out", str(out), "--quiet", "--device", "cuda"]) == 1
    assert "device 'cuda' needs CuPy" in capsys.readouterr().err
    assert not out.exists()


def test_an_error_is_one_line_whatever_a_file_is_called(tmp_path, capsys):
    """Its name was printed as it is, with line ends and what a terminal obeys."""
    assert run("sample", tmp_path / "a\nb\x1b[2J\u2028c") == 1
    assert capsys.readouterr().err.splitlines()[2].endswith("a\\nb\\x1b[2J\\u2028c")


@pytest.mark.parametrize("experiment", ["translation", "language-model", "table1"])
def test_a_report_of_a_folder_without_runs_names_it_and_writes_nothing(
    tmp_path, experiment, capsys
):
    pytest.importorskip("matplotlib", reason="pictures need the extra: pyentmax[models]")
    command = ["reproduce", experiment, "--report", "--out", str(tmp_path / "typo")]
    if experiment == "table1":
        command += ["--languages", "adyghe"]
    assert main(command) == 1
    assert "typo: expected the folder of " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("translation --report --pictures 0", "--report: expected without --pictures 0, it would"),
        ("translation --pictures 0 --pause-after 9", "--pause-after: expected without --pictures"),
        ("translation --report --updates 9", "--updates: expected without --report, it would"),
        ("language-model --report --pause-after 9", "--pause-after: expected without --report"),
        ("table1 --report --scheduler tcp://1", "--scheduler: expected without --report, it would"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(words, message, capsys):
    assert main(["reproduce", *words.split()]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("experiment", ["translation", "language-model", "captions"])
@pytest.mark.parametrize(
    ("option", "number", "message"),
    [
        ("--pause-after", "0", "pause_after: expected at least 1 update, got 0"),
        ("--pause-after", "-1", "pause_after: expected at least 1 update, got -1"),
        ("--updates", "0", "updates: expected at least 1, got 0"),
        ("--updates", "10000000000000", "updates: expected at most 1,000,000,000,000, got 100000"),
        ("--seed", "-1", "seed: expected numbers from 0 up, got -1"),
    ],
)
def test_a_number_that_no_training_has_is_refused_before_there_is_a_folder(
    tmp_path, experiment, option, number, message, capsys
):
    command = ["reproduce", experiment, "--out", str(tmp_path / "out"), option, number]
    assert main(command) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def write_run(out, name, seed, bits_at, *, finished=True):
    """The small files of a run that was validated after so many updates, with these bits."""
    path = out / f"{name}.seed-{seed}"
    path.mkdir()
    curve = [{"update": n, "bits": bits, "attended": 8.0} for n, bits in bits_at.items()]
    path.joinpath("curve.json").write_text(json.dumps(curve), "utf-8")
    if finished:
        updates, bits = list(bits_at.items())[-1]
        result = {
            "updates": updates,
            "bits": bits,
            "attended": [[8.0]],
            "scores": dict.fromkeys(report.SCORES, 0.5),
            "tokens_per_second": 1.0,
            "by_k": {str(k): bits for k in rows.KS} | {"all": bits},
            "by_length": {"256": bits},
        }
        path.joinpath("result.json").write_text(json.dumps(result), "utf-8")


def test_the_report_takes_every_row_and_averages_seeds(tmp_path):
    for name in rows.ROWS:
        write_run(tmp_path, name, 0, {200: 3.0, 400: 3.0})
    write_run(tmp_path, "softmax", 1, {200: 4.0, 400: 4.0})
    table = report.write_report(tmp_path)
    assert "| softmax | softmax | 2 | 400 | 3.500 ± 0.500 |" in table
    assert "\n| softmax | 3.500 |" in table.partition("read in pieces")[2]
    drawn = {path.name for path in report.draw_report(tmp_path)}
    assert drawn == {"curves.png", "positions.png", "k.png"}
    named = [name for of_picture in report.CURVES.values() for name in of_picture]
    assert {*named, *report.READ_WITH_K} <= set(rows.ROWS)
    lines = report._lines_by_k(report.recorded(tmp_path))
    assert lines["trained with that k"] == {str(k): 3.0 for k in rows.KS} | {"all": 3.5}


def test_seeds_of_different_updates_are_not_averaged(tmp_path):
    """Points were, by their place in the curve; and results, of whatever updates they were."""
    write_run(tmp_path, "softmax", 0, {200: 4.0, 300: 3.0, 400: 2.0})  # to 300 first
    write_run(tmp_path, "softmax", 1, {200: 6.0, 400: 4.0})
    write_run(tmp_path, "softmax", 2, {200: 9.0, 300: 9.0})
    runs = report.recorded(tmp_path)
    found = report._curves(runs, ["softmax"])["softmax"]
    assert found == [{"update": 200, "bits": 5.0}, {"update": 400, "bits": 3.0}]
    assert "\n| softmax | 3.000 |" in report.format_by_length(runs)
    assert report._lines_by_k(runs)["softmax"]["all"] == 3.0


def test_a_validation_is_not_averaged_with_the_result_of_another_seed(tmp_path):
    """It reads a part of the text only; and the other columns were of one of the two seeds."""
    write_run(tmp_path, "softmax", 0, {200: 4.0, 400: 3.0})
    write_run(tmp_path, "softmax", 1, {200: 4.0, 400: 2.0}, finished=False)
    lines = report.format_table(report.recorded(tmp_path)).splitlines()[2:]
    assert [line.split(" | ")[2:5] for line in lines] == [
        ["1", "400", "3.000"],
        ["1", "400", "2.000"],
    ]


def test_a_run_that_was_paused_ends_as_one_that_was_not(folder, tiny_rows):
    text = read_text(folder / "input.txt")
    for out, pause in (("whole", None), ("paused", 3)):
        if pause:
            assert not runs.do_run(
                folder / out, Run("1.5", 0), text, pause_after=pause, progress=False
            )
        assert runs.do_run(folder / out, Run("1.5", 0), text, progress=False)
    models = [Writer.load(folder / out / "1.5.seed-0").model for out in ("whole", "paused")]
    for name, x in models[0].params.items():
        np.testing.assert_array_equal(x, models[1].params[name], err_msg=name)


def test_k_of_all_keys_is_softmax(folder):
    writer, _ = train_writer(
        read_text(folder / "input.txt"), QUICK, context=16, progress=False, attention="1", **SHAPE
    )
    held_out = writer.encode(LINES[:400])
    softmax, every = (
        runs.with_attention(writer, choice).bits(held_out) for choice in ("1", "topk_softmax:16")
    )
    assert every == pytest.approx(softmax, abs=1e-6, rel=0)
    one = runs.with_attention(writer, "topk_softmax:1").bits(held_out)
    assert abs(one - softmax) > 1e-6


def test_bits_count_the_same_characters_whatever_is_read_before_them():
    rng = np.random.default_rng(0)
    writer = Writer.untrained(LINES, rng, 16, **SHAPE)
    tokens = writer.encode(LINES[:300])
    labels = [
        np.concatenate([p.labels for p in writer.predictions(tokens, n, counted=8)])
        for n in (8, 16, 32)
    ]
    for longer in labels[1:]:
        np.testing.assert_array_equal(longer, labels[0][-len(longer) :])
    np.testing.assert_array_equal(labels[0], tokens[-len(labels[0]) :])
    # The last 24 characters alone give the same as the end of the whole.
    p = [
        np.take_along_axis(part.probabilities, part.labels[:, None], axis=1)
        for part in writer.predictions(tokens, 16, counted=8)
    ]
    expected = -np.log2(np.concatenate(p).astype(float))[-24:].mean()
    assert writer.bits(tokens, 16, counted=8, limit=24) == pytest.approx(expected, rel=1e-6, abs=0)


def test_bits_are_the_loss_of_softmax():
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, output="1", **SHAPE)
    tokens = writer.encode(LINES[: 16 * 5 + 1])
    loss = writer.validate(tokens).loss
    assert writer.bits(tokens) == pytest.approx(loss / np.log(2), rel=1e-5, abs=0)


def test_a_sparse_output_that_leaves_special_tokens_only_is_not_said_to_overflow():
    shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    writer = Writer.untrained("to be", np.random.default_rng(0), 8, output="2", **shape)
    writer.model.params["output.bias"][:] = 0
    writer.model.params["output.bias"][0] = 100
    with pytest.raises(ValueError, match="its sparse output leaves special tokens only"):
        writer.write("to", 4, np.random.default_rng(0))


@pytest.mark.filterwarnings("ignore:overflow|invalid:RuntimeWarning")
def test_nothing_is_written_by_a_model_whose_numbers_overflow(tmp_path, capsys):
    """It wrote one <pad> after another, and returned 0."""
    shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    writer = Writer.untrained("to be or not to be", np.random.default_rng(0), 8, **shape)
    for param in writer.model.params.values():
        param[...] = 3e38
    writer.save(tmp_path / "best.npz")
    assert main(["sample", str(tmp_path / "best.npz"), "--beginning", "to ", "--length", "4"]) == 1
    captured = capsys.readouterr()
    assert "gives no next character after 3" in captured.err
    assert "<pad>" not in captured.out


def test_what_is_written_is_in_the_support():
    """A sparse output of large scores rules most characters out: none of those is written."""
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, output="1.5", **SHAPE)
    writer.model.params["output.weight"] *= 30
    writer.model.params["output.bias"][: len(SPECIALS)] = -1e3  # no characters
    text = writer.write("the", 60, np.random.default_rng(1))
    assert len(text) == 63
    # As `write` reads again what it keeps, each character is checked after the same text.
    tokens, possible = writer.encode(text), 0
    for end in range(3, len(text)):
        start = _first_read(end, 3, writer.context)
        read = tokens[None, start:end]
        p, _ = writer.model.output.probabilities(
            writer.model.scores(writer.model.params, read).data[0, -1]
        )
        assert p[tokens[end]] > 0
        possible += (p > 0).sum()
    assert possible / 60 < 0.5 * len(writer.vocabulary)  # most draws had something ruled out


def _first_read(end, beginning, context):
    """From where on `Writer.write` has read when it draws the character at ``end``."""
    start, read = max(0, beginning - context // 2), 0
    for place in range(beginning, end + 1):
        if read >= context or place == beginning:
            start = max(0, place - context // 2)
        read = place - start
    return start


def test_only_characters_are_written_however_little_is_learned():
    """A dense output finds <pad> and the like possible, the more so at high temperatures."""
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, **SHAPE, output="1")
    text = writer.write("the", 60, np.random.default_rng(1), temperature=3)
    assert len(text) == 63
    assert set(text) <= set(LINES)


def test_temperature_top_k_and_nucleus():
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, **SHAPE)
    greedy = writer.write("the", 20, np.random.default_rng(1), top_k=1)
    for options in ({"temperature": 1e-3}, {"nucleus": 1e-6}):
        assert writer.write("the", 20, np.random.default_rng(2), **options) == greedy
    assert writer.write("the", 20, np.random.default_rng(2)) != greedy


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda w: w.write("", 3, None), DataError, "at least one character"),
        (lambda w: w.write("the", -1, None), ValueError, "length: expected a number from 0 to"),
        (lambda w: w.write("the", 10**30, None), ValueError, "from 0 to 1,000,000, got 1,000,000,"),
        (lambda w: w.write("€", 3, None), DataError, "€"),
        (lambda w: w.write("the", 3, None, temperature=0), ValueError, "temperature must be"),
        (lambda w: w.write("the", 3, None, temperature=-1), ValueError, "temperature must be"),
        (lambda w: w.write("the", 3, None, temperature=np.nan), ValueError, "temperature must be"),
        (lambda w: w.write("the", 3, None, top_k=0), ValueError, "top_k must be at least 1"),
        (lambda w: w.write("the", 3, None, top_k=-1), ValueError, "top_k must be at least 1"),
        (lambda w: w.write("the", 3, None, nucleus=0), ValueError, "nucleus must be a mass"),
        (lambda w: w.write("the", 3, None, nucleus=2), ValueError, "nucleus must be a mass"),
        (lambda w: w.write("the", 3, None, nucleus=np.nan), ValueError, "nucleus must be a mass"),
    ],
)
def test_nothing_is_written_with_what_is_out_of_range(call, error, words):
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, **SHAPE)
    with pytest.raises(error, match=words):
        call(writer)


def test_a_model_comes_back_from_its_file(tmp_path):
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, attention="learned", **SHAPE)
    writer.save(tmp_path / "model.npz")
    again = Writer.load(tmp_path / "model.npz")
    assert again.description() == writer.description()
    assert again.write("the", 9, np.random.default_rng(1)) == writer.write(
        "the", 9, np.random.default_rng(1)
    )
    writer.context = 0
    writer.save(tmp_path / "damaged.npz")
    with pytest.raises(CheckpointError, match="context: expected a number from 1 up"):
        Writer.load(tmp_path / "damaged.npz")


def test_texts_that_are_none(tmp_path, monkeypatch):
    monkeypatch.delenv("PYENTMAX_DATA", raising=False)
    with pytest.raises(DataError, match="PYENTMAX_DATA"):
        read_shakespeare()
    monkeypatch.setenv("PYENTMAX_DATA", "")  # is not the working directory
    with pytest.raises(DataError, match="PYENTMAX_DATA set"):
        read_shakespeare()
    with pytest.raises(DataError, match=r"expected input\.txt"):
        read_shakespeare(tmp_path)
    (tmp_path / "input.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"input\.txt, line 1: expected UTF-8, got byte 0xff"):
        read_shakespeare(tmp_path)
    (tmp_path / "input.txt").write_bytes(b"one\ntwo\nthr\xe9e\n" * 4)
    with pytest.raises(DataError, match=r"input\.txt, line 3: expected UTF-8, got byte 0xe9"):
        read_shakespeare(tmp_path)
    (tmp_path / "input.txt").write_text("short")
    with pytest.raises(DataError, match="got 5 characters"):
        read_shakespeare(tmp_path)
    with pytest.raises(DataError, match="row: expected one of softmax"):
        row("nothing")
    with pytest.raises(DataError, match="tokens: expected at least"):
        train_writer(Text("ab" * 9, "ab"), QUICK, context=16, progress=False, **SHAPE)
    with pytest.raises(DataError, match="held-out text: expected at least 17 characters.*got 16"):
        train_writer(Text("ab" * 60, "ab" * 8), QUICK, context=16, progress=False, **SHAPE)
    with pytest.raises(DataError, match="held-out text: expected at least 1,025 .*got 400"):
        runs.do_run(tmp_path / "rows", Run("top8", 0), Text("ab" * 1800, "ab" * 200))
    assert not (tmp_path / "rows").exists()


def test_samples_that_are_none_are_refused(capsys):
    for option, value in (("--samples", 0), ("--samples", -1), ("--length", 0), ("--seed", -1)):
        assert run("sample", "nowhere", option, value) == 1
        assert f"{option}: expected" in capsys.readouterr().err


def test_a_text_of_less_than_one_piece_cannot_be_measured_on():
    writer = Writer.untrained("abc", np.random.default_rng(0), 16, layers=1, width=8, heads=2)
    tokens = writer.encode("abcab")
    for measure in (writer.validate, writer.bits, lambda text: next(writer.predictions(text))):
        with pytest.raises(DataError, match="tokens: expected at least 17 characters.* got 5"):
            measure(tokens)


def test_a_mark_at_the_beginning_of_a_file_is_no_character(folder):
    plain = read_text(folder / "input.txt")
    (folder / "marked.txt").write_text("\ufeff" + LINES, "utf-8")
    assert read_text(folder / "marked.txt") == plain


def test_runs_on_another_text_are_not_put_into_one_table(folder, capsys, tiny_rows):
    out = folder / "rows"
    command = ("reproduce", "language-model", "--data", folder, "--out", out, "--quiet", "--row")
    assert run(*command, "softmax") == 0
    (folder / "input.txt").write_text(LINES.replace("dog", "pig"), "utf-8")
    assert run(*command, "top8") == 1
    assert "was begun with other settings (text" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[]", "{}", '{"updates": null}'])
def test_a_damaged_result_is_named(folder, capsys, text):
    path = folder / "rows" / "softmax.seed-0" / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    command = ("reproduce", "language-model", "--data", folder, "--out", folder / "rows")
    assert run(*command, "--quiet", "--row", "softmax") == 1
    assert f"{path}: expected the result of a run" in capsys.readouterr().err


@pytest.mark.parametrize("more", [{}, {"attended": [2]}, {"attended": "x", "scores": None}])
@pytest.mark.parametrize(
    ("experiment", "row"),
    [("language-model", "softmax"), ("translation", "rnn-1-1"), ("captions", "softmax")],
)
def test_a_result_of_another_version_is_told(tmp_path, experiment, row, more, capsys):
    """Reports ended in a KeyError or TypeError where something was missing or of another form."""
    pytest.importorskip("matplotlib", reason="pictures need the extra: pyentmax[models]")
    path = tmp_path / f"{row}.seed-0" / "result.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"row": row, "seed": 0, "updates": 10**6, **more}), "utf-8")
    (path.parent / "curve.json").write_text('[{"update": 2}]', "utf-8")
    (tmp_path / "settings.json").write_text('{"images": 20}', "utf-8")
    report = ["--images", "20", "--row", row] if experiment == "captions" else ["--report"]
    assert run("reproduce", experiment, "--out", tmp_path, *report) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path}: expected results as this command writes them" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"update": "1"}]'])
def test_a_damaged_curve_is_named(folder, capsys, text):
    path = folder / "softmax.seed-0" / "curve.json"
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    assert run("reproduce", "language-model", "--out", folder, "--report") == 1
    assert f"{path}: expected the curve of a run" in capsys.readouterr().err


def test_a_folder_of_no_row_is_named(folder, capsys):
    path = folder / "nonesuch.seed-0" / "curve.json"
    path.parent.mkdir(parents=True)
    path.write_text("[]", "utf-8")
    assert run("reproduce", "language-model", "--out", folder, "--report") == 1
    assert f"{path.parent}: expected the folder of a row" in capsys.readouterr().err
