"""What a type checker says about code that uses us: nothing where it is right, the right thing where it is wrong.

Each file in ``cases/`` is checked with ``mypy --strict``. A line that must be refused ends in ``# refused: <code>``
(``a|b`` where versions of mypy differ); any other complaint, and any missing one, fails the file's test.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
ROOT = Path(__file__).parents[2]
Complaint = tuple[int, str]

pytestmark = pytest.mark.xdist_group("typing")


@pytest.fixture(scope="module")
def complaints() -> dict[str, set[Complaint]]:
    """File name → (line, error code) of all that mypy complains about; one run for all files."""
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--no-error-summary", *map(str, CASES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found: dict[str, set[Complaint]] = {}
    for line in run.stdout.splitlines():
        complaint = re.fullmatch(r"(.+?):(\d+): error: .*\[([a-z-]+)\]", line)
        if complaint:
            found.setdefault(Path(complaint[1]).name, set()).add((int(complaint[2]), complaint[3]))
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_types(case: Path, complaints: dict[str, set[Complaint]]) -> None:
    """Exactly the marked lines are refused, each for its reason."""
    found = complaints.get(case.name, set())
    expected = set()
    for number, line in enumerate(case.read_text(encoding="utf-8").splitlines(), 1):
        if marked := re.search(r"# refused: (\S+)$", line):
            codes = marked[1].split("|")
            expected.add((number, next((code for code in codes if (number, code) in found), codes[0])))
    assert expected == found
