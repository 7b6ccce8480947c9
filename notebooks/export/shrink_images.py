"""Reduces the pictures in notebooks to 128 colours, which makes them a third as large: `make notebooks`.

python notebooks/export/shrink_images.py NOTEBOOK…
"""

import base64
import io
import pathlib
import sys

import nbformat
from PIL import Image

_COLORS = 128


def shrink(png: bytes) -> bytes:
  """The PNG with a palette; one that has a palette already is returned as it is."""
  image = Image.open(io.BytesIO(png))
  if image.mode == 'P':
    return png
  target = io.BytesIO()
  image.convert('RGB').quantize(_COLORS, dither=Image.Dither.NONE).save(target, 'PNG', optimize=True)
  return target.getvalue()


def main(paths: list[str]) -> None:
  """Rewrites the notebooks."""
  for path in map(pathlib.Path, paths):
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
      for output in cell.get('outputs', ()):
        if 'image/png' in output.get('data', ()):
          png = shrink(base64.b64decode(output.data['image/png']))
          output.data['image/png'] = base64.b64encode(png).decode()
    nbformat.write(notebook, path)


if __name__ == '__main__':
  main(sys.argv[1:])
