"""The loop: it learns, a resumed run is the run itself, and it stops as it should."""

import errno
import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bigrams import Bigrams, Windows

from pyentmax.data import BucketedPairs
from pyentmax.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.training import (
    CheckpointError,
    TrainingConfig,
    Validation,
    load_checkpoint,
    loop,
    save_checkpoint,
    train,
)

RNG = np.random.default_rng(0)
# Copy the source: learnable, and of several lengths.
PAIRS = [(s, s) for s in (RNG.integers(4, 8, size=n) for n in RNG.integers(1, 5, size=50))]
BATCHES = BucketedPairs(PAIRS, 8)


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


def run(model, tmp_path=None, **options):
    settings = options.pop("config", config())
    check = options.pop("validate", validate)
    batches = options.pop("batches", BATCHES)
    return train(model, batches, settings, check, directory=tmp_path, progress=False, **options)


def figures(history):
    return (history.update, history.loss, history.dev_loss, history.dev_accuracy)


def test_it_learns():
    history = run(new_model(), config=config(updates=400, validate_every=100))
    assert history.update == [100, 200, 300, 400]
    assert history.loss[-1] < 0.3 * history.loss[0]
    assert history.loss == sorted(history.loss, reverse=True)


@pytest.mark.parametrize("stop", [5, 12])
def test_any_model_learns_from_any_batches(tmp_path, stop, capsys):
    settings, models = config(updates=20, rate=0.2, validate_every=5), [Bigrams(), Bigrams()]
    seen = []

    def check(model):
        seen.append(model)
        if len(seen) * 5 > stop:
            os.kill(os.getpid(), signal.SIGINT)
        return validate(model)

    expected = train(models[0], Windows(), settings, validate)
    assert capsys.readouterr().err.count("tokens/s") == 4
    assert (models[0].params["scores"].argmax(axis=1) == [1, 2, 3, 0]).all()
    options = {"directory": tmp_path, "progress": False}
    assert train(models[1], Windows(), settings, check, **options).interrupted
    again = Bigrams()
    history = train(again, Windows(), settings, validate, resume=True, **options)
    assert figures(history) == figures(expected)
    np.testing.assert_array_equal(again.params["scores"], models[0].params["scores"])


class Watched(Bigrams):
    """Whose largest score can be followed."""

    def watched(self):
        return {"largest": float(self.params["scores"].max())}


def test_what_a_model_lets_one_watch_is_kept_every_20_updates(tmp_path):
    settings = config(updates=50, rate=0.2, validate_every=25)
    whole = train(Watched(), Windows(), settings, validate, progress=False)
    assert whole.watched["update"] == [0, 20, 40]
    assert whole.watched["largest"][0] == 0 < whole.watched["largest"][1]
    for pause in (20, 33, None):  # the first between an update and what is watched before the next
        options = {"directory": tmp_path, "resume": pause != 20, "progress": False}
        parts = train(Watched(), Windows(), settings, validate, pause_after=pause, **options)
    assert parts.watched == whole.watched
    assert train(Bigrams(), Windows(), settings, validate, progress=False).watched == {}


def test_a_run_from_before_anything_was_watched_goes_on(tmp_path):
    settings = config(updates=10, validate_every=5)
    options = {"directory": tmp_path, "progress": False}
    train(Bigrams(), Windows(), settings, validate, pause_after=5, **options)
    arrays, meta = load_checkpoint(tmp_path / "last.npz", loop.TRAINING_STATE)
    del meta["history"]["watched"]
    save_checkpoint(tmp_path / "last.npz", arrays, meta)
    history = train(Bigrams(), Windows(), settings, validate, resume=True, **options)
    assert history.update == [5, 10]


def test_gradients_are_clipped():
    # A gradient that is clipped to far below Adam's ε of 1e-8 moves next to nothing.
    model = Bigrams()
    train(model, Windows(), config(clip=1e-14), validate, progress=False)
    assert 0 < np.abs(model.params["scores"]).max() < 1e-5


def test_the_first_update_goes_at_the_rate_asked_for():
    # Adam's first step is the rate itself, up or down, whatever the gradient; no rate is left for
    # a second.
    model = Bigrams()
    train(model, Windows(), config(updates=1, validate_every=1), validate, progress=False)
    np.testing.assert_allclose(np.abs(model.params["scores"]).max(), 0.02, rtol=1e-5)


def test_the_seed_fixes_everything():
    a, b, c = new_model(), new_model(), new_model()
    first, second = run(a), run(b)
    assert figures(first) == figures(second)
    assert checksum(a) == checksum(b)
    assert figures(run(c, config=config(seed=1))) != figures(first)


@pytest.mark.parametrize(
    ("stop", "schedule", "attention"),
    [
        *((stop, "linear", "1.5") for stop in (7, 10, 23, 33)),
        (33, "halve", "1.5"),
        *((stop, "halve", "learned") for stop in (10, 23)),
    ],
)
def test_resuming_gives_the_uninterrupted_run_to_the_last_digit(
    tmp_path, stop, schedule, attention
):
    settings = config(schedule=schedule)
    straight = new_model(attention=attention)
    expected = run(straight, config=settings)

    broken = new_model(attention=attention)
    count = 0

    class Stopping(BucketedPairs):
        """Raises Ctrl-C's signal while update number ``stop`` is under way."""

        def count(self, batch):
            nonlocal count
            count += 1
            if count == stop:
                os.kill(os.getpid(), signal.SIGINT)
            return super().count(batch)

    history = train(
        broken, Stopping(PAIRS, 8), settings, validate, directory=tmp_path, progress=False
    )
    assert history.interrupted
    assert load_checkpoint(tmp_path / "last.npz", "training state")[1]["updates"] == stop

    resumed = new_model(seed=9, attention=attention)  # whatever is in it is replaced
    history = run(resumed, tmp_path, config=settings, resume=True)
    assert figures(history) == figures(expected)
    for name, x in straight.params.items():
        np.testing.assert_array_equal(resumed.params[name], x, err_msg=name)


def test_a_second_interrupt_stops_at_once_and_the_checkpoint_is_whole(tmp_path):
    calls = []

    def twice(model):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return validate(model)

    with pytest.raises(KeyboardInterrupt):
        run(new_model(), tmp_path, validate=twice)
    _, meta = load_checkpoint(tmp_path / "last.npz", "training state")
    assert meta["updates"] == 20
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_best_or_last_parameters():
    scores = iter([0.2, 0.9, 0.5, 0.1])
    seen = []

    def scripted(model):
        seen.append(checksum(model))
        return Validation(1.0, next(scores))

    model = new_model()
    history = run(model, validate=scripted)
    assert history.best_accuracy == 0.9
    assert checksum(model) == seen[1]
    scores = iter([0.2, 0.9, 0.5, 0.1])
    run(model, validate=scripted, keep="last")
    assert checksum(model) == seen[-1]
    with pytest.raises(ValueError, match="keep: expected 'best' or 'last', got 'first'"):
        run(model, keep="first")


