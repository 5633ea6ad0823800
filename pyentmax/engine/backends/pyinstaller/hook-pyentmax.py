"""PyInstaller runs this for a program that imports pyentmax, and reads these two names."""

from pathlib import Path

_package = Path(__file__).parents[3]
_files = [p for end in ("tsv", "txt", "toml", "cu", "cuh") for p in _package.rglob(f"*.{end}")]
datas = [(str(p), str(Path("pyentmax", p.parent.relative_to(_package)))) for p in _files]
hiddenimports = ["pyentmax._cpu"]
