"""PyInstaller runs this for a program that imports pyentmax."""

from PyInstaller.utils.hooks import can_import_module, collect_data_files, copy_metadata

datas = collect_data_files("pyentmax") + copy_metadata("pyentmax")
hiddenimports = ["pyentmax._cpu"] * can_import_module("pyentmax._cpu")