def test_the_best_checkpoint_is_written_when_it_is_found(tmp_path):
    scores = iter([0.2, 0.9, 0.5, 0.1])
    saved = []
    model = new_model()

    def save(path):
        saved.append((path.name, checksum(model)))
        path.touch()

    run(
        model,
        tmp_path,
        validate=lambda m: Validation(1.0, next(scores)),
        save_best=save,
    )
    assert [name for name, _ in saved] == ["best.npz", "best.npz"]
    assert saved[-1][1] == checksum(model)


def test_early_stop():
    scores = iter([0.5, 0.6, 0.6, 0.4, 0.9])
    history = run(
        new_model(),
        config=config(updates=100, patience=2),
        validate=lambda model: Validation(1.0, next(scores)),
    )
    assert history.update == [10, 20, 30, 40]


def test_halving_sees_the_validation_loss():
    losses = iter([1.0, 2.0, 3.0, 1.0])
    plain, halved = new_model(), new_model()
    options = {"config": config(schedule="halve"), "keep": "last"}
    run(plain, validate=lambda m: Validation(1.0, 0.0), **options)
    run(halved, validate=lambda m: Validation(next(losses), 0.0), **options)
    assert checksum(plain) != checksum(halved)


def test_a_loss_that_is_not_finite_is_an_error(tmp_path):
    model = new_model()
    calls = []

    def poison(model):
        calls.append(1)
        if len(calls) == 2:
            model.params["output.bias"][0] = np.nan
        return Validation(1.0, 0.5)

    with pytest.raises(FloatingPointError, match="the training loss is nan at update 20"):
        run(model, tmp_path, validate=poison)
    assert load_checkpoint(tmp_path / "last.npz", "training state")[1]["updates"] == 20


@pytest.mark.parametrize("what", ["norm of the gradient", "validation loss"])
def test_nothing_that_is_not_finite_is_saved(tmp_path, what, monkeypatch):
    calls = []

    def check(model):
        calls.append(1)
        loss = math.nan if what == "validation loss" and len(calls) == 2 else 1.0
        return Validation(loss, 0.5)

    if what == "norm of the gradient":
        norms = iter([1.0] * 15 + [math.inf])
        monkeypatch.setattr(loop, "clip_gradients", lambda g, most: next(norms))
    with pytest.raises(FloatingPointError, match=f"the {what} is"):
        run(new_model(), tmp_path, validate=check)
    arrays, meta = load_checkpoint(tmp_path / "last.npz", "training state")
    assert meta["updates"] == 10
    assert all(np.isfinite(x).all() for x in arrays.values())


def test_resuming_with_other_settings_is_refused(tmp_path):
    run(new_model(), tmp_path)
    with pytest.raises(CheckpointError, match=r"belongs to another run \(rate was 0.02, is 0.5\)"):
        run(new_model(), tmp_path, config=config(rate=0.5), resume=True)
    with pytest.raises(CheckpointError, match="examples: was 50 examples, .*, is 49 examples"):
        run(new_model(), tmp_path, batches=BucketedPairs(PAIRS[1:], 8), resume=True)
    with pytest.raises(CheckpointError, match="batch_size: was 8, is 9"):
        run(new_model(), tmp_path, batches=BucketedPairs(PAIRS, 9), resume=True)
    other = RNNSeq2SeqConfig(source_size=8, target_size=8, hidden=6)
    model = RNNSeq2Seq.initialize(other, np.random.default_rng(0), bos=1, eos=2)
    with pytest.raises(CheckpointError, match="belongs to another run .*attention.weight was"):
        run(model, tmp_path, resume=True)
    with pytest.raises(ValueError, match="needs the directory"):
        run(new_model(), resume=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "schedule", [{"schedule": "halve"}, {"schedule": "inverse_sqrt", "warmup": 5}]
)
def test_a_finished_run_can_be_made_longer(tmp_path, schedule):
    whole = run(new_model(), config=config(**schedule))
    run(new_model(), tmp_path, config=config(updates=20, **schedule))
    longer = run(new_model(), tmp_path, config=config(**schedule), resume=True)
    assert figures(longer) == figures(whole)
    # Not where the rate falls to zero at the end, or validations are a tenth of it.
    for settings in (config(), config(**schedule, validate_every=None)):
        run(new_model(), tmp_path, config=settings)
        with pytest.raises(CheckpointError, match="updates was 40, is 50"):
            run(new_model(), tmp_path, config=replace(settings, updates=50), resume=True)


@pytest.mark.parametrize(
    "settings",
    [{"schedule": "halve", "rate": 0.5}, {"patience": 3}, {"average": 2}, {"average": 5}],
)
@pytest.mark.parametrize("ends", [[17], [3, 10, 25, 38]])
def test_what_is_validated_at_an_end_alone_changes_nothing_of_a_longer_run(
    tmp_path, settings, ends
):
    """The rate was halved once more, and the end's parameters were averaged with the others."""
    settings = {"schedule": "inverse_sqrt", "warmup": 5} | settings
    if settings["schedule"] == "halve":
        del settings["warmup"]
    whole, longer = new_model(), new_model()
    history = run(whole, config=config(**settings), keep="last")
    for updates in [*ends, 40]:
        last = run(
            longer if updates == 40 else new_model(),
            tmp_path,
            config=config(updates=updates, **settings),
            resume=updates > ends[0],
            keep="last",
        )
    assert set(last.update) == {*history.update, *ends}
    seen = dict(zip(last.update, last.dev_loss, strict=True))
    assert [seen[t] for t in history.update] == history.dev_loss
    for name, x in whole.params.items():
        np.testing.assert_array_equal(longer.params[name], x)


@pytest.mark.parametrize("pauses", [[7, 7], [17, 3], [13, 13, 13]])
def test_a_run_that_is_resumed_without_an_update_goes_on_in_the_same_order(tmp_path, pauses):
    """The place in the data was written as that of a new run."""
    whole, paused = new_model(), new_model()
    run(whole, keep="last")
    for k, updates in enumerate(pauses):
        run(new_model(), tmp_path, pause_after=updates, resume=k > 0)
    run(paused, tmp_path, resume=True, keep="last")
    for name, x in whole.params.items():
        np.testing.assert_array_equal(paused.params[name], x)


