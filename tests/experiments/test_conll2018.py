"""Files of the shared task: from a folder, or downloaded from a server on this machine."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
from pathlib import Path

import pytest

from experiments.peters2019 import conll2018
from experiments.peters2019.conll2018 import conll2018_files, conll2018_languages
from pyentmax.seq2seq.data import DataError

pooch = pytest.importorskip("pooch")

CONTENTS = {
    "all/welsh-dev": "cath\tcathod\tN;PL\n",
    "all/welsh-train-low": "ci\tcŵn\tN;PL\n",
    "surprise/english-dev": "draw\tdrawn\tV;V.PTCP;PST\n",
    "surprise/old-english-dev": "hūs\thūs\tN;PL\n",
}


class Server(http.server.BaseHTTPRequestHandler):
    """Serves CONTENTS; ``damage`` maps some paths to bytes that stand for, or cut off, the file."""

    asked: list[str]
    damage: dict[str, bytes]

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.asked.append(name)
        if name not in CONTENTS:
            self.send_error(404)
            return
        whole = CONTENTS[name].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(whole)))
        self.end_headers()
        self.wfile.write(self.damage.get(name, whole))

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server with the files, an empty cache, and a registry of these files alone."""
    handler = type("Handler", (Server,), {"asked": [], "damage": {}})
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in CONTENTS.items()}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.delenv("PYENTMAX_DATA", raising=False)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
        monkeypatch.setattr(conll2018, "_URL", f"http://127.0.0.1:{running.server_port}/")
        monkeypatch.setattr(conll2018, "_checksums", lambda: digests)
        yield handler
        running.shutdown()
        thread.join()


def task(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "pyentmax" / "conll2018" / "task1"


def files_under(folder: Path) -> set[str]:
    found = (p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix() for p in found}


# --- downloads ------------------------------------------------------------------------------------
def test_files_are_downloaded_once(server, tmp_path, capsys):
    paths = conll2018_files(["english", "welsh"], "dev")
    assert paths == [task(tmp_path) / "surprise/english-dev", task(tmp_path) / "all/welsh-dev"]
    assert [p.read_text(encoding="utf-8") for p in paths] == [
        CONTENTS["surprise/english-dev"],
        CONTENTS["all/welsh-dev"],
    ]
    assert f"downloading 2 files to {task(tmp_path)}" in capsys.readouterr().err
    assert conll2018_files(["welsh", "english"], "dev") == paths[::-1]
    assert server.asked == ["surprise/english-dev", "all/welsh-dev"]
    assert capsys.readouterr().err == ""


def test_corrupted_download_is_not_kept(server, tmp_path):
    good = CONTENTS["surprise/english-dev"].encode()
    bad = good.replace(b"drawn", b"drown")
    server.damage["surprise/english-dev"] = bad
    with pytest.raises(DataError, match="surprise/english-dev.*does not match") as caught:
        conll2018_files(["welsh", "english"], "dev")
    for contents in (good, bad):
        assert hashlib.sha256(contents).hexdigest() in str(caught.value)
    assert files_under(task(tmp_path)) == {"all/welsh-dev"}
    server.damage.clear()
    assert len(conll2018_files(["welsh", "english"], "dev")) == 2
    assert server.asked.count("all/welsh-dev") == 1


def test_damaged_file_in_cache_is_downloaded_again(server):
    [path] = conll2018_files(["welsh"], "dev")
    path.write_text("cath\t", encoding="utf-8")
    assert conll2018_files(["welsh"], "dev") == [path]
    assert path.read_text(encoding="utf-8") == CONTENTS["all/welsh-dev"]


# --- names ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("language", "split", "message"),
    [
        ("englsh", "dev", "unknown language 'englsh': is it english or"),
        ("q", "dev", "unknown language 'q': known are english old-english welsh"),
        ("english", "train-low", "english has no train-low, only dev"),
        ("english", "test", "split: expected one of train-low, .*, dev; got 'test'"),
    ],
)
def test_unknown_names_are_refused(server, language, split, message):
    with pytest.raises(DataError, match=message):
        conll2018_files(["welsh", language], split)
    assert server.asked == []


# --- a folder -------------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path):
    for name in ("all/welsh-dev", "all/welsh-covered-test", "surprise/klingon-train-low"):
        path = tmp_path / "mine" / "conll2018" / "task1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a user's own\n", encoding="utf-8")
    return tmp_path / "mine"


@pytest.mark.parametrize("by_variable", [False, True])
def test_folder_is_used_as_it_is(server, folder, monkeypatch, by_variable):
    given = None if by_variable else str(folder)
    if by_variable:
        monkeypatch.setenv("PYENTMAX_DATA", str(folder))
    assert conll2018_files(["klingon"], "train-low", given) == [
        folder / "conll2018/task1/surprise/klingon-train-low"
    ]
    assert conll2018_languages("dev", given) == ["welsh"]
    with pytest.raises(DataError, match="unknown language 'english'"):
        conll2018_files(["english"], "dev", given)
    assert server.asked == []
    monkeypatch.setenv("PYENTMAX_DATA", os.devnull)
    with pytest.raises(DataError, match=r"PYENTMAX_DATA=.*: expected a folder that holds conll"):
        conll2018_languages("dev")


# --- the registry ---------------------------------------------------------------------------------
def test_registry_lists_every_file(monkeypatch):
    monkeypatch.delenv("PYENTMAX_DATA", raising=False)
    counts = {split: len(conll2018_languages(split)) for split in conll2018.SPLITS}
    # The paper's 86 and 102 languages, and Telugu, which has a low setting only.
    assert counts == {"train-low": 103, "train-medium": 102, "train-high": 86, "dev": 103}
