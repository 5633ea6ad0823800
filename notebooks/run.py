"""Execute the notebooks: ``python notebooks/run.py [NAME …]``, all of them by default.

Each runs in a fresh kernel, and the first error ends the run. Its exercises are run twice: with the
stubs, which the checks must not accept, and, in cells that are not kept, with the code of
``solutions/``, which they must. Puzzles check themselves, stubs and solutions alike. Outputs are
written back into the file, together with a hash of the code they come from, which a test compares
with the code in the file. Under ``PYENTMAX_FAST=1`` the notebooks take their small setting and
nothing is written: the outputs kept in the repository are always those of the full setting. There
each check also has to refuse three wrong solutions: those of ``solutions/wrong.json``, by notebook
and exercise, are lines of the solution with a mistake.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "file_extension": ".py", "pygments_lexer": "ipython3"}
WIDGET = "application/vnd.jupyter.widget-view+json"
TIME_LIMIT = 1800  # seconds for one cell: some train many models, on machines that do other things
TIME_LIMIT_FAST = 240  # in the small setting, where a cell takes seconds


def in_small_setting() -> bool:
    """Whether the notebooks take their small setting, and nothing is written."""
    return os.environ.get("PYENTMAX_FAST") == "1"


def notebooks() -> list[Path]:
    """The notebooks in their order."""
    return sorted(FOLDER.glob("[0-9][0-9]*_*.ipynb"))


def solution_blocks(path: Path) -> list[str]:
    """The Python of a notebook's page of solutions."""
    page = path.parent / "solutions" / f"{path.name.partition('_')[0]}.md"
    return re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def wrong_cells(path: Path, checks: list[Any]) -> list[str]:
    """Cells that each run a check with a wrong solution, and end with a line if it is accepted."""
    mistakes = json.loads((path.parent / "solutions" / "wrong.json").read_text("utf-8"))
    blocks, cells = solution_blocks(path), []
    for check in checks:
        number = re.findall(r"exercise\(\s*(\d+)", check.source)[0]
        for right, wrong in mistakes[path.name.partition("_")[0]][number]:
            [block] = [text for text in blocks if right in text]
            told = f"exercise {number} accepts {wrong!r} in place of {right!r}"
            cells.append(
                f"try:\n    exec({block.replace(right, wrong)!r})\n    exec({check.source!r})\n"
                f"except Exception:\n    pass\nelse:\n    print({told!r})\n"
                f"exec({block!r})"
            )
    return cells


def tagged(cells: Any, tag: str) -> list[Any]:
    """The cells with a tag."""
    return [cell for cell in cells if tag in cell.metadata.get("tags", [])]


