"""The loop: it learns, a resumed run equals an uninterrupted one, and it stops as it should."""

import json
import math
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from bigrams import Bigrams, Interrupting, Windows
from stages import slow

from pyentmax.seq2seq.data import BucketedPairs
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.training import (
    CheckpointError,
    RunOptions,
    TrainingConfig,
    Validation,
    load_checkpoint,
    loop,
    read_history,
    train,
)
from pyentmax.seq2seq.training.interrupt import TERMINATING, handling

RNG = np.random.default_rng(0)
# Copy the source: learnable, and of several lengths.
PAIRS = [(s, s) for s in (RNG.integers(4, 8, size=n) for n in RNG.integers(1, 5, size=50))]
BATCHES = BucketedPairs(PAIRS, 8)  # seven per epoch


def new_model(seed=0, attention="1.5"):
    config = RNNSeq2SeqConfig(8, 8, hidden=8, dropout=0.2, attention=attention)
    return RNNSeq2Seq.initialize(config, np.random.default_rng(seed), bos=1, eos=2)


def checksum(model):
    return float(sum(x.sum(dtype=np.float64) for x in model.params.values()))


def validate(model):
    """Stands for a validation: any figures that depend on the parameters will do."""
    return Validation(abs(checksum(model)), checksum(model) % 1)


def config(**changes):
    return TrainingConfig(**{"updates": 40, "rate": 0.02, "validate_every": 10} | changes)


def run(
    model,
    directory=None,
    training=None,
    validate=validate,
    batches=None,
    settings=None,
    save_best=None,
    before_update=None,
    **options,
):
    """Train, with further fields of RunOptions."""
    where = RunOptions(directory, progress=False, **options)
    known = {"settings": settings, "save_best": save_best, "before_update": before_update}
    batches = batches or (Windows() if isinstance(model, Bigrams) else BATCHES)
    return train(model, batches, training or config(), validate, where, **known)


def figures(history):
    return history.update, history.loss, history.dev_loss, history.dev_accuracy


def assert_same_run(model, history, other, expected):
    assert figures(history) == figures(expected)
    for name, x in other.params.items():
        np.testing.assert_array_equal(model.params[name], x, err_msg=name)


def updates_in(directory):
    return load_checkpoint(directory / "last.npz", loop.TRAINING_STATE)[1]["updates"]


# --- learning -------------------------------------------------------------------------------------
def test_any_model_learns_from_any_batches():
    model = Bigrams()
    run(model, training=config(rate=0.2))
    assert (model.params["scores"].argmax(axis=1) == [1, 2, 3, 0]).all()


def test_seed_determines_the_run():
    a, b, c = new_model(), new_model(), new_model()
    first = run(a)
    assert_same_run(b, run(b), a, first)
    assert figures(run(c, training=config(seed=1))) != figures(first)


def test_gradients_are_clipped():
    # A gradient clipped to far below Adam's ε of 1e-8 moves next to nothing.
    model = Bigrams()
    run(model, training=config(clip=1e-14))
    assert 0 < np.abs(model.params["scores"]).max() < 1e-5


def test_inverse_sqrt_schedule_and_betas(monkeypatch):
    rates = []

    class Recording(loop.Adam):
        def step(self, gradients, rate):
            rates.append(rate)
            assert self.betas == (0.9, 0.98)
            super().step(gradients, rate)

    monkeypatch.setattr(loop, "Adam", Recording)
    run(new_model(), training=config(schedule="inverse_sqrt", warmup=10, betas=(0.9, 0.98)))
    t = np.arange(1, 41)
    np.testing.assert_allclose(rates, 0.02 * np.minimum(t / 10, (10 / t) ** 0.5), rtol=1e-12)


def test_halving_follows_the_validation_loss():
    losses = iter([1.0, 2.0, 3.0, 1.0])
    constant, halved = Bigrams(), Bigrams()
    options = {"training": config(schedule="halve"), "keep": "last"}
    run(constant, validate=lambda m: Validation(1.0, 0.0), **options)
    run(halved, validate=lambda m: Validation(next(losses), 0.0), **options)
    assert checksum(constant) != checksum(halved)


