"""Checkpoints: what is written comes back, and nothing that breaks them goes unsaid."""

import contextlib
import errno
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pyentmax.training import CheckpointError, load_checkpoint, save_checkpoint
from pyentmax.training.checkpoint import with_prefix, without_prefix

ARRAYS = {"a.b": np.arange(6.0).reshape(2, 3), "n": np.array(3), "f": np.ones(2, np.float32)}
META = {"kind": "test", "x": 0.1 + 0.2, "text": "größer", "list": [1, None]}


def test_round_trip(tmp_path):
    path = tmp_path / "c.npz"
    save_checkpoint(path, ARRAYS, META)
    arrays, meta = load_checkpoint(path, "test")
    assert meta == META
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]


def test_two_arrays_of_one_name_are_not_a_checkpoint(tmp_path):
    path = tmp_path / "c.npz"
    save_checkpoint(path, ARRAYS, META)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("n.npy", archive.read("n.npy"))
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        load_checkpoint(path, "test")


def test_there_is_no_pickle_inside(tmp_path):
    save_checkpoint(tmp_path / "c.npz", ARRAYS, META)
    with np.load(tmp_path / "c.npz", allow_pickle=False) as file:
        assert json.loads(str(file["__meta__"])) == META


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.99])
def test_truncated(tmp_path, share):
    path = tmp_path / "c.npz"
    save_checkpoint(path, ARRAYS, META)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(CheckpointError, match=r"c\.npz is not a complete checkpoint: it is trunc"):
        load_checkpoint(path, "test")


def test_a_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "c.npz"
    save_checkpoint(path, {"a": np.zeros(1000)}, META)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        load_checkpoint(path, "test")


def test_no_flipped_bit_escapes_as_another_error(tmp_path):
    path = tmp_path / "c.npz"
    save_checkpoint(path, ARRAYS, META)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place, bit in zip(
        rng.integers(len(whole), size=400), rng.integers(8, size=400), strict=True
    ):
        data = bytearray(whole)
        data[place] ^= 1 << bit
        path.write_bytes(bytes(data))
        with contextlib.suppress(CheckpointError):  # a bit that changes nothing is no damage
            load_checkpoint(path, "test")


def test_something_else(tmp_path):
    (tmp_path / "text").write_text("draw\tdrawn\n")
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    np.save(tmp_path / "one.npy", np.ones(2))
    for name in ("text", "other.npz", "one.npy"):
        with pytest.raises(CheckpointError, match="not a complete checkpoint"):
            load_checkpoint(tmp_path / name, "test")
    save_checkpoint(tmp_path / "c.npz", ARRAYS, META)
    with pytest.raises(CheckpointError, match="expected 'training state', the file holds 'test'"):
        load_checkpoint(tmp_path / "c.npz", "training state")
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        load_checkpoint(tmp_path / "missing.npz", "test")


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    path = tmp_path / "c.npz"
    save_checkpoint(path, ARRAYS, META)

    def forbidden(self, *_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(PermissionError, match="Permission denied") as caught:
        load_checkpoint(path, "test")
    assert caught.value.filename == str(path)


def test_a_disk_that_fails_is_not_called_damage():
    path = "/proc/self/mem"  # a file that opens, and whose first byte cannot be read
    if not os.path.isfile(path):
        pytest.skip("this system has no such file")
    with pytest.raises(OSError, match="Input/output error") as caught:
        load_checkpoint(path, "test")
    assert caught.value.filename == path


def claiming(path, shape):
    """Write a checkpoint one of whose headers claims another shape."""
    save_checkpoint(path, ARRAYS, META)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = io.BytesIO()
    description = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, description)
    members["f.npy"] = header.getvalue() + members["f.npy"][-8:]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("shape", [(10**15,), (10**5, 10**10), (3,), (10**30,)])
def test_a_header_that_claims_more_than_there_is_is_damaged(tmp_path, shape):
    claiming(tmp_path / "c.npz", shape)
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        load_checkpoint(tmp_path / "c.npz", "test")


WITHIN_A_LIMIT = """
import resource, sys
from pyentmax.training import load_checkpoint
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (32 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    load_checkpoint(sys.argv[1], "test")
except MemoryError as error:
    print(error)
"""


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_lack_of_memory_is_not_called_damage(tmp_path, save):
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("this system does not tell how much memory a process has")
    path = tmp_path / "c.npz"
    # More than another process is allowed to take.
    save(path, __meta__=np.array(json.dumps(META)), a=np.zeros(96 << 20, np.uint8))
    done = subprocess.run(
        [sys.executable, "-c", WITHIN_A_LIMIT, str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f"{path}: ")


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "c.npz"
    save_checkpoint(path, ARRAYS, META)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"could not write .*c\.npz .*untouched") as caught:
        save_checkpoint(path, {"a": np.ones(100)}, META)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]


def test_a_file_size_limit_met_while_writing(tmp_path):
    # The real thing: the kernel refuses to write on, in the middle of the file.
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    path = tmp_path / "c.npz"
    save_checkpoint(path, ARRAYS, META)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="could not write"):
            save_checkpoint(path, {"a": np.random.default_rng(0).random(100_000)}, META)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(OSError, match=r"could not write .*nowhere"):
        save_checkpoint(tmp_path / "nowhere" / "c.npz", ARRAYS, META)


def test_prefixes():
    arrays = with_prefix("param", ARRAYS) | {"parameter": 1}
    assert without_prefix("param", arrays) == ARRAYS


def test_ctrl_c_while_an_array_is_written_stays_what_it_is(tmp_path, monkeypatch):
    """`np.savez` closed the archive within the array: "Can't close the ZIP file", exit code 1."""
    path = tmp_path / "a.npz"
    save_checkpoint(path, {"x": np.zeros(3)}, {"kind": "k"})
    before = path.read_bytes()

    class Interrupted(zipfile.ZipFile):
        def open(self, name, mode="r", **options):
            member = super().open(name, mode, **options)
            if name == "x.npy":  # between this and the block that closes it
                raise KeyboardInterrupt
            return member

    with monkeypatch.context() as patched:
        patched.setattr(zipfile, "ZipFile", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(path, {"x": np.ones(3)}, {"kind": "k"})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
