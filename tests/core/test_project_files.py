"""What CI, the hooks and the metadata say of the project agrees with one another."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
yaml = pytest.importorskip("yaml")
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())


def test_ci_runs_on_every_python_that_the_project_claims():
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert claimed == ["3.11", "3.12", "3.13"]
    assert PROJECT["project"]["requires-python"] == f">={claimed[0]}"
    for job in ("bare-import", "check", "test"):
        assert WORKFLOW["jobs"][job]["strategy"]["matrix"]["python"] == claimed


def test_ci_uses_actions_of_a_named_version_and_the_makefile():
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in used)
    assert {"make check", "make test", "make test-slow"} <= {step.get("run") for step in steps}


def test_hooks_are_the_projects_own_tools():
    for repository in HOOKS["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            assert hook["language"] == "system" and hook["entry"].startswith(".venv/bin/")


def test_every_room_is_typed_strictly():
    assert PROJECT["tool"]["mypy"]["strict"] is True
    rooms = {path.parent.name for path in (ROOT / "src" / "happened").glob("*/__init__.py")}
    typed = {name.removeprefix("happened.") for name in PROJECT["tool"]["mypy"]["packages"]}
    assert typed == rooms


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "constraints.txt", "Makefile", ".github/workflows/ci.yml"]
)
def test_no_address_of_a_package_index_is_committed(name):
    text = (ROOT / name).read_text()
    assert not re.search(r"index-url|find-links|https?://(?!.*github)", text), name
