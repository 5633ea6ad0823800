"""Checkpoints: what is written comes back, and damage is reported as such."""

import contextlib
import errno
import json
import os
import zipfile

import numpy as np
import pytest

from pyentmax.seq2seq.training import (
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)

ARRAYS = {"a.b": np.arange(6.0).reshape(2, 3), "n": np.array(3), "file": np.ones(2, np.float32)}
META = {"kind": "test", "x": 0.1 + 0.2, "text": "größer", "list": [1, None]}


@pytest.fixture
def path(tmp_path):
    save_checkpoint(tmp_path / "c.npz", ARRAYS, META)
    return tmp_path / "c.npz"


def test_round_trip(path):
    arrays, meta = load_checkpoint(path, "test")
    assert meta == META
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
    assert os.listdir(path.parent) == ["c.npz"]


def test_file_contains_no_pickle(path):
    with np.load(path, allow_pickle=False) as file:
        assert json.loads(str(file["__meta__"])) == META
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        save_checkpoint(path, {"a": np.array([{}])}, META)
    load_checkpoint(path, "test")


def test_flipped_bits_and_truncation_are_damage(path):
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place, bit in zip(
        rng.integers(len(whole), size=120), rng.integers(8, size=120), strict=True
    ):
        data = bytearray(whole)
        data[place] ^= 1 << bit
        path.write_bytes(bytes(data))
        with contextlib.suppress(CheckpointError):  # some bits change nothing
            load_checkpoint(path, "test")
    for size in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"c\.npz is not a complete checkpoint: it is tr"):
            load_checkpoint(path, "test")


def test_other_files_are_not_checkpoints(path):
    folder = path.parent
    (folder / "text").write_text("draw\tdrawn\n")
    np.savez(folder / "other.npz", a=np.ones(2))
    np.save(folder / "one.npy", np.ones(2))
    for name in ("text", "other.npz", "one.npy"):
        with pytest.raises(CheckpointError, match="not a complete checkpoint"):
            load_checkpoint(folder / name, "test")
    with pytest.raises(CheckpointError, match="expected 'training state', the file holds 'test'"):
        load_checkpoint(path, "training state")
    with pytest.raises(FileNotFoundError, match=r"missing\.npz"):
        load_checkpoint(folder / "missing.npz", "test")


def test_compressed_members_are_refused(path):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(CheckpointError, match="its members are compressed"):
        load_checkpoint(path, "test")


def test_full_disk_leaves_the_old_file(path):
    # The kernel refuses to write on, in the middle of the file.
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"could not write .*c\.npz .*untouched") as caught:
            save_checkpoint(path, {"a": np.random.default_rng(0).random(100_000)}, META)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert load_checkpoint(path, "test")[1] == META
    assert os.listdir(path.parent) == ["c.npz"]


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(OSError, match=r"could not write .*nowhere"):
        save_checkpoint(tmp_path / "nowhere" / "c.npz", ARRAYS, META)
