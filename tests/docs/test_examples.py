"""The documentation's examples run as they are printed."""

import re
from pathlib import Path

import pytest

from piratenets.cli.main import parse

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in blocks(page, "python"):
        names: dict[str, object] = {}
        exec(compile(code, str(page), "exec"), names)
        if "u = run.predict" in code:
            assert names["u"].shape == (1, 1)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_parse(page):
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            words = line.split("#")[0].split()
            if words[:1] == ["piratenets"]:
                parse(words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_exist(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target
