"""The table of translation: its rows, what is measured of them, and the command."""

from dataclasses import replace

import numpy as np
import pytest

from pyentmax.cli import main
from pyentmax.data import DataError
from pyentmax.tasks.records import read_json, write_json
from pyentmax.tasks.translation import Translator, Words, toy_german
from pyentmax.tasks.translation.bleu import bleu
from pyentmax.tasks.translation.experiments import report, runs
from pyentmax.tasks.translation.experiments.measures import paired_bootstrap, supports
from pyentmax.tasks.translation.experiments.rows import ROWS, Row, row
from pyentmax.tasks.translation.multi30k import read_multi30k
from pyentmax.tasks.translation.translator import ARCHITECTURES
from pyentmax.training import (
    LAST,
    TRAINING_STATE,
    TrainingConfig,
    load_checkpoint,
    save_checkpoint,
)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_has_settings_that_can_be(name):
    experiment = ROWS[name].experiment(seed=3)
    _, shape = ARCHITECTURES[ROWS[name].architecture]
    shape(source_size=9, target_size=9, **experiment.model)
    assert TrainingConfig(**experiment.training).seed == 3


def test_a_row_is_found_by_its_name():
    mappings = {"attention": "2", "output": "2"}
    assert row("rnn-2-2").model == {**mappings, "start": "uniform", "embedding_std": 1.0}
    assert row("rnn-2-2.reversed").reverse
    assert row("rnn-1.5-1.5-glorot").model == {"attention": "1.5", "output": "1.5"}
    with pytest.raises(DataError, match=r"row: expected one of transformer-1, .*; got 'rnn'"):
        row("rnn")


# --- data ---------------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Toy German under the names of Multi30k, with few pairs held out."""
    monkeypatch.setattr("pyentmax.tasks.translation.multi30k.DEV", 10)
    pairs = toy_german()[:76]
    for split, chosen in (("train", pairs[:70]), ("val", pairs[70:])):
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{pair[side]}\n" for pair in chosen)
            (tmp_path / f"{split}.lc.norm.tok.{language}").write_text(text, "utf-8")
    return tmp_path


def test_the_last_training_pairs_are_held_out(folder, monkeypatch):
    data = read_multi30k(folder)
    assert [len(part) for part in data] == [60, 10, 6]
    assert data.train + data.dev + data.val == toy_german()[:76]
    assert read_multi30k(folder, reverse=True).dev[0] == data.dev[0][::-1]
    monkeypatch.setenv("PYENTMAX_DATA", str(folder))
    assert read_multi30k() == data


def test_data_that_are_not_there_are_named(folder, monkeypatch):
    monkeypatch.delenv("PYENTMAX_DATA", raising=False)
    with pytest.raises(DataError, match="data: expected --data FOLDER, or PYENTMAX_DATA"):
        read_multi30k()
    with pytest.raises(DataError, match=r"expected train.lc.norm.tok.de or multi30k/tok/train"):
        read_multi30k(folder / "elsewhere")
    monkeypatch.setattr("pyentmax.tasks.translation.multi30k.DEV", 70)
    with pytest.raises(DataError, match="expected more than 70 training pairs"):
        read_multi30k(folder)


# --- measures -----------------------------------------------------------------------------------
SHAPES = {
    "transformer": {"width": 8, "layers": 2, "heads": 2, "inner": 8, "attention": "1.5"},
    "rnn": {"hidden": 8, "attention": "1.5"},
}


@pytest.mark.parametrize("architecture", SHAPES)
def test_supports_are_counted_over_queries_that_are_not_padding(architecture):
    pairs = toy_german()[:9]
    rng = np.random.default_rng(0)
    translator = Translator.untrained(architecture, pairs, Words(), rng, **SHAPES[architecture])
    for name, x in translator.model.params.items():
        if "query" in name or "attention" in name or "output" in name:
            x *= 30
    encoded = translator.pairs(pairs)
    found = supports(translator, encoded, batch_size=4)
    total = {"context": 0.0, "output": 0.0}
    for pair in pairs:
        forced = translator.force(*pair)
        total["output"] += forced.support.sum()
        total["context"] += (forced.attention > 0).sum()
    steps = sum(len(target) + 1 for _, target in encoded)
    assert found["output"] == pytest.approx(total["output"] / steps, rel=1e-6, abs=1e-12)
    if architecture == "rnn":
        assert set(found) == {"context", "output"}
        assert found["context"] == pytest.approx(total["context"] / steps, rel=1e-6, abs=1e-12)
    else:
        counts = {"encoder": [], "decoder": [], "context": []}
        for source, target in encoded:
            read = np.concatenate([[translator.model.bos], target])[None]
            weights = translator.model.attention_weights(source[None], source[None] > 0, read)
            for kind, layers in weights.items():
                counts[kind] += [(layer > 0).sum(-1).ravel() for layer in layers]
        for kind, those in counts.items():
            assert found[kind] == pytest.approx(np.concatenate(those).mean(), rel=1e-6, abs=1e-12)
        assert 1 < found["encoder"] < np.mean([len(source) for source, _ in encoded])


