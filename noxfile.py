"""Every check of this repository. Sessions loop and call; what they call is in tools/ and in the tests.

`nox` runs what CI runs. `nox -s compat -- all`, `nox -s compat -- 0.26.0` choose rows of compat.toml.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import nox

ROOT = Path(__file__).parent
BIN = Path(sys.executable).parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import matrix  # noqa: E402
import pythons  # noqa: E402

from vllm_tt_plugin import compat  # noqa: E402

nox.needs_version = ">=2026.2"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["clear", "lint", "types", "tests", "oldest", "wheels", "real_ttnn", "tally"]

MATRIX = compat.load()
RESULTS = ROOT / ".nox" / "results"
REAL_TTNN = "packages/tt-platform/tests/real_ttnn"
SCHEDULER = "packages/tt-scheduler"
WHEELS = ("tests/test_wheels.py", "tests/e2e/test_e2e_wheels.py")
ON_EVERY_ROW = "not default_row and not long"
SERVER_SUITE = "tests/tt"
ELSEWHERE = [f"--ignore={path}" for path in (*WHEELS, REAL_TTNN, SERVER_SUITE)]


def pytest(
    session: nox.Session,
    name: str,
    *arguments: str,
    python: str = sys.executable,
    success_codes: Sequence[int] = (0,),
    **environ: str,
) -> None:
    command = [python, "-m", "pytest", "-q", f"--junit-xml={RESULTS / name}.xml", *arguments]
    session.run(*command, external=True, env=environ, success_codes=success_codes)


# Most of the time goes to processes that import vLLM on one core: files run side by side, a file's tests in order.
# Files keep their order: the end-to-end tests, which take longest, come first. No more than four workers, since some
# start engines of 2 GB each.
WORKERS = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile", "--no-loadscope-reorder")


def both_platforms(
    session: nox.Session,
    version: str,
    *arguments: str,
    python: str = sys.executable,
    success_codes: Sequence[int] = (0,),
) -> None:
    """vLLM has one platform a process: all tests run on ours, but for those of the scheduler, which need none."""
    ours, none = (f"{suite}-{version}" for suite in ("vllm", "scheduler"))
    codes = success_codes
    pytest(session, ours, *WORKERS, f"--ignore={SCHEDULER}", *arguments, python=python, success_codes=codes)
    pytest(session, none, *WORKERS, SCHEDULER, *arguments, python=python, success_codes=codes, TT_RUNTIME="auto")


@nox.session
def clear(session: nox.Session) -> None:
    """Forget the results of the last run."""
    for report in RESULTS.glob("*.xml"):
        report.unlink()


@nox.session
def lint(session: nox.Session) -> None:
    """Style, format, and who may import whom."""
    session.run(sys.executable, "-m", "ruff", "check", ".")
    session.run(sys.executable, "-m", "ruff", "format", "--check", ".")
    session.run(f"{BIN}/lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Strict in the cores, basic in the vLLM adapters."""
    session.run(f"{BIN}/pyright")
    session.run(f"{BIN}/pyright", "--project", "tools/pyright-adapters.json")


@nox.session
def tests(session: nox.Session) -> None:
    """Every test on the default row, but for those of the sessions below."""
    both_platforms(session, MATRIX.default.vllm, "-m", "not long", *ELSEWHERE, *session.posargs)


@nox.session(name="long")
def long_tests(session: nox.Session) -> None:
    """Tests that take a minute or more: launches that fail, several servers at once, the audit."""
    pytest(session, "long", *WORKERS, "-m", "long", *ELSEWHERE, *session.posargs)


@nox.session
def server(session: nox.Session) -> None:
    """The suite that faces a server, put to one on the software mesh; `-- --tt-server-url=URL` puts it to another."""
    pytest(session, "server", SERVER_SUITE, *session.posargs)


@nox.session
def oldest(session: nox.Session) -> None:
    """Real engines and servers on the oldest row."""
    version = MATRIX.versions[-1]
    python = row(session, version)
    pytest(session, f"engine-{version}", *WORKERS, "-m", f"engine and {ON_EVERY_ROW}", *ELSEWHERE, python=python)


@nox.session
def adapters(session: nox.Session) -> None:
    """All else that touches vLLM on the oldest row."""
    version = MATRIX.versions[-1]
    selected = f"vllm and not engine and {ON_EVERY_ROW}"
    both_platforms(session, version, "-m", selected, *ELSEWHERE, python=row(session, version))


def row(session: nox.Session, version: str) -> str:
    """Make this row's environment; returns its interpreter."""
    session.run(sys.executable, "tools/bootstrap.py", "--dev", "--row", version)
    return ".venv/bin/python" if version == MATRIX.default.vllm else f".venvs/{version}/bin/python"


