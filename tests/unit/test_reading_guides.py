"""A package of many small modules says in its docstring what each is for, in the order of reading."""

import re

import pytest

from tests.support.deployfiles import ROOT


@pytest.mark.parametrize("package", ["api", "scheduler", "workers"])
def test_the_guide_names_each_module_and_none_that_is_gone(package: str) -> None:
    guide = (ROOT / package / "__init__.py").read_text(encoding="utf-8")
    modules = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}

    named = {name for name in re.findall(r"`(\w+)`", guide) if name != "Accept"}

    assert modules - named == set()
    assert named - modules == set()


def test_the_readme_names_each_package_and_top_folder() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "batchfleet").glob("*/__init__.py")} - {"settings"}
    tops = {"api", "workers", "scheduler", "migrations", "deploy", "benchmarks"}

    assert {name for name in packages if f"`batchfleet/{name}/`" not in readme} == set()
    assert {name for name in tops if f"`{name}/`" not in readme} == set()