def test_bleu_is_that_of_tokenised_text():
    references = ["a man in the park .", "two dogs play &apos; here ."]
    found = bleu(references, references)
    assert found.score == pytest.approx(100, rel=1e-6, abs=1e-12)
    assert found.signature.startswith("nrefs:1|case:mixed|eff:no|tok:none|smooth:exp")


def test_the_bootstrap_is_paired_and_repeatable(caplog):
    references = [f"a man sees dog number {i} ." for i in range(50)]
    worse = [r if i % 3 else r.replace("man sees", "woman sees") for i, r in enumerate(references)]
    found = paired_bootstrap(worse, references, references, samples=50)
    whole = bleu(worse, references).score - bleu(references, references).score
    assert found.difference == pytest.approx(whole, rel=1e-6, abs=1e-12)
    assert found.low < found.difference < found.high < 0
    assert found == paired_bootstrap(worse, references, references, samples=50)
    same = paired_bootstrap(worse, worse, references, samples=50)
    assert same == (0, 0, 0)
    for given in ([], [], []), (worse[1:], worse, references), (worse, worse, references[1:]):
        with pytest.raises(ValueError, match="as many translations of either system as references"):
            paired_bootstrap(*given)
    assert not caplog.records  # no warning for each sentence
    # Where an order of n-grams has no match, too: the two were smoothed, or not, each its own way.
    poor, poorer = ["a man saw the cat ."] * 3, ["a dog"] * 3
    found = paired_bootstrap(poor, poorer, ["a man sees the dog ."] * 3, samples=9)
    whole = [bleu(x, ["a man sees the dog ."] * 3).score for x in (poor, poorer)]
    assert found.difference == pytest.approx(whole[0] - whole[1], rel=1e-6, abs=0)
    assert found.difference > 1


# --- the command ----------------------------------------------------------------------------------
@pytest.fixture
def small_rows(monkeypatch):
    whole = Row.experiment
    shapes = {
        "transformer": {"width": 8, "layers": 1, "heads": 2, "inner": 8},
        "rnn": {"hidden": 8},
    }

    def experiment(self, seed=0):
        of_row = whole(self, seed)
        training = {**of_row.training, "updates": 6, "validate_every": 2}
        model = {**of_row.model, **shapes[self.architecture]}
        if "first_updates" in model:
            model["first_updates"] = 4
        data = {name: x for name, x in of_row.data.items() if name != "subwords"}
        return replace(of_row, data=data | {"tokens": 200}, model=model, training=training)

    monkeypatch.setattr(Row, "experiment", experiment)


def run(*words):
    return main(["reproduce", "translation", "--quiet", *(str(word) for word in words)])


