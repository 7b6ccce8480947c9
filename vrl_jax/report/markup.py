"""HTML that is escaped by default: a plain string becomes text, and only `Markup` is taken as it is."""

import html
from collections.abc import Iterable, Mapping
from typing import Any

_VOID = frozenset({'col', 'img'})  # elements without an end tag


class Markup(str):
  """HTML that needs no escaping. Only for constants, for `element`, and for what is safe in its place by construction.

  >>> escape(Markup('<b>'))
  '<b>'
  """


def escape(value: object) -> Markup:
  """The value as HTML text: everything but `Markup` is escaped, an iterable is joined.

  >>> escape('<script>')
  '&lt;script&gt;'
  >>> escape([element('b', '1 < 2'), ' & more'])
  '<b>1 &lt; 2</b> &amp; more'
  """
  if isinstance(value, Markup):
    return value
  if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
    return Markup(''.join(map(escape, value)))
  return Markup(html.escape(str(value)))


def element(name: str, *children: object, **attributes: Any) -> Markup:
  """An element; its children and the values of its attributes are escaped.

  Args:
    name: the tag, a constant.
    *children: text, `Markup`, or iterables of them.
    **attributes: `class_` stands for `class`, `aria_label` for `aria-label`; True gives an attribute without a value,
      None and False none at all.

  Returns:
    The element.

  >>> element('td', '1 < 2', class_='best', title='"quoted"', hidden=False)
  '<td class="best" title="&quot;quoted&quot;">1 &lt; 2</td>'
  >>> element('details', element('summary', 'more'), open=True)
  '<details open><summary>more</summary></details>'
  """
  shown = ''
  for key, value in attributes.items():
    if value is not None and value is not False:
      key = key.rstrip('_').replace('_', '-')
      shown += f' {key}' if value is True else f' {key}="{html.escape(str(value))}"'
  return Markup(f'<{name}{shown}>' if name in _VOID else f'<{name}{shown}>{escape(children)}</{name}>')
