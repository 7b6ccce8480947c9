"""The study of RESULTS.md: stored runs, figures, and a template whose numbers are filled in.

`python -m results store NAME DIR -- --config=…` stores a sweep; `make results` writes the figures and RESULTS.md.
"""

import pathlib

FOLDER = pathlib.Path(__file__).parent
SUMMARIES = FOLDER / 'data' / 'summaries'
PUBLISHED = FOLDER / 'data' / 'published.json'
FIGURES = FOLDER / 'figures'
TEMPLATE = FOLDER / 'template.md'
DOCUMENT = FOLDER.parent / 'RESULTS.md'
