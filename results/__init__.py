"""RESULTS.md and what it is made of: small summaries of the runs, figures, and the text with its numbers left open.

`python -m results store NAME FOLDER -- --config=…` adds a sweep, `make results` writes figures and RESULTS.md.
"""

import pathlib

FOLDER = pathlib.Path(__file__).parent
SUMMARIES = FOLDER / 'summaries'
FIGURES = FOLDER / 'figures'
TEMPLATE = FOLDER / 'template.md'
DOCUMENT = FOLDER.parent / 'RESULTS.md'