class Parts(Windows):
    """The same batches in every epoch."""

    def __init__(self, *parts):
        self.parts = parts

    def epoch(self, rng):
        return self.parts


def test_accumulated_batches_weigh_by_their_tokens():
    # Windows of 3 and of 7 tokens have 2 and 6 of 8 pairs, and disagree on what follows a 0.
    text = np.array([0, 1, 0, 2, 0, 2, 0, 2, 0])
    models = [Bigrams(), Bigrams()]
    once = run(models[0], batches=Parts(text))
    twice = run(models[1], batches=Parts(text[:3], text[2:]), training=config(accumulate=2))
    # float32, over 40 updates of rate 0.02.
    np.testing.assert_allclose(
        models[1].params["scores"], models[0].params["scores"], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(twice.loss, once.loss, rtol=1e-4)


def test_validation_sees_the_mean_of_snapshots():
    before, means = [], []

    class Recording(Bigrams):
        def loss(self, params, batch, rng=None):
            before.append(self.params["scores"].copy())
            return super().loss(params, batch, rng)

    def check(model):
        means.append(model.params["scores"].copy())
        return Validation(1.0, float(len(means)))

    model = Recording()
    run(model, training=config(average=3, average_every=12), validate=check)
    # Validations after 10, 20, 30 and 40 updates; before[n] are the parameters after n.
    for mean, copies in zip(means, [(10,), (12,), (12, 24), (12, 24, 36)], strict=True):
        expected = np.mean([before[n] for n in copies], axis=0)
        np.testing.assert_allclose(mean, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(model.params["scores"], means[-1])  # the best
    plain, averaged = Bigrams(), Bigrams()
    run(plain, keep="last")
    run(averaged, training=config(average=3, average_every=12), keep="last")
    np.testing.assert_array_equal(averaged.params["scores"], plain.params["scores"])


def test_diagnostics_are_recorded_every_20_updates(tmp_path):
    class Diagnosed(Bigrams):
        def diagnostics(self):
            return {"largest": self.params["scores"].max()}

    settings = config(updates=50, validate_every=25)
    whole = run(Diagnosed(), training=settings)
    assert whole.diagnostics["update"] == [0, 20, 40]
    assert whole.diagnostics["largest"][0] == 0 < whole.diagnostics["largest"][1]
    for stop in (20, 13, 0):  # after 20 and after 33 updates
        batches = Interrupting(Windows(), stop)
        parts = run(Diagnosed(), tmp_path, settings, batches=batches, resume=stop != 20)
    assert parts.diagnostics == whole.diagnostics


def test_hook_gives_each_update_its_model_and_factors(tmp_path):
    seen = []

    def hook_of(model):
        def hook(updates, optimizer):
            seen.append(updates)
            optimizer.factors = {"scores": 0.0 if updates < 2 else 1.0}
            return model

        return hook

    model, start = Bigrams(), Bigrams().params["scores"]
    run(model, training=config(updates=2), before_update=hook_of(model))
    np.testing.assert_array_equal(model.params["scores"], start)
    model, whole = Bigrams(), Bigrams()
    run(whole, training=config(updates=5), before_update=hook_of(whole))
    assert np.abs(whole.params["scores"] - start).max() > 0
    options = {"training": config(updates=5), "before_update": hook_of(model)}
    run(model, tmp_path, batches=Interrupting(Windows(), 3), **options)
    run(model, tmp_path, resume=True, **options)
    np.testing.assert_array_equal(model.params["scores"], whole.params["scores"])
    assert seen == [0, 1] + 2 * [0, 1, 2, 3, 4]


# --- best parameters, early stop ------------------------------------------------------------------
def test_best_or_last_parameters_and_best_file(tmp_path):
    parameters, saved, model = [], [], Bigrams()
    accuracies = iter([0.2, 0.9, 0.5, 0.1] * 2)

    def scripted(model):
        parameters.append(checksum(model))
        return Validation(1.0, next(accuracies))

    def save(path):
        assert path.name == "best.npz"
        saved.append(checksum(model))

    history = run(model, tmp_path, validate=scripted, save_best=save)
    assert history.best_accuracy == 0.9
    assert saved == parameters[:2]
    assert checksum(model) == parameters[1]
    run(model, validate=scripted, keep="last")
    assert checksum(model) == parameters[-1]


def test_patience_stops_and_stays_stopped(tmp_path):
    accuracies = iter([0.5, 0.6, 0.6, 0.4])
    settings = config(updates=100, patience=2)
    options = {"validate": lambda model: Validation(1.0, next(accuracies))}
    history = run(Bigrams(), tmp_path, settings, **options)
    assert history.update == [10, 20, 30, 40]
    again = run(Bigrams(), tmp_path, settings, resume=True, **options)
    assert figures(again) == figures(history)


def test_last_update_is_always_validated():
    assert run(Bigrams(), training=config(updates=17)).update == [10, 17]


def test_seconds_exclude_validation():
    now = [0.0]  # a clock that advances by 1 at each reading and by 1000 in a validation

    def clock():
        now[0] += 1
        return now[0]

    def slow(model):
        now[0] += 1000
        return validate(model)

    seconds = run(Bigrams(), validate=slow, clock=clock).seconds
    assert 40 <= seconds[-1] < 60


# --- resuming -------------------------------------------------------------------------------------
EVERYTHING = {  # an update of three batches spans two epochs
    "schedule": "inverse_sqrt",
    "warmup": 8,
    "betas": (0.9, 0.98),
    "accumulate": 3,
    "average": 5,
    "average_every": 4,
}


@pytest.mark.parametrize(
    ("stop", "settings", "attention"),
    [
        (7, {}, "1.5"),  # between two validations, at the end of an epoch
        *slow((10, {"schedule": "halve"}, "learned")),  # at a validation
    ],
)
def test_interrupted_and_resumed_run_equals_straight_one(tmp_path, stop, settings, attention):
    settings = config(**settings)
    straight, resumed = new_model(attention=attention), new_model(9, attention)
    expected = run(straight, training=settings)
    history = run(
        new_model(attention=attention), tmp_path, settings, batches=Interrupting(BATCHES, stop)
    )
    assert history.interrupted
    assert updates_in(tmp_path) == -(-stop // settings.accumulate)
    history = run(resumed, tmp_path, settings, resume=True)
    assert not history.interrupted
    assert_same_run(resumed, history, straight, expected)


def test_killed_run_repeats_what_followed_its_checkpoint(tmp_path):
    class Killed(BaseException):
        pass

    class Limited(Interrupting):
        def count(self, batch):
            if self.counted == 28:
                raise Killed
            return super().count(batch)

    straight, resumed = new_model(), new_model()
    expected = run(straight)
    with pytest.raises(Killed):
        run(new_model(), tmp_path, batches=Limited(BATCHES, 0), save_every=0)
    assert updates_in(tmp_path) == 28
    assert_same_run(resumed, run(resumed, tmp_path, resume=True), straight, expected)


@pytest.mark.slow
def test_run_killed_at_its_first_checkpoint_begins_anew(tmp_path):
    class Killed(BaseException):
        pass

    def save_and_die(path):
        path.write_bytes(b"best")
        raise Killed

    straight, resumed = new_model(), new_model()
    with pytest.raises(Killed):
        run(new_model(), tmp_path, save_best=save_and_die)
    with pytest.raises(CheckpointError, match=r"training\.seed was 0, is 1"):
        run(new_model(), tmp_path, config(seed=1), resume=True)
    history = run(resumed, tmp_path, resume=True)
    assert_same_run(resumed, history, straight, run(straight))


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    model, again = new_model(), new_model(4)
    expected = run(model, tmp_path)
    before = (tmp_path / "last.npz").read_bytes()
    assert_same_run(again, run(again, tmp_path, resume=True), model, expected)
    assert (tmp_path / "last.npz").read_bytes() == before
    assert figures(read_history(tmp_path)) == figures(expected)


def test_resumed_run_writes_a_best_that_was_moved(tmp_path):
    def save_best(path):
        path.write_text(repr(checksum(model)))

    model = new_model()
    run(model, tmp_path, save_best=save_best, keep="last")
    best = (tmp_path / "best.npz").rename(tmp_path / "moved").read_text()
    model = new_model(4)
    run(model, tmp_path, resume=True, save_best=save_best, keep="last")
    assert (tmp_path / "best.npz").read_text() == best != repr(checksum(model))


def test_longer_run_validates_as_often_as_its_length_says(tmp_path):
    """A run of 50 updates that became one of 600 was validated every 5: its rate fell to 7e-7."""
    settings = config(schedule="halve", validate_every=None)
    run(Bigrams(), tmp_path, settings)
    longer = replace(settings, updates=100)
    expected = [*range(4, 41, 4), *range(50, 101, 10)]
    assert run(Bigrams(), tmp_path, longer, resume=True).update == expected
    run(Bigrams(), tmp_path / "linear")
    with pytest.raises(CheckpointError, match="made longer if .* its schedule is not 'linear'"):
        run(Bigrams(), tmp_path / "linear", config(updates=60), resume=True)


@pytest.mark.slow
def test_finished_run_can_be_extended(tmp_path):
    settings = config(**EVERYTHING)
    straight, longer = new_model(), new_model()
    expected = run(straight, training=settings)
    run(new_model(), tmp_path, replace(settings, updates=20))
    assert_same_run(longer, run(longer, tmp_path, settings, resume=True), straight, expected)
    with pytest.raises(CheckpointError, match=r"training\.updates was 40, is 30"):
        run(new_model(), tmp_path, replace(settings, updates=30), resume=True)


@pytest.mark.parametrize(
    ("settings", "updates"),
    [
        (config(updates=20), 40),  # the rate falls to zero at the end
        (config(updates=15, schedule="halve"), 40),  # its last validation was between two others
    ],
)
def test_length_that_shaped_a_run_cannot_change(tmp_path, settings, updates):
    run(new_model(), tmp_path, settings)
    with pytest.raises(CheckpointError, match=r"belongs to another run \(training\.updates was"):
        run(new_model(), tmp_path, replace(settings, updates=updates), resume=True)


def test_other_settings_are_refused(tmp_path):
    data = {"data": {"train": "aa", "sizes": [1, 2]}}
    run(new_model(), tmp_path, settings=data)
    written = json.loads((tmp_path / "settings.json").read_text())
    assert written == {"training": {**vars(config()), "betas": [0.9, 0.999]}, **data}

    def refused(message, model=None, training=None, settings=data):
        with pytest.raises(CheckpointError, match=message):
            run(model or new_model(), tmp_path, training, settings=settings, resume=True)

    refused(r"belongs to another run \(training\.rate was 0\.02, is 0\.5\)", None, config(rate=0.5))
    refused(r"data\.train was 'aa', is 'bb'", settings={"data": {**data["data"], "train": "bb"}})
    refused(r"data\.train was 'aa', is None", settings={})
    narrow = RNNSeq2SeqConfig(source_size=8, target_size=8, hidden=6)
    model = RNNSeq2Seq.initialize(narrow, np.random.default_rng(0), bos=1, eos=2)
    refused(r"last\.npz: .*could not broadcast", model)
    refused(r"last\.npz: .*scores", Bigrams())


# --- the directory --------------------------------------------------------------------------------
def test_folder_that_is_not_empty_is_refused(tmp_path):
    run(Bigrams(), tmp_path / "run")
    before = (tmp_path / "run" / "last.npz").read_bytes()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("the user's own")
    for folder, name in ((tmp_path / "run", "last.npz"), (tmp_path / "notes", "notes.txt")):
        for demonstration in (None, "demo"):
            with pytest.raises(ValueError, match=f"expected an empty folder .* it holds {name}"):
                run(Bigrams(), folder, demonstration=demonstration)
    assert (tmp_path / "run" / "last.npz").read_bytes() == before
    with pytest.raises(FileNotFoundError, match=r"no run to resume: there is no .*settings\.json"):
        run(Bigrams(), tmp_path / "notes", resume=True)
    with pytest.raises(FileExistsError):
        run(Bigrams(), tmp_path / "notes" / "notes.txt")


def test_demonstration_replaces_its_own_run_only(tmp_path):
    options = {"save_best": lambda path: path.write_text("old"), "demonstration": "demo"}
    run(Bigrams(), tmp_path, **options)
    (tmp_path / "training.png").write_text("a picture")
    for other in (None, "demo-translation"):
        with pytest.raises(ValueError, match="expected an empty folder"):
            run(Bigrams(), tmp_path, demonstration=other)
    run(Bigrams(), tmp_path, batches=Interrupting(Windows(), 5), demonstration="demo")
    assert updates_in(tmp_path) == 5
    assert not (tmp_path / "best.npz").exists()


def test_run_that_failed_at_once_can_start_anew(tmp_path):
    with pytest.raises(ValueError, match="upper is infeasible"):  # of a source with a few tokens
        run(new_model(attention="csoftmax:0.01"), tmp_path)
    assert run(Bigrams(), tmp_path).update == [10, 20, 30, 40]


def test_one_run_at_a_time_in_a_folder(tmp_path):
    pytest.importorskip("fcntl", reason="this system has no locks that end with a process")

    def second_run(model):
        with pytest.raises(BlockingIOError, match="another process trains in .*another folder"):
            run(Bigrams(), tmp_path, resume=(tmp_path / "last.npz").exists())
        return validate(model)

    assert run(Bigrams(), tmp_path, validate=second_run).update == [10, 20, 30, 40]


# --- failures -------------------------------------------------------------------------------------
class Contradiction:
    """The same source, first with one target and then with another."""

    unit, count = BATCHES.unit, BATCHES.count

    def epoch(self, rng):
        for target in (4, 5):
            yield from BucketedPairs([([6], [target])] * 2, 2).epoch(rng)


def with_factor(model, name, factor):
    def hook(updates, optimizer):
        optimizer.factors = {name: factor}
        return model

    return hook


def test_training_that_diverges_is_reported_once(tmp_path):
    # Adam's first step moves all but the output's weights by the rate, so that the biases
    # of 4 and 5 are 6e38 apart, and with them the second loss: too large for float32 in any order.
    model = new_model()
    hook = with_factor(model, "output.weight", 1e-38)
    with pytest.raises(FloatingPointError, match="training loss is .* a smaller rate than 3e"):
        run(model, tmp_path, config(rate=3e38), batches=Contradiction(), before_update=hook)
    assert not (tmp_path / "last.npz").exists()


@pytest.mark.parametrize("figures", [(math.nan, 0.5), (1.0, math.nan)])
def test_validation_that_is_not_finite_ends_the_run(tmp_path, figures):
    results = iter([(1.0, 0.5), figures])
    with pytest.raises(FloatingPointError, match="the validation .* is nan at update 20"):
        run(Bigrams(), tmp_path, validate=lambda model: Validation(*next(results)))
    assert updates_in(tmp_path) == 10


@pytest.mark.parametrize("updates", [1, 40])  # at a validation, and when interrupted
def test_parameter_that_overflows_is_not_saved(tmp_path, updates):
    # The loss of the first update is finite: the step overflows.
    model, batches = Bigrams(), Interrupting(Windows(), 1)
    hook = with_factor(model, "scores", 1e44)
    with pytest.raises(FloatingPointError, match="largest entry of scores is inf at update 1"):
        run(model, tmp_path, config(updates=updates), batches=batches, before_update=hook)
    assert not (tmp_path / "last.npz").exists()


def test_termination_reaches_its_handler_after_saving(tmp_path, monkeypatch):
    reached = []
    before = signal.signal(signal.SIGTERM, lambda *_: reached.append(updates_in(tmp_path)))
    try:
        batches = Interrupting(Windows(), 5, signal.SIGTERM)
        assert run(Bigrams(), tmp_path, batches=batches).interrupted
    finally:
        signal.signal(signal.SIGTERM, before)
    assert reached == [5]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_ignored_hangup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with handling(print, TERMINATING) as handled:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert [*handled] == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_second_interrupt_stops_at_once(tmp_path):
    calls = []

    def twice(model):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return validate(model)

    with pytest.raises(KeyboardInterrupt):
        run(Bigrams(), tmp_path, validate=twice)
    assert updates_in(tmp_path) == 20
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_epoch_without_batches_is_an_error():
    with pytest.raises(ValueError, match="batches: expected at least one in each epoch, got none"):
        run(Bigrams(), batches=Parts())


# --- settings -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("updates", [0, None, 2.5, True, "9"], "a whole number from 1 up"),
        ("validate_every", [0, 2.5, math.nan], "a whole number from 1 up"),
        ("seed", [-1, 1.5], "a whole number from 0 up"),
        ("rate", [0.0, math.inf, math.nan, "fast"], "a finite number above 0"),
        ("clip", [0, math.nan], "a number above 0"),
        ("schedule", ["cosine"], "one of linear, halve, inverse_sqrt"),
        ("warmup", [5], "a number with the schedule 'inverse_sqrt', and only there"),
        ("average_every", [5], "a number with an average above 1, and only there"),
        ("betas", [0.9, (0.9,), (0.9, 1.0), ("a", 0.9)], r"two numbers in \[0, 1\)"),
    ],
)
def test_wrong_settings(name, values, expected):
    for value in values:
        with pytest.raises(ValueError, match=f"{name}: expected {expected}.*, got"):
            TrainingConfig(**{name: value})


def test_wrong_options():
    for options, message in (
        ({"keep": "first"}, "keep: expected 'best' or 'last', got 'first'"),
        ({"resume": True}, "resume: expected the directory of the run, got none"),
    ):
        with pytest.raises(ValueError, match=message):
            RunOptions(**options)


def test_numbers_of_numpy_become_pythons(tmp_path):
    settings = TrainingConfig(updates=np.int64(4), rate=np.float32(0.5), betas=[0.5, 0.75])
    assert [type(x) for x in (settings.updates, settings.rate)] == [int, float]
    run(Bigrams(), tmp_path, settings, batches=Interrupting(Windows(), 2))
    assert run(Bigrams(), tmp_path, settings, resume=True).update == [1, 2, 3, 4]


def test_log_shows_speed_loss_and_accuracy(capsys):
    train(Bigrams(), Windows(), config(), validate)
    lines = capsys.readouterr().err.splitlines()
    parts = ("tokens/s, loss ", ", rate 0", ", dev ")
    assert sum(all(part in line for part in parts) for line in lines) == 4


def test_settings_are_strict_json(tmp_path):
    """An infinite clip, which switches clipping off, was written as Infinity."""

    def refuse(constant):
        raise AssertionError(constant)

    endless = config(updates=2, clip=math.inf)
    run(Bigrams(), tmp_path, endless)
    text = (tmp_path / "settings.json").read_text()
    assert json.loads(text, parse_constant=refuse)["training"]["clip"] == "Infinity"
    run(Bigrams(), tmp_path, endless, resume=True)
    (tmp_path / "settings.json").write_text(text.replace('"Infinity"', "Infinity"))  # as it was
    run(Bigrams(), tmp_path, endless, resume=True)
