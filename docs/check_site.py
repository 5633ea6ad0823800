"""What a built site must not have: ``python docs/check_site.py build/docs/html``, by `make docs`.

No link inside the site leads nowhere, nothing is fetched from the network, every picture has a
text for those who cannot see it, and no room lacks its reference for want of a library, unless
``--incomplete`` says that this was not to be had.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
WITHOUT = re.compile(r"This site was built without \w+")
FROM_AFAR = re.compile(r"""(?:@import\s*|url\()\s*["']?(?:https?:)?//[^"')\s]+""")


class Page(HTMLParser):
    """What is looked at of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.undescribed: list[str] = []
        text = path.read_text(encoding="utf-8")
        self.without = WITHOUT.findall(text)
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note the tag's name, where it leads, and what it describes."""
        given = {name: value or "" for name, value in attributes}
        self.ids.update({given.get("id", ""), given.get("name", "")} - {""})
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if FETCHED.get(tag) in given:
            self.fetched.append(given[FETCHED[tag]])
        # The logo stands above the name.
        logo = given.get("class") == "sidebar-logo"
        if tag == "img" and len(given.get("alt", "").split()) < 3 and not logo:
            self.undescribed.append(given.get("src", "")[:60])


def faults(site: Path, *, incomplete: bool = False) -> list[str]:
    """What is wrong with the site, a line each."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        here = path.relative_to(site)
        found += [f"{here}: no text describes the picture {src}" for src in page.undescribed]
        found += [f"{here}: {text}" for text in page.without if not incomplete]
        for address in page.links + page.fetched:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.fetched and parts.scheme != "data":
                    found.append(f"{here}: fetches {address}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{here}: there is no {address}")
            elif parts.fragment and target in pages and "=" not in parts.fragment:
                if unquote(parts.fragment) not in pages[target].ids:
                    found.append(f"{here}: {address} has no such place")
    for path in sorted(site.rglob("*.css")):
        for fetch in FROM_AFAR.findall(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)}: fetches {fetch}")
    return found if pages else [f"there is no page in {site}: run make docs"]


def main(site: str, *options: str) -> int:
    """Print the faults; 1 if there are any."""
    found = faults(Path(site).resolve(), incomplete=options == ("--incomplete",))
    print("\n".join(found) or "no dead link, nothing from afar, no picture without a text")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
