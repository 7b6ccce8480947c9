"""`python -m vrl_jax.report RUN_OR_SWEEP… [--reference CSV…] [--output DIR]`."""

import argparse
import signal
import sys
from typing import NoReturn

from vrl_jax import errors, report
from vrl_jax.system.streams import prepare_streams


class _Parser(argparse.ArgumentParser):
  def error(self, message: str) -> NoReturn:
    raise errors.UserError(f'{message} (see --help)')


def main(arguments: list[str] | None = None) -> int:
  """Prints the table and writes the report; returns the exit status."""
  parser = _Parser(
    prog='python -m vrl_jax.report', description='Compares runs: prints a table, writes figures and report.html.'
  )
  parser.add_argument('folders', nargs='+', metavar='RUN_OR_SWEEP', help='a run or sweep directory')
  parser.add_argument(
    '--reference', nargs='+', default=[], metavar='CSV', help='published curves to add to the figures'
  )
  parser.add_argument(
    '--output', metavar='DIR', help='output directory; default: the given directory, or ./report if there are several'
  )
  parser.add_argument('--title', help='heading of the page')
  parser.add_argument('--markdown', action='store_true', help='print the table as Markdown')
  prepare_streams()
  try:
    args = parser.parse_args(arguments)
    sweep = report.read_any(args.folders, skip_unreadable=True)
    print(report.comparison_table(sweep, 'markdown' if args.markdown else 'text'))
    written = report.write_report(args.folders, args.reference, args.title, args.output, sweep)
    print('\n' + '\n'.join(f'{name}: {path}' for name, path in written.items()))
    return 0
  except errors.UserError as error:
    print(f'error: {error}', file=sys.stderr)
    return error.exit_status
  except KeyboardInterrupt:
    return 128 + signal.SIGINT


if __name__ == '__main__':
  sys.exit(main())
