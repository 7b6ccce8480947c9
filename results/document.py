"""Fills the numbers into the text."""

import pathlib
import re
import shlex

from results import SUMMARIES, pictures, summaries, values
from vrl_jax.errors import UserError

_OPEN = re.compile(r'\{\{(.+?)\}\}')
_NOTE = '<!-- Written by `make results` from results/template.md and results/summaries/: change those. -->\n\n'


def fill(template: str, folder: pathlib.Path = SUMMARIES) -> str:
  """RESULTS.md: the template with every `{{…}}` replaced.

  Args:
    template: the text.
    folder: where the summaries lie.
  """
  read = {}

  def value(line_number, expression):
    try:
      function, name, *arguments = shlex.split(expression)
      if name not in read:
        read[name] = summaries.read(folder / f'{name}.jsonl')
      return values.call(read[name], function, arguments)
    except ValueError:
      raise UserError(f'the text, line {line_number}: {{{{{expression}}}}} is no function with a summary') from None
    except UserError as error:
      raise UserError(f'the text, line {line_number}: {error}') from error

  lines = template.split('\n')
  filled = [_OPEN.sub(lambda m, n=number: value(n, m[1]), line) for number, line in enumerate(lines, 1)]
  return _NOTE + '\n'.join(filled)


def figures(template: str) -> list[tuple[str, str]]:
  """The (summary, figure) pairs that the text shows."""
  words = [shlex.split(expression) for expression in _OPEN.findall(template)]
  return [(word[1], word[2]) for word in words if word[0] == 'figure']


def draw_figures(template: str, target: pathlib.Path, folder: pathlib.Path = SUMMARIES) -> list[pathlib.Path]:
  """Draws all figures of the text, and removes what is no longer shown."""
  target.mkdir(exist_ok=True)
  shown = figures(template)
  drawn = [pictures.draw(summaries.read(folder / f'{name}.jsonl'), figure, target) for name, figure in shown]
  for path in set(target.glob('*.png')) - set(drawn):
    path.unlink()
  return drawn
