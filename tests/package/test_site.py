# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Builds the site, and holds the files about the project to the project."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import dpfl
from tools import site_pages

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, but for its index to search, and without breaks in signatures."""
    target, settings = tmp_path_factory.mktemp("site"), read_yaml("mkdocs.yml")
    reference = settings["plugins"][-1]
    python = reference["mkdocstrings"]["handlers"]["python"]
    python["options"]["separate_signature"], python["paths"] = False, [str(ROOT)]
    hooks = [str(ROOT / hook) for hook in settings["hooks"]]
    changes = {"docs_dir": str(ROOT / "docs"), "hooks": hooks, "plugins": [reference]}
    config = tmp_path_factory.mktemp("config") / "mkdocs.yml"
    config.write_text(yaml.safe_dump({**settings, **changes}))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(
        [*command, "--config-file", config, "--site-dir", target],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_module_and_public_name_is_in_the_reference(site):
    names = 0
    for path in (ROOT / "dpfl").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1].startswith("__"):
            continue
        module = ".".join(parts)
        page = (site / f"reference/{module}.html").read_text(encoding="utf-8")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                if not node.name.startswith("_") and ast.get_docstring(node):
                    assert f'id="{module}.{node.name}"' in page, (module, node.name)
                    names += 1
    assert names > 200


PAGES = sorted((ROOT / "docs").rglob("*.md"))


def built(site, path):
    """The text of a page of the site."""
    page = site / path.relative_to(ROOT / "docs").with_suffix(".html")
    if page.name == "README.html":
        page = page.with_name("index.html")
    return page.read_text(encoding="utf-8")


def leaves(nav):
    """The pages of a navigation."""
    for entry in nav:
        (value,) = entry.values()
        yield from [value] if isinstance(value, str) else leaves(value)


def test_every_page_and_notebook_is_in_the_navigation(site):
    pages = [path.relative_to(ROOT / "docs") for path in PAGES]
    notebooks = (ROOT / "examples").glob("*.ipynb")
    pages += [path.relative_to(ROOT).with_suffix(".md") for path in notebooks]
    found = list(leaves(read_yaml("mkdocs.yml")["nav"]))
    assert len(set(found)) == len(found)
    assert set(map(str, pages)) <= set(found)
    index = (site / "index.html").read_text(encoding="utf-8")
    # Links and pictures of the README lead to the site's pages, not to files.
    assert 'href="privacy/index.html"' in index
    assert 'src="images/effects_femnist_2nn.png"' in index


ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ", re.M)
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
FORMULA = re.compile(r"^ *\$\$$.*?^ *\$\$$", re.M | re.S)


def test_site_renders_every_heading_table_and_block(site):
    """A fence that the site does not know swallows what comes after it."""
    for path in PAGES:
        text, page = path.read_text(encoding="utf-8"), built(site, path)
        plain = FENCE.sub("", text)
        expected = {
            "<h2 ": len(re.findall(r"^## ", plain, re.M)),
            "<h3 ": len(re.findall(r"^### ", plain, re.M)),
            # The way to the page begins with one.
            "<li>": 1 + len(ITEM.findall(FORMULA.sub("", plain))),
            "<table>": len(re.findall(r"^\|[ :|-]+\|$", plain, re.M)),
            "<pre><code class=": len(re.findall(r"^```\w+$", text, re.M)),
        }
        assert {tag: page.count(tag) for tag in expected} == expected, path


CODE = re.compile(r"<(pre|code|script)\b.*?</\1>", re.S)


def test_formulas_are_mathml(site):
    for path in PAGES:
        source = FENCE.sub("", path.read_text(encoding="utf-8"))
        source = re.sub(r"`[^`]*`", "", source)
        formulas = re.findall(r"\$\$[^$]+\$\$|\$[^$]+\$", source)
        page = CODE.sub("", built(site, path))
        assert "$" not in page, path
        made = re.findall(r"<math.*?</math>", page, re.S)
        assert len(made) == len(formulas), path
        # A command that is not known stays as it is.
        assert not [math for math in made if "\\" in math], path


def test_a_notebook_is_a_page_with_its_outputs(tmp_path):
    outputs = [
        {"text": ["1\n", "2\n"]},
        {"data": {"image/png": "YQ=\n=", "text/plain": "a picture"}},
        {"data": {"text/plain": ["3"]}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# A\n", "text"]},
        {"cell_type": "code", "source": ["f()"], "outputs": outputs},
    ]
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert site_pages._page(path).split("\n\n") == [
        *("# A\ntext", "```python\nf()\n```", "```output\n1\n2\n```"),
        *("![Output](data:image/png;base64,YQ==)", "```output\n3\n```"),
    ]


def read_yaml(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_citation_names_this_version_and_five_papers():
    found = read_yaml("CITATION.cff")
    assert found["cff-version"] == "1.2.0"
    assert found["version"] == dpfl.__version__
    papers = found["references"]
    keys = {paper["notes"] for paper in papers}
    assert keys == {"chen2022", "denisov2022", "chen2023", "chen2024", "dome2025"}
    for paper in papers:
        assert str(paper["year"]) in paper["notes"]
        assert paper["notes"] in found["message"]
        assert all(set(a) == {"family-names", "given-names"} for a in paper["authors"])


def test_hosted_ci_covers_every_supported_python():
    found = read_yaml(".github/workflows/tests.yml")["jobs"]
    classifiers = re.search(r"range\((\d+), (\d+)\)", (ROOT / "setup.py").read_text())
    first, end = map(int, classifiers.groups())
    supported = {f"3.{minor}" for minor in range(first, end)}
    assert set(found["base"]["strategy"]["matrix"]["python"]) == supported
    with_tff = set(found["everything"]["strategy"]["matrix"]["python"])
    assert with_tff == {"3.9", "3.10", "3.11"}
    runs = [step.get("run") for step in found["everything"]["steps"]]
    assert "bash .ci/run" in runs


def test_pre_commit_hooks_match_the_tested_checks():
    (repository,) = read_yaml(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    entries = {hook["id"]: hook["entry"].split() for hook in repository["hooks"]}
    assert set(entries) == {"ruff-check", "ruff-format", "mypy"}
    for words in entries.values():
        assert words[0].startswith(".venv/bin/")
        for word in words:
            assert not word.endswith(".py") or (ROOT / word).exists()


def test_long_names_in_cells_break_only_after_underscores():
    cells = "<td><code>{}</code></td>", "<p><code>{}</code></p>"
    name = "distributed_skellam"
    assert [site_pages.on_page_content(one.format(name)) for one in cells] == [
        cells[0].format("distributed_<wbr>skellam"),
        cells[1].format(name),
    ]
    short = cells[0].format("csgm_fig2")
    assert site_pages.on_page_content(short) == short
