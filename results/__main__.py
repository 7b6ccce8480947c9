"""`python -m results build`, `store`, `store-published` or `demo-picture`; see `results/README.md`."""

import argparse
import pathlib
import sys

from results import DOCUMENT, FIGURES, PUBLISHED, SUMMARIES, TEMPLATE
from results.builder import demo, document, published, summaries
from vrl_jax.errors import UserError


def main(arguments: list[str] | None = None) -> int:
  """Runs the command; returns the exit status."""
  parser = argparse.ArgumentParser(prog='python -m results')
  commands = parser.add_subparsers(dest='command', required=True)
  commands.add_parser('build', help='write RESULTS.md and its figures from the stored summaries')
  store = commands.add_parser('store', help='store a small summary of a sweep')
  store.add_argument('name', help='name of the summary')
  store.add_argument('folder', type=pathlib.Path, help='run or sweep directory')
  store.add_argument(
    'arguments', nargs='+', help='options of launch.py, after --: --config=configs/figures/… and fields'
  )
  curves = commands.add_parser('store-published', help='store the train losses of published CSV files')
  curves.add_argument('folder', type=pathlib.Path, help='directory of the CSV files')
  picture = commands.add_parser('demo-picture', help="run the demo and draw the README's picture")
  picture.add_argument('--workdir', type=pathlib.Path, help='new run directory; default: a temporary one')
  args = parser.parse_args(arguments)
  try:
    if args.command == 'store':
      print(summaries.store(args.name, args.folder, args.arguments, SUMMARIES))
    elif args.command == 'store-published':
      print(published.store(args.folder, PUBLISHED))
    elif args.command == 'demo-picture':
      print(*demo.make_picture(args.workdir), sep='\n')
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
