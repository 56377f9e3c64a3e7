# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""An mkdocs hook that converts LaTeX to MathML, which browsers show without scripts.

`$...$` stands within a line and `$$...$$` as a paragraph of its own, as on GitHub. Code
is left alone.
"""

from __future__ import annotations

import re

from latex2mathml import converter
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from mkdocs.config.defaults import MkDocsConfig

PATTERN = r"\$\$(.+?)\$\$|(?<![\w$])\$(?=\S)([^$]+?)(?<=\S)\$(?![\w$])"

# A function's name, with a bracket or sign before it and one after it.
NAME = re.compile(r"(</mo>)?<mi>(exp|ln|log)</mi>(?=((?:<mrow>)?<mo)?)")


def _spaced(name: re.Match[str]) -> str:
    """A function's name, with a thin space on sides that have no bracket or sign."""
    left, right = ("0" if name[i] else "0.17em" for i in (1, 3))
    return f'{name[1] or ""}<mo lspace="{left}" rspace="{right}">{name[2]}</mo>'


class _Formula(InlineProcessor):
    def handleMatch(  # type: ignore[override]
        self, m: re.Match[str], data: str
    ) -> tuple[str, int, int]:
        shown = "block" if m[1] else "inline"
        made = converter.convert((m[1] or m[2]).strip(), display=shown)
        # A relation, with space around it.
        made = made.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")
        made = NAME.sub(_spaced, made)
        if m[1]:
            made = f'<span class="formula">{made}</span>'
        return self.md.htmlStash.store(made), m.start(0), m.end(0)


class Formulas(Extension):
    """The extension of Python-Markdown for formulas."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Registers formulas after code, whose dollars are plain, before escapes."""
        md.inlinePatterns.register(_Formula(PATTERN, md), "formula", 185)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the extension, as an mkdocs hook."""
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]
    return config