@pytest.mark.parametrize(
    "name", ["transformer-learned-switch", pytest.param("rnn-1.5-1.5", marks=pytest.mark.slow)]
)
def test_a_row_is_trained_stopped_continued_and_measured(
    folder, tmp_path, small_rows, name, capsys
):
    command = ("--row", name, "--data", folder, "--out")
    assert run(*command, tmp_path / "whole") == 0
    out = tmp_path / "paused"
    assert run(*command, out, "--pause-after", 3) == 0
    assert "1 of 1 models not finished" in capsys.readouterr().out
    there = out / f"{name}.seed-0"
    assert not (there / "result.json").exists()
    assert [entry["update"] for entry in read_json(there / "curve.json")] == [2]
    assert run(*command, out) == 0
    results = [
        read_json(path / f"{name}.seed-0" / "result.json") for path in (tmp_path / "whole", out)
    ]
    for result in results:
        for changing in ("decode_seconds", "train_seconds", "tokens_per_second", "date"):
            del result[changing]
    assert results[0] == results[1]
    assert results[0]["updates"] == 6
    assert "tok:none" in results[0]["signature"]
    traces = [
        read_json(path / f"{name}.seed-0" / "curve.json") for path in (tmp_path / "whole", out)
    ]
    assert traces[0] == traces[1]
    assert [entry["update"] for entry in traces[0]] == [2, 4, 6]
    assert len((there / "translations.txt").read_text("utf-8").splitlines()) == 6
    assert run(*command, out) == 0
    assert "(finished)" in capsys.readouterr().out
    assert run(*command, out, "--updates", 8) == 0
    assert read_json(there / "result.json")["updates"] == 8
    assert [entry["update"] for entry in read_json(there / "curve.json")] == [2, 4, 6, 8]


def test_a_sentence_that_dev_does_not_have_is_named(folder, tmp_path, capsys):
    """The last one was −1, and one too many a traceback."""
    for number in ("-1", "10"):
        assert run("--data", folder, "--out", tmp_path / "out", "--pictures", number) == 1
        said = f"pictures: expected a dev sentence from 0 to 9, got {number}"
        assert said in capsys.readouterr().err


def test_data_that_is_missing_or_another_leaves_no_trace(folder, tmp_path, small_rows, capsys):
    """The folder of the run was there, with the file of its lock."""
    out = tmp_path / "out"
    assert run("--row", "transformer-1", "--data", tmp_path / "nowhere", "--out", out) == 1
    assert "nowhere: expected train.lc.norm.tok.de" in capsys.readouterr().err
    assert not out.exists()
    out.mkdir()
    (out / "settings.json").write_text('{"data": "another"}')
    assert run("--row", "transformer-1", "--data", folder, "--out", out) == 1
    assert "was begun with other settings" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["settings.json"]


def test_the_other_direction(folder, tmp_path, small_rows):
    name = "transformer-1"
    command = ("--row", name, "--data", folder, "--out", tmp_path / "out")
    assert run(*command, "--direction", "en-de", "--updates", 2) == 0
    there = tmp_path / "out" / f"{name}.reversed.seed-0"
    translator = Translator.load(there)
    pairs = read_multi30k(folder, reverse=True).train
    english = {word for pair in pairs for word in pair.source.split()}
    assert english <= set(translator.source.tokens)
    assert not {"hund", "der"} & set(translator.source.tokens)
    assert {"hund", "der"} <= set(translator.target.tokens)
    assert read_json(there / "result.json")["row"] == f"{name}.reversed"


@pytest.mark.slow
def test_runs_on_a_cluster_are_those_of_one_machine(
    folder, tmp_path, small_rows, monkeypatch, capsys
):
    distributed = pytest.importorskip("distributed")
    names = ("rnn-1-1", "transformer-top8")
    command = ("--row", *names, "--data", folder, "--out")
    assert run(*command, tmp_path / "alone") == 0
    capsys.readouterr()
    # Workers in this process: they have its small rows.
    options = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50, "processes": False}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, **options) as local:
        on_cluster = (*command, tmp_path / "out", "--scheduler", local.scheduler_address)
        assert run(*on_cluster) == 0
        said = capsys.readouterr().out
        assert said.count(" finished") == 2
        results = [
            [read_json(path / f"{name}.seed-0" / "result.json") for name in names]
            for path in (tmp_path / "alone", tmp_path / "out")
        ]
        for result in sum(results, []):
            for changing in ("decode_seconds", "train_seconds", "tokens_per_second", "date"):
                del result[changing]
        assert results[0] == results[1]
        # One that fails is told, and does not stop the others.
        (tmp_path / "out" / "rnn-1-1.seed-0" / "last.npz").write_bytes(b"no checkpoint")
        (tmp_path / "out" / "rnn-1-1.seed-0" / "result.json").unlink()
        assert run(*on_cluster) == 1
        said = capsys.readouterr().out
        assert "transformer-top8, seed 0 finished" in said
        assert "rnn-1-1, seed 0 failed: " in said
        assert "1 of 2 models failed; the same command tries them again" in said
    assert run(*on_cluster, "--pause-after", 2) == 1
    assert "--pause-after: expected without --scheduler" in capsys.readouterr().err
    monkeypatch.setattr("pyentmax.tasks.cluster.CONNECT", 0.5)
    assert run(*command, tmp_path / "out", "--scheduler", "tcp://127.0.0.1:1") == 1
    assert "no Dask scheduler answers" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_from_before_there_were_starts_goes_on(folder, tmp_path, small_rows):
    """Settings of the model that are not given are as if they had never been there."""
    name = "transformer-1.5"
    command = ("--row", name, "--data", folder, "--out", tmp_path / "out")
    assert run(*command, "--pause-after", 2) == 0
    last = tmp_path / "out" / f"{name}.seed-0" / LAST
    arrays, meta = load_checkpoint(last, TRAINING_STATE)
    for later in ("first_attention", "first_updates", "anneal_updates", "query_key_scale"):
        del meta["identity"]["config"][later]
    save_checkpoint(last, arrays, meta)
    assert run(*command) == 0


