"""Training over slow links between hosts, which are network namespaces of this machine; see README.md one level up."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / 'results' / 'data' / 'network.json'