def test_a_paused_run_that_is_ended_there_goes_on_in_the_same_order(tmp_path):
    settings = {"schedule": "halve", "rate": 0.1}
    whole, longer = new_model(), new_model()
    run(whole, config=config(**settings), keep="last")
    run(new_model(), tmp_path, config=config(**settings), pause_after=17)
    run(new_model(), tmp_path, config=config(updates=17, **settings), resume=True)
    run(longer, tmp_path, config=config(**settings), resume=True, keep="last")
    for name, x in whole.params.items():
        np.testing.assert_array_equal(longer.params[name], x)


def test_patience_looks_at_no_accuracy_of_an_end_alone(tmp_path):
    """One that was higher than those after it made a longer run stop early."""
    settings = {"schedule": "halve", "validate_every": 3, "patience": 2}
    accuracy = {3: 0.1, 4: 0.9, 6: 0.2, 9: 0.3, 12: 0.4, 15: 0.5, 18: 0.6}
    done = []

    def check(_):
        return Validation(1.0, accuracy[done[-1]])

    class Counted(BucketedPairs):
        def count(self, batch):
            done.append(done[-1] + 1 if done else 1)
            return super().count(batch)

    for updates in (4, 18):
        last = run(
            new_model(),
            tmp_path,
            config=config(updates=updates, **settings),
            validate=check,
            batches=Counted(PAIRS, 8),
            resume=updates == 18,
        )
    assert last.update == [3, 4, 6, 9, 12, 15, 18]


def test_a_run_that_knows_its_length_can_be_made_longer_too(tmp_path):
    """Runs of earlier versions say how long they are even where it does not matter."""
    settings = config(schedule="halve", updates=20)
    run(new_model(), tmp_path, config=settings)
    arrays, meta = load_checkpoint(tmp_path / "last.npz", "training state")
    meta["identity"]["settings"]["updates"] = 20
    save_checkpoint(tmp_path / "last.npz", arrays, meta)
    longer = run(new_model(), tmp_path, config=replace(settings, updates=30), resume=True)
    assert longer.update == [10, 20, 30]


def test_a_run_that_was_stopped_can_be_made_to_end_there_and_not_before(tmp_path):
    """It ended without a validation: nothing was the best, and the commands had nothing to say."""
    settings = config(schedule="halve", updates=40)
    run(new_model(), tmp_path, config=settings, pause_after=7)
    with pytest.raises(CheckpointError, match=r"last.npz: 7 updates are done: .* got 5"):
        run(new_model(), tmp_path, config=replace(settings, updates=5), resume=True)
    ended = run(new_model(), tmp_path, config=replace(settings, updates=7), resume=True)
    assert ended.update == [7]
    assert figures(ended) == figures(run(new_model(), config=replace(settings, updates=7)))
    # One that ended with a validation is finished, whatever is asked for.
    again = run(new_model(), tmp_path, config=replace(settings, updates=5), resume=True)
    assert again.update == [7]


def test_resuming_with_other_data_or_another_identity_is_refused(tmp_path):
    run(new_model(), tmp_path, identity={"vocabulary": ["a", "b"]})
    with pytest.raises(CheckpointError, match="vocabulary: not the same"):
        run(new_model(), tmp_path, identity={"vocabulary": ["a", "c"]}, resume=True)
    changed = [*PAIRS[:-1], (PAIRS[-1][0], PAIRS[-1][1][::-1] + 1)]
    with pytest.raises(CheckpointError, match="examples: was 50 examples, .*, is 50 examples"):
        run(new_model(), tmp_path, batches=BucketedPairs(changed, 8), resume=True)


def test_numbers_that_overflow_are_told_once(tmp_path):
    """NumPy's warnings came first, several, from places that say nothing to who trains."""
    with pytest.raises(FloatingPointError, match="a smaller rate than 1e"):
        run(new_model(), tmp_path, config=config(rate=1e300))


@pytest.mark.filterwarnings("error")
def test_a_validation_that_overflows_is_told_once(tmp_path):
    """The only update ends well: it is the validation that meets what it made."""

    def too_large(model):
        scores = model.params["scores"]
        return Validation(float((scores * scores).sum()), 0.5)

    settings = config(updates=1, rate=1e30)
    with pytest.raises(FloatingPointError, match="validation loss is inf at update 1"):
        train(Bigrams(), Windows(), settings, too_large, directory=tmp_path, progress=False)


def test_patience_at_its_end_stays_there(tmp_path):
    options = {"config": config(updates=100, patience=2)}
    history = run(new_model(), tmp_path, validate=lambda m: Validation(1.0, 0.5), **options)
    assert history.update == [10, 20, 30]
    again = run(
        new_model(), tmp_path, validate=lambda m: Validation(1.0, 0.9), resume=True, **options
    )
    assert figures(again) == figures(history)


def test_a_lost_or_damaged_best_checkpoint_is_written_again(tmp_path):
    def save(path):
        path.write_text("best")

    run(new_model(), tmp_path, save_best=save)
    (tmp_path / "best.npz").unlink()
    run(new_model(), tmp_path, save_best=save, resume=True)
    assert (tmp_path / "best.npz").read_text() == "best"
    (tmp_path / "best.npz").write_text("be")
    run(new_model(), tmp_path, save_best=save, resume=True)
    assert (tmp_path / "best.npz").read_text() == "best"