@nox.session(name="compat")
def compat_rows(session: nox.Session) -> None:
    """What touches vLLM, row by row: the newest and the oldest, `-- all`, or the ones named. Keeps the results."""
    named = session.posargs or [MATRIX.versions[0], MATRIX.versions[-1]]
    versions = MATRIX.versions if "all" in named else tuple(MATRIX.row(name).vllm for name in named)
    lines = [one_row(session, version) for version in versions]
    session.log("The compat matrix:\n" + "\n".join(lines))
    if red := [version for version in versions if not matrix.load()[version].green]:
        session.error(f"not green: {', '.join(red)}")


def one_row(session: nox.Session, version: str) -> str:
    """Make a row's environment, run its tests, keep the result. A failure does not keep other rows from running."""
    begin = time.monotonic()
    reports = [RESULTS / f"{suite}-{version}.xml" for suite in ("vllm", "scheduler")]
    for report in reports:
        report.unlink(missing_ok=True)
    selected = f"(vllm and not engine or every_row) and {ON_EVERY_ROW}"
    both_platforms(session, version, "-m", selected, *ELSEWHERE, python=row(session, version), success_codes=(0, 1))
    result = matrix.result_of(reports, time.monotonic() - begin)
    matrix.save({**matrix.load(), version: result}, MATRIX.versions)
    line = f"vLLM {version}: {result}"
    session.log(line)
    return line


@nox.session
def wheels(session: nox.Session) -> None:
    """What is shipped: wheels built, installed alone and together, and used without the source tree."""
    pytest(session, "wheels", *WHEELS, *session.posargs)


@nox.session
def standalone(session: nox.Session) -> None:
    """Each package alone in an empty environment, its core imported with vllm, torch and ttnn blocked."""
    pytest(session, "standalone", WHEELS[0], "-k", "alone", *session.posargs)


@nox.session
def release(session: nox.Session) -> None:
    """`-- --check`: every wheel's contents, pins, notes and interface, then each installed alone and all together."""
    session.run(sys.executable, "-m", "release", *session.posargs, env={"PYTHONPATH": str(ROOT / "tools")})
    pytest(session, "release", WHEELS[0])


@nox.session
def real_ttnn(session: nox.Session) -> None:
    """Detection, mesh and lifecycle against the real ttnn package on mock clusters. Its wheels want Python 3.12."""
    python = pythons.find("3.12")
    if python is None:
        session.skip("no Python 3.12 found on PATH or in pyenv: the tests against the real ttnn were not run")
    folder = ROOT / ".venvs" / "real-ttnn"
    session.run(f"{BIN}/uv", "venv", "--quiet", "--allow-existing", "--python", str(python), str(folder))
    wanted = [
        "ttnn==0.81.1",
        "numpy<2",
        "pytest",
        "hypothesis",
        "-e",
        "packages/tt-registry",
        "-e",
        "packages/tt-scheduler",
        "-e",
        "packages/tt-platform",
    ]
    session.run(f"{BIN}/uv", "pip", "install", "--quiet", "--python", str(folder), *wanted)
    pytest(session, "real-ttnn", REAL_TTNN, *session.posargs, python=str(folder / "bin" / "python"))


@nox.session
def surface(session: nox.Session) -> None:
    """What a vLLM release changes in the part of vLLM that we use: `-- 0.34.0`; `-- 0.34.0 --write` keeps it."""
    session.run(sys.executable, "-m", "surface", *session.posargs, env={"PYTHONPATH": str(ROOT / "tools")})


@nox.session
def bench(session: nox.Session) -> None:
    """`nox -s bench -- NAME [arguments]` runs benchmarks/NAME.py, which writes its own report."""
    names = sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py"))
    if not session.posargs or session.posargs[0] not in names:
        session.error(f"name a benchmark: nox -s bench -- {' | '.join(names)}")
    name, *arguments = session.posargs
    session.run(sys.executable, f"benchmarks/{name}.py", *arguments)


@nox.session
def docs(session: nox.Session) -> None:
    """Write the generated parts of the documentation again."""
    session.run(sys.executable, "tools/readme.py")
    session.run(sys.executable, "tools/cli_docs.py")
    for page in ("options", "rules"):
        with (ROOT / "docs" / f"{page}.md").open("w") as file:
            session.run(sys.executable, "-m", "tt_platform", page, stdout=file)


@nox.session
def tally(session: nox.Session) -> None:
    """The results of all suites, added up."""
    session.run(sys.executable, "tools/tally.py", str(RESULTS))
