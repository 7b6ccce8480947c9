"""TFDS builders of our own: `import vrl_jax.data.builders` registers them.

After that `tfds.builder('dbpedia14')`, `tfds.data_source('tiny_imagenet')` and so on find them. They prepare
`file_format='array_record'` without TensorFlow.
"""

from vrl_jax.data.builders.dbpedia14 import Dbpedia14 as Dbpedia14
from vrl_jax.data.builders.tiny_imagenet import TinyImagenet as TinyImagenet