def printed(cell: Any) -> str:
    """What a cell printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def joined(outputs: list[Any]) -> list[Any]:
    """The outputs, with a stream in one piece: on a busy machine it comes in several."""
    whole: list[Any] = []
    for output in outputs:
        before = whole[-1] if whole else {}
        if output["output_type"] == "stream" and before.get("name") == output["name"]:
            before["text"] += output["text"]
        else:
            whole.append(output)
    return whole


def code_hash(notebook: dict[str, Any]) -> str:
    """A hash of all code cells, in their order."""
    sources = [c["source"] for c in notebook["cells"] if c["cell_type"] == "code"]
    # In the file a source may be a list of lines, in memory it is a string.
    joined = "\0".join("".join(source) for source in sources)
    return hashlib.sha256(joined.encode()).hexdigest()


def execute(path: Path) -> Any:
    """The notebook with the outputs of a fresh kernel; raises what a cell raises.

    A message between client and kernel can be lost, one run in some hundreds: then each waits for
    the other, and neither computes. So all is tried once more in a new kernel.
    """
    try:
        from nbclient.exceptions import CellTimeoutError
    except ImportError as missing:
        raise SystemExit(
            f"{missing.name} is not installed: pip install 'pyentmax[notebooks]'"
        ) from None
    try:
        return _execute(path)
    except CellTimeoutError as silent:
        print(f"no answer, once more in a new kernel: {silent}", file=sys.stderr)
        return _execute(path)


def _execute(path: Path) -> Any:
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell

    notebook = nbformat.read(path, as_version=4)
    own, checks = len(notebook.cells), tagged(notebook.cells, "check")
    puzzles = tagged(notebook.cells, "puzzle")
    if checks or puzzles:
        code = [*solution_blocks(path), *(cell.source for cell in checks)]
        first = own + len(code) - len(checks)
        code += wrong_cells(path, checks) if in_small_setting() else []
        notebook.cells += [new_code_cell(source) for source in code]
    # Kernels that start at the same moment can choose the same port of the machine; a file in a
    # folder of one's own is nobody else's. On macOS a socket's name ends after 103 bytes.
    short = sys.platform == "win32" or len(os.fsencode(tempfile.gettempdir())) < 70
    with tempfile.TemporaryDirectory(dir=None if short else "/tmp") as folder:
        manager = AsyncKernelManager(kernel_name="python3")
        if sys.platform != "win32":
            manager.transport, manager.ip = "ipc", f"{folder}/kernel"
        client = NotebookClient(
            notebook,
            manager,
            timeout=TIME_LIMIT_FAST if in_small_setting() else TIME_LIMIT,
            record_timing=False,
            extra_arguments=["--IPKernelApp.log_level=40"],  # errors only
            resources={"metadata": {"path": str(FOLDER)}},
        )
        client.execute(cleanup_kc=True)  # of a manager of ours it leaves the kernel running
    solved = notebook.cells[first:][: len(checks)] if checks else []
    for check, again in zip(checks, solved, strict=True):
        if "to do" not in printed(check):
            raise AssertionError(f"a check accepts the stub:\n{check.source}")
        if "to do" in printed(again) or "right" not in printed(again):
            raise AssertionError(f"the solution is not the stub's:\n{check.source}")
    for wrong in notebook.cells[first + len(checks) :] if checks else []:
        if " accepts " in printed(wrong):
            raise AssertionError(printed(wrong))
    for stub in puzzles:
        if "to do" not in printed(stub):
            raise AssertionError(f"a puzzle accepts the stub:\n{stub.source}")
    tried = [c for c in notebook.cells[own:] if c.source.startswith("@puzzle(")]
    for solution in tried:
        if ": right (" not in printed(solution):
            raise AssertionError(f"not solved:\n{solution.source}\n{printed(solution)}")
    if len(tried) != len(puzzles):
        raise AssertionError(f"{len(tried)} solutions of {len(puzzles)} puzzles")
    del notebook.cells[own:]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # A slider without its kernel is a broken picture: the reader's own run brings it back.
            cell.outputs = joined([o for o in cell.outputs if WIDGET not in o.get("data", {})])
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": KERNEL,
            "language_info": LANGUAGE,
            "pyentmax": {"code_sha256": code_hash(notebook)},
        }
    )
    return notebook


def write(path: Path, notebook: Any) -> None:
    """Replace the file by the executed notebook, whole or not at all."""
    import nbformat

    nbformat.validate(notebook)
    text = json.dumps(
        json.loads(nbformat.writes(notebook)), indent=1, ensure_ascii=False, sort_keys=True
    )
    beside = path.with_suffix(".partial")
    beside.write_text(text + "\n", encoding="utf-8")
    os.replace(beside, path)


def main(names: list[str]) -> int:
    """Execute the notebooks whose file names begin with one of the names; 1 if one fails."""
    chosen = [p for p in notebooks() if not names or p.name.startswith(tuple(names))]
    if not chosen:
        known = ", ".join(p.name for p in notebooks())
        print(f"no notebook begins with {' or '.join(names)}; there are {known}", file=sys.stderr)
        return 1
    fast = in_small_setting()
    for number, path in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {path.name}", end=" ", flush=True)
        start = time.perf_counter()
        try:
            notebook = execute(path)
        except Exception as error:  # a cell's, or the kernel's own
            print(f"FAILED\n{error}", file=sys.stderr)
            return 1
        if not fast:
            write(path, notebook)
        setting = "small setting, not written" if fast else "written"
        print(f"{time.perf_counter() - start:.1f} s ({setting})", flush=True)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [NAME ...]")
    parser.add_argument("names", nargs="*", metavar="NAME", help="how the file name begins, as 03")
    sys.exit(main(parser.parse_args().names))
