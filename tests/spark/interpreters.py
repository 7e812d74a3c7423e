"""Interpreters for tests that ask where the package comes from."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest


def without_the_package(folder):
    """An interpreter that finds this one's packages, but not those installed as links to their sources."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    site = next(folder.glob("lib/python*/site-packages"))
    places = {sysconfig.get_path("purelib"), str(Path(pyspark.__file__).parents[1])}
    (site / "others.pth").write_text("\n".join(places) + "\n")  # no .pth file in there is heeded
    interpreter = folder / "bin" / "python"
    if subprocess.run([interpreter, "-c", "import happened"], capture_output=True).returncode == 0:
        pytest.skip("happened is installed here as a copy, so it cannot be seen where it comes from")
    return interpreter
