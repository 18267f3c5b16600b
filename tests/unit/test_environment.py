"""The pins agree: requirements.txt, environment.yml, pyproject.toml and what is installed."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"([A-Za-z0-9_.-]+)==([A-Za-z0-9_.]+)  # (\S.{9,})")


def requirement_lines() -> list[str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def pins() -> dict[str, str]:
    return dict(found.group(1, 2) for line in requirement_lines() if (found := PIN.match(line)))


def conda() -> list:
    return yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("line", requirement_lines())
def test_a_requirement_is_an_exact_pin_with_a_reason(line):
    assert PIN.fullmatch(line), "write name==version  # why it is needed"


@pytest.mark.parametrize(("name", "version"), pins().items())
def test_what_is_installed_is_what_is_pinned(name, version):
    installed = importlib.metadata.version(name).split("+")[0]  # torch 2.13.0+cpu is 2.13.0
    assert installed == version, f"{name} {installed} is installed: run `make clean lab`"


def test_conda_has_the_same_pins():
    (pip,) = [entry["pip"] for entry in conda() if isinstance(entry, dict)]
    assert pip == [f"{name}=={version}" for name, version in pins().items()] + ["-e ."]


def test_conda_has_the_oldest_python_the_project_allows():
    oldest = project()["requires-python"].removeprefix(">=")
    assert f"python={oldest}" in conda()


def test_extra_run_has_the_same_pins():
    wanted = [f"{name}=={pins()[name]}" for name in ("torch", "deepspeed")]
    assert project()["optional-dependencies"]["run"] == wanted


def test_extra_hf_is_what_the_kit_tests():
    kit = (ROOT / "requirements-kit.txt").read_text()
    (wanted,) = project()["optional-dependencies"]["hf"]
    assert wanted in [line.partition("  #")[0] for line in kit.splitlines()]


def test_every_dependency_of_the_package_is_pinned():
    names = {re.match(r"[A-Za-z0-9_.-]+", text)[0] for text in project()["dependencies"]}
    assert names - pins().keys() == set()
