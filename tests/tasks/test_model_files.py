"""Who may write into a folder that holds a model already."""

import pytest

from pyentmax.tasks.model_files import refuse_other_run, refuse_run_of_user
from pyentmax.training import CheckpointError, save_checkpoint

STATE = {"kind": "training state"}


def test_an_empty_folder_and_an_older_demonstration_are_free(tmp_path):
    refuse_run_of_user(tmp_path, "demo")
    refuse_other_run(tmp_path, resume=False)
    for name in ("last.npz", "best.npz"):
        save_checkpoint(tmp_path / name, {}, STATE | {"identity": {"purpose": "demo"}})
        assert refuse_run_of_user(tmp_path, "demo") is None


@pytest.mark.parametrize("names", [["best.npz"], ["last.npz"], ["best.npz", "last.npz"]])
def test_a_run_of_the_users_own_is_not_overwritten(tmp_path, names):
    for name in names:
        save_checkpoint(tmp_path / name, {}, STATE | {"identity": {"purpose": "train"}})
    # A folder that is made later may lead there.
    for folder in (tmp_path, tmp_path / "not yet" / ".."):
        with pytest.raises(ValueError, match="a run that is not the demonstration's"):
            refuse_run_of_user(folder, "demo")
    with pytest.raises(ValueError, match="already holds a run"):
        refuse_other_run(tmp_path, resume=False)
    refuse_other_run(tmp_path, resume=True)


@pytest.mark.parametrize("meta", [{}, {"identity": 3}, {"identity": [1]}, {"identity": None}])
def test_a_damaged_run_is_named(tmp_path, meta):
    save_checkpoint(tmp_path / "last.npz", {}, STATE | meta)
    with pytest.raises(CheckpointError, match=r"last\.npz: parts are missing"):
        refuse_run_of_user(tmp_path, "demo")