def test_an_unknown_row_is_an_error_before_anything_is_trained(tmp_path, capsys):
    assert run("--row", "rnn-1-1", "rnn-9", "--out", tmp_path / "out") == 1
    assert "row: expected one of" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# --- the report -----------------------------------------------------------------------------------
def written(out, name, seed=0, bleu=None, accuracy=(30.0, 40.0), translations=None):
    """The files of a run, as the command writes them."""
    supports = {"encoder": 9.0, "decoder": 5.25, "context": 8.0, "output": 400.0}
    folder = out / f"{name}.seed-{seed}"
    curve = [
        {"update": 400 * (i + 1), "dev_loss": 3.0, "dev_token_accuracy": a, **supports}
        for i, a in enumerate(accuracy)
    ]
    write_json(folder / "curve.json", curve)
    if bleu is not None:
        result = {"updates": 400 * len(accuracy), "bleu": bleu, "supports": supports}
        result |= {"signature": "nrefs:1|tok:none", "tokens_per_second": 1234}
        write_json(folder / "result.json", result)
    if translations is not None:
        (folder / "translations.txt").write_text("".join(f"{t}\n" for t in translations), "utf-8")


@pytest.mark.slow
def test_the_report_says_what_is_there_and_what_is_not(folder, tmp_path, capsys):
    out = tmp_path / "out"
    references = [pair.target for pair in read_multi30k(folder).val]
    worse = ["a dog", *references[1:]]
    written(out, "transformer-1", bleu=30.0, translations=references)
    written(out, "transformer-1.5", bleu=28.0, translations=worse)
    written(out, "transformer-1.5", seed=1, bleu=29.0, accuracy=(31.0, 42.0))
    written(out, "rnn-1.5-1.5", accuracy=(30.0,))
    assert run("--report", "--out", out, "--data", folder) == 0
    shown = capsys.readouterr().out
    lines = {line.split(" | ")[0]: line for line in shown.splitlines()[:8] if line[:3] != "| -"}
    assert "| 2 | 800 | 41.0 ± 1.0 | 28.5 ± 0.5 |" in lines["| transformer-1.5"]
    assert "| 9.0 / 5.2 / 8.0 | 400.0 | 1,234 |" in lines["| transformer-1.5"]
    assert "| 1 | 400 | 30.0 | – | – |" in lines["| rnn-1.5-1.5"]
    assert "BLEU: sacrebleu, nrefs:1|tok:none." in shown
    assert "| transformer-1.5 | 30.5 | 41.0 |" in shown
    differences = read_json(out / "differences.json")
    assert set(differences) == {"transformer-1.5.seed-0"}
    assert differences["transformer-1.5.seed-0"]["difference"] < 0
    assert f"{differences['transformer-1.5.seed-0']['difference']:+.1f} (" in shown
    assert (out / "starts.png").stat().st_size > 1000
    # Without translations and references, the differences stay as they were found.
    for path in out.glob("*/translations.txt"):
        path.unlink()
    assert run("--report", "--out", out) == 0
    assert read_json(out / "differences.json") == differences


def test_a_run_that_is_being_made_longer_is_reported_as_it_was(folder, tmp_path):
    """Its accuracy was that of the longer run, beside the updates and BLEU of the shorter one."""
    written(tmp_path, "transformer-1.5", bleu=28.0)
    curve = tmp_path / "transformer-1.5.seed-0" / "curve.json"
    longer = {**read_json(curve)[-1], "update": 1200, "dev_token_accuracy": 50.0}
    write_json(curve, [*read_json(curve), longer])
    [entry] = report.recorded(tmp_path)
    assert (entry.updates, entry.accuracy) == (800, 40.0)