def test_a_folder_that_cannot_be_written_is_noticed_at_once(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(OSError, match="file"):
        run(new_model(), blocked, validate=lambda m: pytest.fail("trained on"))


def test_seconds_are_those_of_the_clock_and_leave_out_validation():
    now = [0.0]  # a clock that goes on by 1 at each reading and by 1000 in a validation

    def slow(model):
        now[0] += 1000
        return validate(model)

    history = run(
        new_model(), validate=slow, clock=lambda: now.__setitem__(0, now[0] + 1) or now[0]
    )
    assert history.seconds == [10, 20, 30, 40]


def test_a_clock_that_has_not_moved_yet_tells_no_speed(capsys):
    train(new_model(), BATCHES, config(updates=1), validate, clock=lambda: 0.0)
    assert "1/1 updates, ? examples/s, loss " in capsys.readouterr().err


def test_a_run_killed_between_validations_repeats_only_what_followed_its_last_checkpoint(tmp_path):
    now = [0.0]  # a clock that goes on by 1 at each reading: an update takes a second

    def clock():
        now[0] += 1
        return now[0]

    class Killed(BaseException):
        pass

    class Limited(BucketedPairs):
        """The same batches, but the process dies when the 29th is asked for."""

        asked = 0

        def count(self, batch):
            self.asked += 1
            if self.asked == 29:
                raise Killed
            return super().count(batch)

    settings = config(validate_every=20)
    expected_model, model = new_model(), new_model(seed=5)
    expected = run(expected_model, config=settings, clock=clock)
    with pytest.raises(Killed):
        run(
            new_model(),
            tmp_path,
            config=settings,
            batches=Limited(PAIRS, 8),
            clock=clock,
            save_every=3,
        )
    _, meta = load_checkpoint(tmp_path / "last.npz", "training state")
    assert meta["updates"] == 26  # 20 were validated, and then 23 and 26 saved
    history = run(model, tmp_path, config=settings, clock=clock, resume=True)
    assert figures(history) == figures(expected)
    assert checksum(model) == checksum(expected_model)


def test_leftovers_of_a_killed_run_are_cleared(tmp_path):
    (tmp_path / ".last.npz.abc123.tmp").write_bytes(b"half")
    (tmp_path / "notes.tmp").write_text("the user's own")
    run(new_model(), tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {".lock", "last.npz", "notes.tmp"}


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    model = new_model()
    expected = run(model, tmp_path)
    again = new_model(seed=4)
    history = run(again, tmp_path, resume=True)
    assert figures(history) == figures(expected)
    assert checksum(again) == checksum(model)


def test_a_checkpoint_of_another_kind(tmp_path):
    save_checkpoint(tmp_path / "last.npz", {}, {"kind": "inflection model"})
    with pytest.raises(CheckpointError, match="expected 'training state'"):
        run(new_model(), tmp_path, resume=True)


def test_nothing_to_train_on():
    with pytest.raises(ValueError, match="at least one example, got none"):
        BucketedPairs([], 8)

    class Empty(Windows):
        def epoch(self, rng):
            return []

    with pytest.raises(ValueError, match="batches: expected at least one in each epoch, got none"):
        train(Bigrams(), Empty(), config(), validate, progress=False)


def test_the_progress_speaks_of_examples_loss_and_accuracy(capsys):
    train(new_model(), BATCHES, config(), validate)
    text = capsys.readouterr().err
    assert text.count("examples/s") == 4
    assert "loss" in text
    assert "dev" in text


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("updates", 0, "updates: expected at least 1, got 0"),
        ("updates", 10**13, "updates: expected at most 1,000,000,000,000, got 10"),
        ("validate_every", 10**13, "validate_every: expected at most 1,000,000,000,000, got 10"),
        ("rate", float("inf"), "rate: expected a finite number, got inf"),
        ("rate", 0.0, "rate: expected a positive number, got 0.0"),
        ("clip", float("nan"), "clip: expected a positive number, got nan"),
        ("schedule", "cosine", "schedule: expected one of 'linear', .*; got 'cosine'"),
        ("patience", 0, "patience: expected at least 1, got 0"),
        ("accumulate", 0, "accumulate: expected at least 1, got 0"),
        ("average", 0, "average: expected at least 1, got 0"),
        ("average_every", 0, "average_every: expected at least 1, got 0"),
        ("average_every", 5, "average_every: expected with an average of several, got 5 with"),
        ("patience", float("nan"), "patience: expected a whole number, got nan"),
        ("validate_every", float("nan"), "validate_every: expected a whole number, got nan"),
        ("validate_every", 2.5, "validate_every: expected a whole number, got 2.5"),
        ("updates", None, "updates: expected a whole number, got None"),
        ("updates", True, "updates: expected a whole number, got True"),
        ("seed", 1.0, "seed: expected a whole number, got 1.0"),
        ("rate", "fast", "rate: expected a positive number, got 'fast'"),
        ("rate", 10**400, "rate: expected a positive number, got 1000"),
        ("clip", 10**400, "clip: expected a positive number, got 1000"),
        ("rate_factors", {"query": 10**400}, "rate_factors: expected parts of names with a factor"),
        ("betas", ("a", 0.9), "betas: expected two numbers in"),
        ("warmup", 5, "warmup: expected with the schedule 'inverse_sqrt', and with no other"),
        ("schedule", "inverse_sqrt", "warmup: expected with the schedule 'inverse_sqrt'"),
        ("betas", (0.9, 1.0), "betas: expected two numbers in"),
        ("rate_factors", {"query": -1.0}, "rate_factors: expected parts of names with a factor"),
        ("rate_factors", {"query": True}, "rate_factors: expected parts of names with a factor"),
        ("rate_factors", 0.5, "rate_factors: expected parts of names with a factor"),
    ],
)
def test_bad_settings(field, value, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**{field: value})


def test_a_run_that_fails_at_once_leaves_no_checkpoint(tmp_path):
    """It was one that fails again when resumed, and kept the folder from the right command."""
    model = new_model(attention="csoftmax:0.01")  # of a source with a few tokens
    with pytest.raises(ValueError, match="upper is infeasible"):
        run(model, tmp_path, overwrite=False)
    assert not list(tmp_path.glob("*.npz"))
    run(new_model(), tmp_path, config=config(updates=4), overwrite=False)
    assert (tmp_path / "last.npz").exists()


def models_beside(folder):
    """The names of the checkpoints there, hidden ones too, and the text of the best."""
    names = sorted(path.name for path in folder.iterdir() if path.name != ".lock")
    return names, (folder / "best.npz").read_text() if "best.npz" in names else None


def test_a_new_run_takes_the_best_model_of_the_old_one_away(tmp_path):
    """It lay beside the new last.npz until the first validation, and was used as its model."""
    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"))
    interrupted = run(new_model(seed=3), tmp_path, config=config(seed=3), pause_after=2)
    assert interrupted.interrupted
    assert models_beside(tmp_path) == (["last.npz"], None)
    run(
        new_model(seed=3),
        tmp_path,
        config=config(seed=3),
        resume=True,
        save_best=lambda path: path.write_text("new"),
    )
    assert models_beside(tmp_path) == (["best.npz", "last.npz"], "new")


def test_a_new_run_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"))
    before = (tmp_path / "last.npz").read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="could not write"):
        run(new_model(seed=3), tmp_path)
    assert models_beside(tmp_path) == (["best.npz", "last.npz"], "old")
    assert (tmp_path / "last.npz").read_bytes() == before


