"""What setup.py does for PyPI: archives that are the same for the same sources, and links.

``SOURCE_DATE_EPOCH`` is the time that all files of a distribution get, so that builds of the same
sources give the same bytes.
"""

import gzip
import os
import re
import tarfile
from configparser import ConfigParser

from setuptools.command.sdist import sdist


class ReproducibleSdist(sdist):
    """An archive that is the same to the byte for the same sources, given SOURCE_DATE_EPOCH."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        """Write the archive in sorted order, as `add` goes through a folder; return its name."""
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if format != "gztar" or epoch is None:
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)

        def plain(entry):
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = int(epoch)
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        name = f"{base_name}.tar.gz"
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with (
            open(name, "wb") as file,
            gzip.GzipFile("", "wb", mtime=int(epoch), fileobj=file) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            archive.add(os.path.join(root_dir or "", base_dir), base_dir, filter=plain)
        return name


def links():
    """README.md with links that PyPI can follow, and links of its own, if setup.cfg has a url."""
    config = ConfigParser()
    config.read("setup.cfg", "utf-8")
    url, version = config["metadata"].get("url"), config["metadata"]["version"]
    if url is None:
        return {}
    with open("README.md", encoding="utf-8") as file:
        text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{url}/raw/v{version}/", file.read())
    text = re.sub(r"(?<!!)(\[[^]]*\]\()(?!https?:|#)", rf"\1{url}/blob/v{version}/", text)
    project_urls = {"Changelog": f"{url}/blob/v{version}/CHANGELOG.md", "Issues": f"{url}/issues"}
    return {"long_description": text, "project_urls": project_urls}