@pytest.mark.slow
def test_a_difference_goes_when_one_of_the_runs_gets_longer(folder, tmp_path):
    """The one of before stood beside the new updates."""
    references = [pair.target for pair in read_multi30k(folder).val]
    worse = ["a dog", *references[1:]]
    written(tmp_path, "transformer-1", bleu=30.0, translations=references)
    written(tmp_path, "transformer-1.5", bleu=28.0, translations=worse)
    differences = tmp_path / "differences.json"
    report.write_report(tmp_path, folder)
    before = read_json(differences)["transformer-1.5.seed-0"]
    longer = {"accuracy": (30.0, 40.0, 41.0)}
    written(tmp_path, "transformer-1.5", bleu=29.0, translations=worse, **longer)
    report.write_report(tmp_path, folder)
    assert read_json(differences) == {}
    # Nor where the longer run has no result yet, or no longer.
    write_json(differences, {"transformer-1.5.seed-0": before})
    (tmp_path / "transformer-1.5.seed-0" / "result.json").unlink()
    report.write_report(tmp_path, folder)
    assert read_json(differences) == {}
    # Nor does one stay, of runs that are longer by now, where the translations are not at hand.
    write_json(differences, {"transformer-1.5.seed-0": before})
    written(tmp_path, "transformer-1", bleu=29.0, **longer)
    for path in tmp_path.glob("*/translations.txt"):
        path.unlink()
    report.write_report(tmp_path)
    assert read_json(differences) == {}


def test_translations_are_replaced_after_the_result_of_the_shorter_run(
    folder, tmp_path, small_rows, monkeypatch
):
    """Killed between the two, the run was finished, with the translations of a longer one."""
    command = ("--row", "transformer-1.5", "--data", folder, "--out", tmp_path)
    assert run(*command) == 0
    there = tmp_path / "transformer-1.5.seed-0"
    write, before = runs.write_text, (there / "translations.txt").read_bytes()

    def stopped(path, text):
        if path.name == "translations.txt":
            raise KeyboardInterrupt
        write(path, text)

    with monkeypatch.context() as killed:
        killed.setattr(runs, "write_text", stopped)
        assert run(*command, "--updates", 8) == 130
    assert (there / "translations.txt").read_bytes() == before
    assert not (there / "result.json").exists()
    assert run(*command, "--updates", 8) == 0
    assert read_json(there / "result.json")["updates"] == 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer-1.5", "rnn-1.5-1.5"])
def test_pictures_of_a_trained_model(folder, tmp_path, small_rows, name, monkeypatch):
    out = tmp_path / "out"
    command = ("--row", name, "--data", folder, "--out", out)
    assert run(*command, "--pause-after", 2) == 0
    # Words are never of several pieces; let each sentence be one.
    monkeypatch.setattr(report, "word_clusters", lambda pieces: [range(len(pieces))])
    assert run(*command, "--pictures", 3) == 0
    there = out / f"{name}.seed-0"
    assert (there / "forced.png").stat().st_size > 1000
    other = "attention" if name.startswith("rnn") else "merging"
    assert (there / f"{other}.png").stat().st_size > 1000


def test_the_merging_head_is_the_one_that_joins_pieces(monkeypatch):
    pairs = toy_german()[:5]
    rng = np.random.default_rng(0)
    translator = Translator.untrained("transformer", pairs, Words(), rng, **SHAPES["transformer"])
    joins = np.zeros((2, 2, 3, 3)) + np.eye(3)
    joins[1, 0] = [[0, 0.75, 0.25], [0.9, 0, 0.1], [0, 0, 1]]
    monkeypatch.setattr(report, "_encoder_weights", lambda *_: list(joins))
    monkeypatch.setattr(report, "word_clusters", lambda _: [(0, 1)])
    assert report.merging_head(translator, ["a b c"] * 2) == (1, 0, 0.9)
    monkeypatch.setattr(report, "word_clusters", lambda _: [])
    with pytest.raises(ValueError, match="sentences: expected one with a word of several pieces"):
        report.merging_head(translator, ["a b c"])