def test_a_new_run_that_fails_at_once_leaves_the_best_model_of_the_old_one(tmp_path):
    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"))
    with pytest.raises(ValueError, match="upper is infeasible"):
        run(new_model(attention="csoftmax:0.01"), tmp_path)
    assert models_beside(tmp_path) == (["best.npz"], "old")


@pytest.mark.parametrize("threads", [0, -1, "two"])
def test_a_refused_number_of_threads_changes_no_file(tmp_path, threads):
    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"))
    before = (tmp_path / "last.npz").read_bytes()
    with pytest.raises((ValueError, TypeError)):
        run(new_model(seed=3), tmp_path, blas_threads=threads)
    assert models_beside(tmp_path) == (["best.npz", "last.npz"], "old")
    assert (tmp_path / "last.npz").read_bytes() == before


def test_a_bar_that_cannot_be_shown_is_noticed_before_there_is_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("pyentmax.training.progress._on_a_screen", lambda: True)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="needs tqdm"):
        train(new_model(), BATCHES, config(), validate, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_second_interrupt_before_anything_is_kept_leaves_the_best_model_of_the_old_run(tmp_path):
    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"))

    def stopped(model):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(new_model(seed=3), tmp_path, validate=stopped)
    assert models_beside(tmp_path) == (["best.npz"], "old")


def test_an_interrupt_right_behind_the_first_checkpoint_leaves_no_older_best_model_beside_it(
    tmp_path, monkeypatch
):
    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"))
    replace = Path.replace

    def interrupted(path, target):
        replace(path, target)
        if Path(target).name == "last.npz" and path.name == "last.npz.new":
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(new_model(seed=3), tmp_path)
    monkeypatch.undo()
    assert not (tmp_path / "best.npz").exists()
    # A new run finds the old model again; here it fails, and leaves it.
    with pytest.raises(ValueError, match="upper is infeasible"):
        run(new_model(attention="csoftmax:0.01"), tmp_path)
    assert models_beside(tmp_path) == (["best.npz"], "old")


KILLED = """
import os, pathlib, sys
from test_loop import config, new_model, run
left = int(sys.argv[2])
def counted(function):
    def step(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return function(*arguments, **options)
    return step
os.replace = counted(os.replace)
pathlib.Path.replace = counted(pathlib.Path.replace)
pathlib.Path.unlink = counted(pathlib.Path.unlink)
run(new_model(seed=3), sys.argv[1], config=config(seed=3), pause_after=2)
"""


def test_whenever_a_new_run_is_killed_there_is_one_run_and_no_others_model(tmp_path):
    old, folder, kills = tmp_path / "old", tmp_path / "run", 0
    run(new_model(), old, save_best=lambda path: path.write_text("old"))
    before = (old / "last.npz").read_bytes()
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(old, folder)
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder), str(kills)],
            env=os.environ | {"PYTHONPATH": path},
            check=False,
        )
        if killed.returncode == 0:
            break
        assert killed.returncode == 9
        kills += 1
        if (folder / "last.npz").read_bytes() == before:  # the old run is whole
            run(new_model(), folder, resume=True, save_best=lambda path: path.write_text("again"))
            assert models_beside(folder) == (["best.npz", "last.npz"], "again")
        else:  # the new one has begun
            assert not (folder / "best.npz").exists()
            seed = config(seed=3)
            run(new_model(seed=3), folder, config=seed, resume=True, pause_after=9)
            assert models_beside(folder) == (["last.npz"], None)
    assert kills > 3


def test_a_run_that_fails_later_keeps_its_checkpoint(tmp_path):
    def fail(model):
        raise ValueError("no more")

    run(new_model(), tmp_path, pause_after=2)
    before = (tmp_path / "last.npz").read_bytes()
    with pytest.raises(ValueError, match="no more"):
        run(new_model(), tmp_path, resume=True, validate=fail)
    broken = new_model()
    broken.loss = lambda *args: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run(broken, tmp_path, resume=True)
    assert (tmp_path / "last.npz").read_bytes() == before


def test_a_run_whose_first_validation_fails_leaves_no_checkpoint_of_its_own(tmp_path):
    """A rate that led to NaN left the untrained start, and the folder was refused to a better rate.
    The message spoke of checkpoints of a validation."""

    with pytest.raises(FloatingPointError, match="at update [1-9].* may help$"):
        run(new_model(), tmp_path, validate=not_finite, overwrite=False)
    assert not list(tmp_path.glob("*.npz"))
    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"), overwrite=False)
    with pytest.raises(FloatingPointError):
        run(new_model(seed=3), tmp_path, config=config(seed=3), validate=not_finite)
    assert models_beside(tmp_path) == (["best.npz"], "old")


def not_finite(model):
    return Validation(math.nan, 0.0)


def killed(started, folder, **options):
    """A run in a process of its own, in which something kills it."""
    if not (child := os.fork()):
        run(started, folder, config=config(seed=3), **options)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def kill(*args):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_resumed_run_without_an_update_is_withdrawn_if_it_fails(tmp_path):
    """Killed before its first validation, and resumed, it was kept, and refused its folder."""
    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"))
    started = new_model(seed=3)
    started.loss = kill
    killed(started, tmp_path)
    assert (tmp_path / "last.npz").exists()
    assert not (tmp_path / "best.npz").exists()
    with pytest.raises(FloatingPointError, match=" may help$"):
        run(new_model(seed=3), tmp_path, config=config(seed=3), resume=True, validate=not_finite)
    assert models_beside(tmp_path) == (["best.npz"], "old")


