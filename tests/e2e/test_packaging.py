"""What an installation brings, and what it leaves alone: real wheels in empty virtual environments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.needs import lacking
from tests.support.servers import ROOT, Process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("packaging")]

UNREACHABLE = ("No matching distribution", "Could not find a version", "Failed to establish a new connection")
TROUBLE = ROOT / "docs" / "troubleshooting.md"


def installing(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run what downloads; a machine without an index can't."""
    done = subprocess.run([*command], cwd=cwd, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode and any(text in said for text in UNREACHABLE):
        lacking(f"no package index can be reached:\n{said}")
    assert done.returncode == 0, said


class Environment:
    """An empty virtual environment."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"
        self.python = self.bin / "python"

    def install(self, what: str) -> None:
        installing(self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what)

    def run(self, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "REDIS_URL")}
        return subprocess.run(
            [*arguments], env=clean, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """As an agent's developer has it: ``pip install .`` and nothing else."""
    environment = Environment(tmp_path_factory.mktemp("agents") / "venv")
    environment.install(".")
    return environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as whoever packages it does."""
    folder = tmp_path_factory.mktemp("dist")
    installing(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("gateways") / "venv")
    environment.install(f"{wheel}[gateway]")
    return environment


IMPORTS = """
import importlib.util, sys
from listeners import RunPublisher, RedisListener, ToolCallListener, wrap, wrap_all, progress, new_run_id
from listeners.testing import recorded

assert "site-packages" in sys.modules["listeners"].__file__
assert not [name for name in ("starlette", "uvicorn", "pytest", "web") if importlib.util.find_spec(name)]
tool = wrap(lambda q: q * 2, RedisListener(), name="double")
with recorded() as run:
    assert tool(2) == 4
print(*run.types)
"""


def test_the_agents_side_needs_no_web_server(agents: Environment, tmp_path: Path) -> None:
    done = agents.run(agents.python, "-W", "error", "-c", IMPORTS, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[-2:] == ["tool_execution_completed", "run_completed"]
    installed = agents.run(agents.python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path).stdout
    names = {line.partition("==")[0] for line in installed.splitlines()}
    assert {"msgspec", "redis", "toolcast"} <= names
    assert not {"starlette", "uvicorn", "typer", "rich", "structlog"} & names


def test_without_the_gateway_the_command_says_what_to_install(agents: Environment, tmp_path: Path) -> None:
    done = agents.run(agents.bin / "toolcast", "serve", cwd=tmp_path)
    assert done.returncode == 1
    assert "this installation has no gateway" in done.stderr
    assert "pip install 'toolcast[gateway]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_wheel_holds_two_packages_and_the_page_inside_one(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"gateway", "listeners"}
    for name in (
        "gateway/py.typed",
        "gateway/web/define.js",
        "gateway/web/inspector/index.html",
        "listeners/contract/append.lua",
        "listeners/py.typed",
    ):
        assert name in names
    in_checkout = {path.relative_to(ROOT).as_posix() for path in (ROOT / "web").rglob("*.js")}
    assert in_checkout <= {name.removeprefix("gateway/") for name in names}


def test_an_installed_wheel_serves_the_page(gateways: Environment, redis_url: str, tmp_path: Path) -> None:
    # A `web` of the reader's own, and no checkout anywhere near.
    (tmp_path / "web" / "inspector").mkdir(parents=True)
    environment = {"REDIS_URL": redis_url, "PYTHONPATH": ""}
    serving = Process([str(gateways.bin / "toolcast"), "serve", "--port", "0"], env=environment, cwd=tmp_path)
    try:
        page = serving.expect(r"page +(http://\S+)\n")[1]
        for path, kind, text in (
            ("", "text/html; charset=utf-8", "web/inspector/"),
            ("web/define.js", "text/javascript; charset=utf-8", "customElements"),
        ):
            with urllib.request.urlopen(f"{page}{path}", timeout=5) as answer:
                assert answer.headers["content-type"] == kind
                assert text in answer.read().decode()
    finally:
        serving.stop()


# -- a project with packages of its own that are called like ours ------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("listeners", "gateway"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = 1\n")
    return tmp_path


def documented(text: str) -> str:
    """``text``, which the first part of the troubleshooting page has to hold."""
    first = re.split(r"^## ", TROUBLE.read_text("utf-8"), flags=re.MULTILINE)[1]
    assert text in first
    return text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "from listeners import RunPublisher",
            "ImportError: cannot import name 'RunPublisher' from 'listeners'",
        ),
        ("from listeners.testing import recorded", "No module named 'listeners.testing'"),
        ("import listeners; listeners.wrap", "module 'listeners' has no attribute "),
        ("from gateway.app import create_app", "No module named 'gateway.app'"),
    ],
)
def test_the_error_of_a_project_with_its_own_packages_is_documented(
    agents: Environment, project: Path, code: str, said: str
) -> None:
    (project / "app.py").write_text(code + "\n")
    for command in (["app.py"], ["-m", "app"]):
        done = agents.run(agents.python, *command, cwd=project)
        assert done.returncode == 1
        assert documented(said) in done.stderr


def test_the_documents_way_to_find_out_which_one_was_found(agents: Environment, project: Path) -> None:
    command = documented('python -c "import listeners; print(listeners.__file__)"')
    done = agents.run("bash", "-c", f"{agents.bin}/{command}", cwd=project)
    assert done.stdout == f"{project / 'listeners' / '__init__.py'}\n"


def test_a_server_that_finds_another_gateway_says_what_is_documented(
    gateways: Environment, project: Path
) -> None:
    done = gateways.run(gateways.bin / "uvicorn", "--factory", "gateway.app:create_app", cwd=project)
    assert done.returncode != 0
    assert documented('Could not import module "gateway.app"') in done.stderr
    done = gateways.run(gateways.python, "-m", "gateway", "--version", cwd=project)
    assert documented("No module named gateway.__main__") in done.stderr
    # The command is never misled.
    done = gateways.run(gateways.bin / "toolcast", "--version", cwd=project)
    assert (done.returncode, done.stdout[:9]) == (0, "toolcast ")


def test_pytest_in_such_a_project_is_mended_as_documented(agents: Environment, project: Path) -> None:
    (project / "test_mine.py").write_text(
        "from listeners import MINE\n\ndef test() -> None:\n    assert MINE\n"
    )
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(project)]
    stumbling = agents.run(*pytest_, cwd=project)
    assert stumbling.returncode != 0
    assert documented("Error while loading plugin") in stumbling.stderr
    mended = agents.run(*pytest_, *documented("-p no:toolcast").split(), cwd=project)
    assert mended.returncode == 0, mended.stdout


def test_the_page_begins_with_that_error() -> None:
    heading = next(line for line in TROUBLE.read_text("utf-8").splitlines() if line.startswith("## "))
    assert heading == "## `ImportError: cannot import name 'RunPublisher' from 'listeners'`"
