"""Print which tests no stage ran, and why.

    python3 tools/skipped_tests.py FOLDER

Every run of pytest with PYENTMAX_TEST_OUTCOMES=FOLDER leaves a file there (tests/conftest.py). A
test that one run skipped and another passed was not skipped.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# What no machine can have besides everything else.
EXPECTED = re.compile(r"CuPy|CUDA|GPU|this Python")


def never_run(folder: Path) -> dict[str, list[str]]:
    """Reason → the tests or files that were skipped for it and passed in no run."""
    runs = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    passed = {test for run in runs for test in run["passed"]}
    passed |= {test.partition("::")[0] for test in passed}  # of a file that is skipped as a whole
    reasons: dict[str, list[str]] = {}
    seen: set[str] = set()
    for test, reason in (pair for run in runs for pair in run["skipped"].items()):
        if test not in passed | seen:
            seen.add(test)
            reasons.setdefault(reason.removeprefix("Skipped: "), []).append(test)
    return reasons


def report(folder: Path) -> Iterator[str]:
    """A line for each reason, those that every machine has last."""
    reasons = sorted(never_run(folder).items(), key=lambda item: bool(EXPECTED.search(item[0])))
    for reason, tests in reasons:
        yield f"{len(tests):5} {reason}: {tests[0]}{' …' * (len(tests) > 1)}"


if __name__ == "__main__":
    lines = list(report(Path(sys.argv[1])))
    print(f"skipped in every stage: {len(lines) or 'nothing'}", *lines, sep="\n")