@pytest.mark.parametrize("then", ["fails", "pauses", "starts again"])
def test_an_old_best_model_never_lies_beside_the_state_of_another_run(tmp_path, monkeypatch, then):
    """Where the run after it was killed, and the one after that could not be written, it did: it
    was taken for the model of the killed one, and went with that."""
    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"))
    started = new_model(seed=3)
    started.loss = kill
    killed(started, tmp_path)

    def full(path, *args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(loop, "save_checkpoint", full)
        with pytest.raises(OSError, match="No space"):
            run(new_model(seed=4), tmp_path, config=config(seed=4))
    assert not (tmp_path / "best.npz").exists()
    if then == "pauses":
        run(new_model(seed=3), tmp_path, config=config(seed=3), resume=True, pause_after=2)
        assert models_beside(tmp_path) == (["last.npz"], None)
        return
    again = {"resume": True} if then == "fails" else {}
    with pytest.raises(FloatingPointError, match=" may help$"):
        run(new_model(seed=3), tmp_path, config=config(seed=3), validate=not_finite, **again)
    assert models_beside(tmp_path) == (["best.npz"], "old")


def put_away(folder):
    """A run of which a new one, killed between two renames, has hidden the best model."""
    model = new_model()
    run(model, folder, keep="last", save_best=lambda path: path.write_text(f"{checksum(model)}"))
    (folder / "best.npz").rename(folder / ".best.npz.before")
    return (folder / ".best.npz.before").read_text()


def test_a_best_model_that_a_killed_run_put_away_survives_the_next_one_that_fails(tmp_path):
    """It was removed: the last.npz that had its parameters, too, was another's a moment later."""
    best = put_away(tmp_path)
    with pytest.raises(FloatingPointError):
        run(new_model(seed=3), tmp_path, config=config(seed=3), validate=not_finite)
    assert models_beside(tmp_path) == (["best.npz"], best)


def test_a_best_model_that_was_put_away_is_written_again_whatever_is_kept(tmp_path):
    """Not where the model was to keep its last parameters: then the hidden one went, too."""
    best, model = put_away(tmp_path), new_model()

    def save(path):
        path.write_text(f"{checksum(model)}")

    history = run(model, tmp_path, keep="last", save_best=save, resume=True)
    assert models_beside(tmp_path) == (["best.npz", "last.npz"], best)
    assert checksum(model) != float(best) == max(history.dev_loss, key=lambda loss: loss % 1)


@pytest.mark.parametrize("number", [np.float32, np.float64, np.int64, np.array, bool])
def test_what_a_validation_finds_may_be_any_number(tmp_path, number):
    """float32's, a mean of an array say, ended training: JSON does not hold them."""
    options = {"validate": lambda model: Validation(number(1), number(0)), "config": config()}
    history = run(new_model(), tmp_path, **options)
    assert history.dev_loss == [1.0] * 4
    assert history.dev_accuracy == [0.0] * 4
    run(new_model(), tmp_path, resume=True, **options)


@pytest.mark.parametrize(
    "found", [None, 0.5, ("a", 1.0), (1.0, 2j), (1.0,), (10**400, 1), ("1", "2")]
)
def test_a_validation_that_finds_no_numbers_is_named(tmp_path, found):
    with pytest.raises(ValueError, match="validate: expected a loss and an accuracy, got "):
        run(new_model(), tmp_path, validate=lambda model: found)


def test_a_mean_of_parameters_that_overflows_is_not_kept(tmp_path):
    settings = config(updates=3, validate_every=1, average=2, rate=1e-4)
    model = Bigrams()
    model.params["scores"][...] = 3e38
    model.loss = lambda params, batch, rng=None: (params["scores"] * 1e-38).sum()
    figures = iter([Validation(1.0, 0.1), Validation(1.0, 0.2), Validation(1.0, 0.3)])
    with pytest.raises(FloatingPointError, match="largest number of scores is inf at update 2"):
        train(
            model, Windows(), settings, lambda _: next(figures), directory=tmp_path, progress=False
        )
    load_checkpoint(tmp_path / "last.npz", "training state")
    model = Bigrams()
    model.loss = lambda params, batch, rng=None: (params["scores"] * 1e-38).sum()
    again = {"directory": tmp_path, "progress": False, "pause_after": 1}
    train(model, Windows(), settings, lambda _: next(figures), resume=True, **again)


def test_parameters_that_are_not_finite_are_not_kept(tmp_path):
    """A step too wide took them beyond the largest number, which no loss after it told of: the
    checkpoint was written, and refused when it was loaded."""
    wide = config(rate_factors={"output.bias": 1e44}, updates=1, validate_every=1)
    figures = Validation(1.0, 0.5)
    with pytest.raises(FloatingPointError, match=r"largest number of param.output.bias is inf at"):
        run(new_model(), tmp_path, config=wide, validate=lambda model: figures)
    assert not list(tmp_path.glob("*.npz"))


def test_a_best_model_that_no_checkpoint_follows_does_not_replace_the_old_one(
    tmp_path, monkeypatch
):
    """The disk was full between the two, and the old model lay hidden, then was overwritten."""
    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"))
    save, saved = loop.save_checkpoint, []

    def full_at_the_second(path, *args):
        saved.append(path)
        if len(saved) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(path, *args)

    monkeypatch.setattr(loop, "save_checkpoint", full_at_the_second)
    with pytest.raises(OSError, match="No space"):
        run(
            new_model(seed=3),
            tmp_path,
            config=config(seed=3),
            save_best=lambda path: path.write_text("new"),
        )
    assert models_beside(tmp_path) == (["best.npz"], "old")


def test_a_run_killed_behind_its_first_best_model_does_not_take_the_old_one_along(tmp_path):
    """Of the next run that failed, that was the model put back."""

    def save_and_die(path):
        path.write_text("new")
        kill()

    run(new_model(), tmp_path, save_best=lambda path: path.write_text("old"))
    killed(new_model(seed=3), tmp_path, save_best=save_and_die)
    assert (tmp_path / "best.npz").read_text() == "new"
    with pytest.raises(FloatingPointError):
        run(new_model(seed=4), tmp_path, config=config(seed=4), validate=not_finite)
    assert models_beside(tmp_path) == (["best.npz"], "old")


@pytest.mark.parametrize("done", [8, 10**9, 2**63, 10**30])
def test_more_batches_than_an_epoch_has_are_named(tmp_path, done):
    """The rest of the epoch was left out without a word."""
    run(new_model(), tmp_path, pause_after=10)
    path = tmp_path / "last.npz"
    arrays, meta = load_checkpoint(path, "training state")
    save_checkpoint(path, arrays, meta | {"done_in_epoch": done})
    before = path.read_bytes()
    with pytest.raises(
        CheckpointError, match=rf"last.npz: done_in_epoch: expected at most the 7 .* got {done}$"
    ):
        run(new_model(), tmp_path, resume=True)
    assert path.read_bytes() == before


def test_whole_numbers_of_numpy_will_do():
    settings = TrainingConfig(updates=np.int64(40), seed=np.uint8(3))
    assert type(settings.updates) is int
    assert settings == TrainingConfig(updates=40, seed=3)


def test_a_factor_of_no_parameters_rate_is_refused(tmp_path):
    """A misspelt name would leave all rates as they are, and nobody would know."""
    with pytest.raises(ValueError, match="rate_factors: expected part of .* got 'qurey'; .*output"):
        run(new_model(), tmp_path, config=config(rate_factors={"decoder": 0.5, "qurey": 0.1}))
    assert not list(tmp_path.iterdir())


class OneBatch:
    """The same examples in every epoch, in one batch or cut in two parts of different weight."""

    unit = "tokens"
    identity = {"cut": "in two"}

    def __init__(self, *parts):
        self.parts = parts

    def epoch(self, rng):
        yield from self.parts

    def count(self, batch):
        return len(batch) - 1


def test_accumulated_batches_make_the_update_of_all_their_tokens_together():
    # Windows of 3 and of 7 tokens have 2 and 6 of 8 pairs, and disagree on what follows a 0.
    text = np.array([0, 1, 0, 2, 0, 2, 0, 2, 0])
    whole, parts = OneBatch(text), OneBatch(text[:3], text[2:])
    models = [Bigrams(), Bigrams()]
    once = train(models[0], whole, config(), validate, progress=False)
    twice = train(models[1], parts, config(accumulate=2), validate, progress=False)
    # float32, over 40 updates of rate 0.02.
    np.testing.assert_allclose(
        models[1].params["scores"], models[0].params["scores"], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(twice.loss, once.loss, rtol=1e-4)


def test_validation_sees_the_mean_of_the_last_parameters():
    seen, means = [], []

    def check(model):
        means.append(model.params["scores"].copy())
        return Validation(1.0, float(len(means)))

    class Watched(Bigrams):
        def loss(self, params, batch, rng=None):
            seen.append(self.params["scores"].copy())
            return super().loss(params, batch, rng)

    model = Watched()
    train(model, Windows(), config(average=3), check, progress=False)
    after = [seen[10], seen[20], seen[30]]  # parameters before the update after each validation
    np.testing.assert_array_equal(means[0], after[0])
    for found, parts in ((means[1], after[:2]), (means[2], after)):
        np.testing.assert_allclose(found, np.mean(parts, axis=0), rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(model.params["scores"], means[3])  # the best: the last mean


def test_what_is_averaged_may_stand_closer_than_validations():
    seen, means = [], []

    class Watched(Bigrams):
        def loss(self, params, batch, rng=None):
            seen.append(self.params["scores"].copy())
            return super().loss(params, batch, rng)

    def check(model):
        means.append(model.params["scores"].copy())
        return validate(model)

    settings = config(average=3, average_every=12)
    train(Watched(), Windows(), settings, check, progress=False)
    # Validations after 10, 20, 30 and 40 updates; seen[n] is what the parameters are after n.
    for found, copies in zip(means, [(10,), (12,), (12, 24), (12, 24, 36)], strict=True):
        expected = np.mean([seen[n] for n in copies], axis=0)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("every", "groups"),
    [(None, ["best", "recent.0", "recent.1"]), (4, ["best", "recent.0", "recent.1", "recent.2"])],
)
def test_a_run_without_its_best_or_recent_parameters_is_not_gone_on_with(tmp_path, every, groups):
    """It named a best.npz that it had not written, and averaged what was left."""
    settings = config(average=3, average_every=every)
    run(new_model(), tmp_path, config=settings, pause_after=23)  # validated after 10 and 20
    path = tmp_path / "last.npz"
    arrays, meta = load_checkpoint(path, "training state")
    assert {name.rpartition(".")[0] for name in arrays} > {f"{groups[-1]}.output"}
    for group in groups:
        rest = {name: x for name, x in arrays.items() if not name.startswith(f"{group}.")}
        assert len(rest) < len(arrays)
        save_checkpoint(path, rest, meta)
        with pytest.raises(CheckpointError, match=rf"last.npz: {group}\.\S+ is missing"):
            run(new_model(), tmp_path, config=settings, resume=True)
    more = f"recent.{len(groups) - 1}"
    save_checkpoint(path, arrays | {f"{more}.output.bias": arrays["param.output.bias"]}, meta)
    with pytest.raises(CheckpointError, match=f"{more}.output.bias is not expected"):
        run(new_model(), tmp_path, config=settings, resume=True)
    save_checkpoint(path, arrays, meta)
    again, whole = new_model(), new_model()
    run(again, tmp_path, config=settings, resume=True)
    run(whole, config=settings)
    assert checksum(again) == checksum(whole)


def test_the_rate_warms_up_and_falls_with_the_square_root(monkeypatch):
    rates = []

    class Watched(loop.Adam):
        def step(self, gradients, rate, factors=None):
            rates.append(rate)
            assert self.betas == (0.9, 0.98)
            super().step(gradients, rate, factors)

    monkeypatch.setattr(loop, "Adam", Watched)
    settings = config(schedule="inverse_sqrt", warmup=10, betas=(0.9, 0.98))
    run(new_model(), config=settings)
    t = np.arange(1, 41)
    np.testing.assert_allclose(rates, 0.02 * np.minimum(t / 10, (10 / t) ** 0.5), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "every"), [(10, None), (10, 4), (20, 4)])
def test_a_run_with_everything_on_goes_on_to_the_last_digit(tmp_path, stop, every):
    # Three batches per update, of epochs of seven: an update spans two epochs.
    changes = {"accumulate": 3, "average": 2, "schedule": "inverse_sqrt", "warmup": 8}
    changes["average_every"] = every
    settings = config(**changes, betas=(0.9, 0.98))
    whole = new_model()
    expected = run(whole, config=settings)
    model = new_model()

    def check(model):
        if len(seen := [*calls, 1]) * 10 > stop:
            os.kill(os.getpid(), signal.SIGINT)
        calls[:] = seen
        return validate(model)

    calls = []
    assert run(model, tmp_path, config=settings, validate=check).interrupted
    again = new_model(seed=1)
    history = run(again, tmp_path, config=settings, resume=True)
    assert figures(history) == figures(expected)
    for name, x in whole.params.items():
        np.testing.assert_array_equal(again.params[name], x)


def test_a_run_from_before_there_were_these_settings_goes_on(tmp_path):
    assert set(config().identity()) == {
        "updates",
        "rate",
        "schedule",
        "clip",
        "validate_every",
        "patience",
        "seed",
    }


def test_the_answer_to_an_interrupt_is_written_to_no_other_file(tmp_path):
    # With standard error closed, the next file that is opened has its number.
    program = """if True:
        import os, signal, sys
        from pyentmax.training.interrupt import finish_first
        file = open(sys.argv[1], "wb")
        print(file.fileno(), flush=True)
        with finish_first() as asked:
            os.kill(os.getpid(), signal.SIGINT)
            assert asked()
    """
    path = tmp_path / "checkpoint"
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *command], stdout=subprocess.PIPE, check=True
    )
    assert done.stdout == b"2\n"
    assert path.read_bytes() == b""


