# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""An mkdocs hook that adds pages of the site which are not in docs/.

README becomes the first page, CONTRIBUTING and CHANGELOG pages beside it, a notebook a
page with the outputs that it keeps, and every module of dpfl a page of the reference
that mkdocstrings fills from its docstrings.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
# Paths of the root's files on the site.
MOVED = {
    **{"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"},
    "CHANGELOG.md": "changelog.md",
    **{
        f"examples/{path.name}": f"examples/{path.stem}.md"
        for path in sorted((ROOT / "examples").glob("*.ipynb"))
    },
}
# Pattern of names in cells that are wider than a column of a small screen.
LONG_NAME = re.compile(r"<td[^>]*><code>(\w{16,})</code></td>")
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")


def _modules() -> Iterator[tuple[str, Path]]:
    """The name and the file of every module of dpfl, packages included."""
    for path in sorted((ROOT / "dpfl").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__main__" or "__pycache__" in parts:
            continue
        yield ".".join(part for part in parts if part != "__init__"), path


def _module_page(name: str, path: Path) -> str:
    """The page of a module: everything; of a package: its docstring and its modules."""
    if path.name != "__init__.py":
        return f"# {name}\n\n::: {name}\n"
    text = f"# {name}\n\n{_text(path)}\n\n"
    for other, file in _modules():
        if other.rpartition(".")[0] == name:
            text += f"- [{other}]({other}.md): {_text(file).splitlines()[0]}\n"
    return text


def _text(path: Path) -> str:
    """A module's docstring."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _page(path: Path) -> str:
    """The page of a file of the root or of examples/."""
    return _notebook_page(path) if path.suffix == ".ipynb" else path.read_text("utf-8")


def _notebook_page(path: Path) -> str:
    """A notebook's text and code, with the text and pictures among its outputs."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        is_code = cell["cell_type"] == "code"
        parts.append(f"```python\n{source}\n```" if is_code else source)
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                png = "".join(data["image/png"]).replace("\n", "")
                parts.append(f"![Output](data:image/png;base64,{png})")
            elif text := "".join(output.get("text", data.get("text/plain", ""))):
                parts.append(f"```output\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages, as an mkdocs hook."""
    made = {page: _page(ROOT / source) for source, page in MOVED.items()}
    for name, path in _modules():
        made[f"reference/{name}.md"] = _module_page(name, path)
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(
    markdown: str, *, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Turns links between files of the tree into links between pages of the site.

    Args:
      markdown: Text of the page.
      page: The page.
      config: Settings of the site; ignored.
      files: Files of the site.
    """
    here = page.file.src_uri
    if here.startswith("reference/"):
        return markdown
    # The page's folder in the tree.
    moved = {target: source for source, target in MOVED.items()}
    folder = posixpath.dirname(moved.get(here, f"docs/{here}"))

    def on_the_site(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        if target not in MOVED and not target.startswith("docs/"):
            return match[0]
        target = MOVED.get(target, target[len("docs/") :])
        start = posixpath.dirname(here) or "."
        return f"{match[1]}{posixpath.relpath(target, start)}{match[3]}"

    return LINK.sub(on_the_site, markdown)


def on_page_content(html: str, **_: object) -> str:
    """Lets long names in cells break after an underscore, and nowhere else."""
    return LONG_NAME.sub(lambda m: m[0].replace("_", "_<wbr>"), html)
