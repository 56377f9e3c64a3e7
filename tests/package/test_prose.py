# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What `tools.prose` counts on a made-up page, and its report."""

from pathlib import Path

from tools import prose

PAGE = """# A heading of 5 words

One [link to 2](target-3.md) of `code 4` words. Noise of 1.5, 1e-4, 16,000
and $x = 5$ costs 0.4 (0.3 to 0.5) points!

- L2 of Theorem 4.1, Figs. 2 and 3 (Chen et al. 2024) has none
  on two lines.

```text
no 1 2 3 4
```

$$
1 + 2
$$

![A picture of 9](p.png)

| head | a head of five words |
| --- | --- |
| -0.4 (-1.1 to 0.4) | n=3 of 4 |
| 3 (4) | 2nn |
"""


def test_words_and_numbers_are_counted():
    assert list(map(prose.words, prose.sentences(PAGE))) == [7, 13, 17]
    assert list(map(prose.numbers, prose.sentences(PAGE))) == [1, 6, 0]
    cells = [cell for cell in prose.cells(PAGE) if cell != "---"]
    assert cells == ["head", "a head of five words", "0", "n=3 of 4", "3 (4)", "2nn"]
    assert list(map(prose.values, cells)) == [0, 0, 1, 0, 2, 0]
    assert prose.count(PAGE) == prose.Count(37 / 3, 7 / 3, 1 / 3, 5, 2)


def test_an_abbreviation_ends_no_sentence():
    assert (
        len(list(prose.sentences("See Fig. 3 of Chen et al. 2022 for e.g. this."))) == 1
    )
    assert len(list(prose.sentences("**It holds.** *Larger* ones: These too."))) == 3


def test_report_marks_values_above_limits(capsys):
    line = prose.line("page", prose.count(PAGE), prose.GUIDE)
    assert line.split() == ["page", "12.3", "2.33!", "33.3%!", "5", "2!"]
    prose.main([str(Path(__file__).parents[2] / "docs/tff.md")])
    assert "docs/tff.md" in capsys.readouterr().out