@pytest.mark.slow
def test_a_run_that_is_not_whole_is_not_gone_on_with(tmp_path):
    run(new_model(), tmp_path)
    path = tmp_path / "last.npz"
    arrays, meta = load_checkpoint(path, "training state")

    def refused(arrays, meta, message):
        save_checkpoint(path, arrays, meta)
        model = new_model(seed=3)
        before = checksum(model)
        with pytest.raises(CheckpointError, match=message):
            run(model, tmp_path, resume=True)
        assert checksum(model) == before, "something was used before all was checked"

    for number, (name, x) in enumerate(arrays.items()):
        rest = {other: y for other, y in arrays.items() if other != name}
        refused(rest, meta, f"{name} is missing")
        if number % 2:
            refused(rest | {name: x.astype(complex)}, meta, f"{name}: expected .* got complex")
        else:
            refused(rest | {name: x[None]}, meta, f"{name}: expected .* of shape")
    refused(arrays | {"param.more": np.ones(2)}, meta, "param.more is not expected")
    bad = arrays["param.output.bias"] * np.nan
    refused(arrays | {"param.output.bias": bad}, meta, "output.bias: expected finite numbers")
    for key in meta.keys() - {"kind"}:
        rest = {other: value for other, value in meta.items() if other != key}
        refused(arrays, rest, "incomplete or damaged|identity is missing")
        for value in (None, "x", [], [1], {} if meta[key] else None):
            refused(arrays, rest | {key: value}, "damaged|belongs to another run")


