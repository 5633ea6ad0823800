"""Look at every page of the built site in Chromium, 390 px wide and without a network.

``python docs/check_in_browser.py build/docs/html``, by `make check-docs`. A page must not be wider
than a phone (what is too wide scrolls in a box of its own), and all of its formulas must be drawn.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path

WIDTH = 390  # CSS pixels of a phone
SECONDS = 300

# Opens one page after the other in a frame of that width and writes down what it finds.
LOOKER = """<!doctype html><meta charset="utf-8"><body><iframe></iframe><script>
const CODE = "pre, code, script, style, mjx-container";
const frame = document.querySelector("iframe");
frame.style = "width: WIDTHpx; height: 2000px; border: 0";
async function look(page) {
  await new Promise(loaded => { frame.onload = loaded; frame.src = page; });
  const inside = frame.contentWindow, root = inside.document.documentElement;
  if (inside.MathJax?.startup) await inside.MathJax.startup.promise;
  const words = inside.document.createTreeWalker(inside.document.body, NodeFilter.SHOW_TEXT);
  const stray = [];
  while (words.nextNode())
    if (words.currentNode.data.includes("$") && !words.currentNode.parentElement.closest(CODE))
      stray.push(words.currentNode.data.slice(0, 60));
  const all = selector => [...inside.document.querySelectorAll(selector)];
  return {
    page: page,
    width: root.scrollWidth,
    undrawn: all(".math").filter(m => !m.querySelector("mjx-container")).length,
    wrong: all("mjx-merror, [data-mjx-error]").map(m => m.textContent.slice(0, 60)),
    stray: stray,
    hidden: all("img").filter(i => i.complete && !i.naturalWidth).length,
  };
}
(async () => {
  const found = [];
  for (const page of PAGES) found.push(await look(page));
  document.body.textContent = "LOOKED" + JSON.stringify(found);
})();
</script>"""


def browser() -> str | None:
    """Where Chromium is, if there is one."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


def rendered(page: Path, profile: Path) -> str:
    """A page's HTML after its scripts. No host can be reached, and all files are one site."""
    command = [
        *(str(browser()), "--headless=new", "--no-sandbox", "--disable-gpu"),
        *("--hide-scrollbars", "--allow-file-access-from-files"),
        *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"),
        *(f"--virtual-time-budget={1000 * SECONDS}", "--dump-dom", page.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    return done.stdout


def faults(site: Path) -> list[str]:
    """What is wrong with the pages as the browser shows them."""
    pages = sorted(path.as_uri() for path in site.rglob("*.html") if path.parent != site)
    with tempfile.TemporaryDirectory() as folder:
        looker = Path(folder) / "look.html"
        text = LOOKER.replace("WIDTH", str(WIDTH)).replace("PAGES", json.dumps(pages))
        looker.write_text(text, encoding="utf-8")
        dumped = rendered(looker, Path(folder) / "profile")
    looked = re.search(r"LOOKED(\[.*\])", dumped)
    if looked is None:
        return [f"Chromium did not come to the end:\n{dumped[:2000]}"]
    found = []
    for seen in json.loads(unescape(looked[1])):
        page = seen["page"].removeprefix(site.as_uri() + "/")
        if seen["width"] > WIDTH:
            found.append(f"{page}: {seen['width']} px wide, a phone has {WIDTH}")
        if seen["undrawn"]:
            found.append(f"{page}: {seen['undrawn']} formulas are not drawn")
        if seen["hidden"]:
            found.append(f"{page}: {seen['hidden']} pictures are not shown")
        found += [f"{page}: MathJax does not understand {text!r}" for text in seen["wrong"]]
        found += [f"{page}: a $ is left in {text!r}" for text in seen["stray"]]
    return found


if __name__ == "__main__":
    told = faults(Path(sys.argv[1]).resolve())
    print("\n".join(told) or "no page is wider than a phone, and all formulas are drawn")
    sys.exit(bool(told))
