"""Training and measuring the rows of the table, a folder for each row and seed:

    OUT/transformer-1.5.seed-0/
        last.npz best.npz   the training run, as by `python -m pyentmax train transformer`
        curve.json          at each validation: loss, accuracy, and how much the attention of use
                            sees on some dev sentences
        translations.txt    the best model's translations of val
        result.json         written last: the row is finished

A run can be stopped at any time: the same command continues it. Choices go by dev, the last 1,000
training pairs; val is decoded once, by the finished run.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from pyentmax.models.transformer import Transformer
from pyentmax.tasks.records import fingerprint_of_texts, open_folder, write_json, write_text
from pyentmax.tasks.runs import RESULT, Curve, Run, finish, has_result, speed, training_state
from pyentmax.tasks.translation.bleu import bleu
from pyentmax.tasks.translation.experiments.measures import supports
from pyentmax.tasks.translation.experiments.rows import row
from pyentmax.tasks.translation.multi30k import Data, read_multi30k
from pyentmax.tasks.translation.training import train_translator
from pyentmax.tasks.translation.translator import Translator
from pyentmax.training import LAST, RunOptions, TrainingConfig, Validation

TRAJECTORY, TRANSLATIONS = "trajectory.json", "translations.txt"
TRACED = 200
"""Dev pairs on which the supports are measured at each validation."""
BEAM = 5


def is_finished(out: Path, run: Run, updates: int | None = None) -> bool:
    """Whether the result of a run has been written, after as many updates as are asked for."""
    return has_result(out, run, _updates(run, updates))


def do_run(
    out: Path,
    run: Run,
    data: Path | None,
    *,
    updates: int | None = None,
    pause_after: int | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> bool:
    """Train or resume a run, translate, and write its result; False if it was stopped before.

    Parameters
    ----------
    updates : int, optional
        Instead of the row's. A run that is finished can be made longer: then it goes on, and its
        result is replaced.
    pause_after : int, optional
        Stop when so many updates are done; the run can go on later.

    Notes
    -----
    A finished run is left as it is. If another process is at it, the call waits. All runs of a
    folder have the same sentences, or a ValueError is raised.
    """

    def prepare() -> Data:
        reverse = row(run.row).reverse
        sentences = read_multi30k(data, reverse=reverse)
        open_folder(out, {"data": _fingerprint(sentences, reverse)})
        return sentences

    def work(folder: Path, sentences: Data) -> dict[str, Any] | None:
        translator, interrupted = _train(
            folder, run, sentences, updates, pause_after, device, progress
        )
        if interrupted:
            return None
        if watched := training_state(folder)["history"].get("diagnostics"):
            write_json(folder / TRAJECTORY, watched)
        return _measured(folder, run, translator, sentences, progress)

    return finish(out, run, _updates(run, updates), prepare, work)


def _fingerprint(sentences: Data, reverse: bool) -> str:
    """Of both directions the same."""
    order = -1 if reverse else 1
    return fingerprint_of_texts(
        side for part in sentences for pair in part for side in pair[::order]
    )


def _updates(run: Run, updates: int | None) -> int:
    """How many updates a run takes, unless others are asked for."""
    if updates is not None:
        return updates
    wanted: int = row(run.row).experiment().training["updates"]
    return wanted


def _train(
    folder: Path,
    run: Run,
    sentences: Data,
    updates: int | None,
    pause_after: int | None,
    device: str,
    progress: bool,
) -> tuple[Translator, bool]:
    of_row = row(run.row)
    experiment = of_row.experiment(run.seed)
    settings = experiment.training | ({} if updates is None else {"updates": updates})
    config = TrainingConfig(**settings)
    record = partial(_record, Curve(folder, config), sentences)
    translator, history = train_translator(
        of_row.architecture,
        sentences.train,
        sentences.dev,
        config,
        RunOptions(
            folder, resume=(folder / LAST).exists(), pause_after=pause_after, progress=progress
        ),
        segmenter=experiment.segmenter(sentences.train),
        tokens=experiment.data["tokens"],
        on_validation=record,
        device=device,
        **experiment.model,
    )
    return translator, history.interrupted


def _record(curve: Curve, sentences: Data, translator: Translator, validation: Validation) -> None:
    """Write what a validation found, and how much the attention sees on some dev sentences."""
    pairs = translator.pairs(sentences.dev[:TRACED])
    curve.add(
        {
            "dev_loss": round(validation.loss, 4),
            "dev_token_accuracy": round(100 * validation.accuracy, 2),
            **{name: round(x, 3) for name, x in supports(translator, pairs).items()},
            **_alphas(translator),
        }
    )


def _measured(
    folder: Path, run: Run, translator: Translator, sentences: Data, progress: bool
) -> dict[str, Any]:
    """Everything that the table says of a finished run."""
    started = time.perf_counter()
    translations = translator.translate_all(
        [pair.source for pair in sentences.val], beam=BEAM, progress=progress
    )
    seconds = time.perf_counter() - started
    references = [pair.target for pair in sentences.val]
    found = bleu(translations, references)
    meta = training_state(folder)
    val = translator.pairs(sentences.val)
    result = {
        "what": row(run.row).what,
        "updates": meta["updates"],
        "dev_token_accuracy": round(100 * max(meta["history"]["dev_accuracy"]), 2),
        "bleu": round(found.score, 2),
        "signature": found.signature,
        "beam": BEAM,
        "decode_seconds": round(seconds, 1),
        "train_seconds": round(meta["seconds"], 1),
        "tokens_per_second": round(speed(meta)),
        "supports": {name: round(x, 3) for name, x in supports(translator, val).items()},
        **_alphas(translator),
        "date": time.strftime("%Y-%m-%d"),
    }
    (folder / RESULT).unlink(missing_ok=True)  # that of a shorter run, before its translations are
    write_text(folder / TRANSLATIONS, "".join(f"{line}\n" for line in translations))
    return result


def _alphas(translator: Translator) -> dict[str, Any]:
    """The learned α of each head, if there are any."""
    if not isinstance(translator.model, Transformer):
        return {}
    alphas = translator.model.alphas()
    return {"alphas": {kind: x.round(3).tolist() for kind, x in alphas.items()}} if alphas else {}