HALVING = config(schedule="halve")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The last.npz of a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    run(new_model(), folder, config=HALVING)
    return folder / "last.npz"


def _set(*places):
    """A change of a description: the value at the end of the path."""
    *path, last, value = places

    def change(arrays, meta):
        for name in path:
            meta = meta[name]
        meta[last] = value

    return change


def _below(arrays, meta):
    arrays["optimizer.second.output.bias"] -= 1


def _fewer(arrays, meta):
    arrays["optimizer.updates"] -= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("schedule", "current", -0.1), "current: expected a rate from 0 to 0.02, got -0.1"),
        (_set("schedule", "current", True), "current: expected a rate from 0 to 0.02, got True"),
        (_set("schedule", "current", math.nan), "current: expected a rate from 0 to 0.02, got nan"),
        (_set("schedule", "last_loss", math.nan), "last_loss: expected a loss, got nan"),
        (_below, "second.output.bias: expected numbers from 0 up"),
        (_fewer, "optimizer: expected 40 updates, got 39"),
        (_set("updates", 10**400), "history|optimizer|updates"),
        (_set("seconds", 10**400), "seconds: expected a finite number, got 1000"),
        (_set("history", "loss", 0, 10**400), "history of loss: expected a finite number, got 100"),
        (_set("history", "dev_accuracy", 1, math.nan), "of dev_accuracy: expected a finite number"),
        (_set("history", "seconds", 0, "1"), "history of seconds: expected a finite number, got 1"),
        (_set("history", "update", [10, 10, 20, 30]), "expected numbers of updates in order"),
        (_set("history", "update", 3, 400), "history: expected updates up to 40"),
        (_set("history", "interrupted", "no"), "expected interrupted: false, got 'no'"),
        (_set("history", "interrupted", True), "expected interrupted: false, got True"),
        (_set("epoch_state", "state", "state", 1.5), "epoch_state: expected the state of a gener"),
        (_set("epoch_state", "state", "inc", 2), "epoch_state: expected the state of a generator"),
        (_set("dropout_state", "has_uint32", -1), "dropout_state: expected the state of a gen"),
        (_set("history", "seconds", 0, -1.0), "history: expected seconds in order"),
        (_set("seconds", 0.0), "history: expected seconds up to 0.0"),
        (_set("loss_count", 10**400), "loss_count: expected 0, the updates since the last valid"),
        (_set("history", "watched", {"update": "12"}), "expected lists of one length of what was"),
        (_set("history", "watched", {"alpha": [1.5]}), "expected the updates at which something"),
        (_set("stale", 5), "stale: expected at most 4, the validations"),
        (_set("dropout_state", "has_uint32", True), "dropout_state: expected the state of a gen"),
    ],
)
def test_a_number_that_no_run_can_have_is_named(finished, tmp_path, change, message):
    """Some were used, and some ended in a traceback."""
    arrays, meta = load_checkpoint(finished, "training state")
    change(arrays, meta)
    path = tmp_path / "last.npz"
    save_checkpoint(path, arrays, meta)
    with pytest.raises(CheckpointError, match=message) as caught:
        run(new_model(), tmp_path, config=HALVING, resume=True)
    assert str(path) in str(caught.value)


def test_an_accuracy_that_is_not_finite_is_an_error():
    with pytest.raises(ValueError, match="validate: expected a finite accuracy, got nan"):
        run(new_model(), validate=lambda model: Validation(1.0, math.nan))


def test_a_count_that_no_speed_can_be_computed_of_is_refused(tmp_path):
    run(new_model(), tmp_path, pause_after=5)
    arrays, meta = load_checkpoint(tmp_path / "last.npz", "training state")
    save_checkpoint(tmp_path / "last.npz", arrays, meta | {"count": 10**400})
    with pytest.raises(CheckpointError, match="count: expected a number below"):
        run(new_model(), tmp_path, resume=True)


def test_one_run_at_a_time_in_a_folder(tmp_path):
    pytest.importorskip("fcntl", reason="this system has no locks that end with a process")
    refusals = []

    def second_run(model):
        before = (tmp_path / "last.npz").read_bytes()
        for resume in (False, True):
            with pytest.raises(BlockingIOError, match="another process trains in .*another folder"):
                run(new_model(), tmp_path, resume=resume)
            refusals.append(resume)
        assert (tmp_path / "last.npz").read_bytes() == before
        return validate(model)

    run(new_model(), tmp_path, validate=second_run)
    assert refusals
    run(new_model(), tmp_path, resume=True)  # what is left of the lock is in nobody's way


def test_a_run_is_not_overwritten_where_that_is_not_wanted(tmp_path):
    run(new_model(), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("*.npz")}
    with pytest.raises(ValueError, match="already holds a run: resume it"):
        run(new_model(seed=3), tmp_path, overwrite=False)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.npz")} == before
    run(new_model(), tmp_path, resume=True, overwrite=False)
    run(new_model(), tmp_path / "new", overwrite=False)
