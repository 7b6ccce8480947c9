"""`python -m results build`, or `python -m results store NAME FOLDER -- --config=FILE …`; see `results/README.md`."""

import argparse
import pathlib
import sys

from results import DOCUMENT, FIGURES, SUMMARIES, TEMPLATE, document, published, summaries
from vrl_jax.errors import UserError


def main(arguments: list[str] | None = None) -> int:
  """Builds or stores; returns the exit status."""
  parser = argparse.ArgumentParser(prog='python -m results')
  commands = parser.add_subparsers(dest='command', required=True)
  commands.add_parser('build', help='RESULTS.md and its figures from the stored summaries')
  store = commands.add_parser('store', help='a small summary of a sweep')
  store.add_argument('name')
  store.add_argument('folder', type=pathlib.Path)
  store.add_argument('arguments', nargs='+', help='of launch.py, after --: --config=configs/figures/… and other fields')
  curves = commands.add_parser('store-published', help='the train losses of the published CSV files')
  curves.add_argument('folder', type=pathlib.Path)
  args = parser.parse_args(arguments)
  try:
    if args.command == 'store':
      print(summaries.store(args.name, args.folder, args.arguments, SUMMARIES))
    elif args.command == 'store-published':
      print(published.store(args.folder))
    else:
      template = TEMPLATE.read_text()
      text = document.fill(template)
      for path in document.draw_figures(template, FIGURES):
        print(path)
      DOCUMENT.write_text(text)
      print(DOCUMENT)
  except UserError as error:
    print(f'error: {error}', file=sys.stderr)
    return error.exit_status
  return 0


if __name__ == '__main__':
  sys.exit(main())
