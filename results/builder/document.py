"""Fills the numbers into the template and draws its figures."""

import pathlib
import re
import shlex

from results import SUMMARIES
from results.builder import figures, summaries, values
from vrl_jax.errors import UserError

_EXPRESSION = re.compile(r'\{\{(.+?)\}\}')
_NOTE = '<!-- Written by `make results` from results/template.md and results/data/: edit those. -->\n\n'


def fill(template: str, folder: pathlib.Path = SUMMARIES) -> str:
  """The text of RESULTS.md: the template with every `{{…}}` replaced.

  Args:
    template: the text of the template.
    folder: the directory of the summaries.

  Raises:
    UserError: an expression is invalid; the message has its line.
  """
  read: dict[str, summaries.Summary] = {}

  def value(line_number, expression):
    try:
      function, name, *arguments = shlex.split(expression)
      if name not in read:
        read[name] = summaries.read(folder / f'{name}.jsonl')
      return values.call(read[name], function, arguments)
    except ValueError:
      raise UserError(f'template, line {line_number}: {{{{{expression}}}}} must be a function and a summary') from None
    except UserError as error:
      raise UserError(f'template, line {line_number}: {error}') from error

  def filled(line_number, line):
    return _EXPRESSION.sub(lambda match: value(line_number, match[1]), line)

  return _NOTE + '\n'.join(filled(number, line) for number, line in enumerate(template.split('\n'), 1))


def figure_names(template: str) -> list[tuple[str, str]]:
  """The (summary, figure) pairs that the template shows."""
  words = [shlex.split(expression) for expression in _EXPRESSION.findall(template)]
  return [(word[1], word[2]) for word in words if word[0] == 'figure']


def draw_figures(template: str, target: pathlib.Path, folder: pathlib.Path = SUMMARIES) -> list[pathlib.Path]:
  """Draws all figures of the template, and removes files that it no longer shows."""
  target.mkdir(exist_ok=True)
  shown = figure_names(template)
  drawn = [figures.draw(summaries.read(folder / f'{name}.jsonl'), figure, target) for name, figure in shown]
  for path in set(target.glob('*.png')) - set(drawn):
    path.unlink()
  return drawn
