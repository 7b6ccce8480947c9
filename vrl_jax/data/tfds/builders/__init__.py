"""TFDS builders for data sets that TFDS does not have; importing this package registers them.

After that, `tfds.builder('dbpedia14')`, `tfds.data_source('tiny_imagenet')` and so on work. With
`file_format='array_record'` they need no TensorFlow.
"""

from vrl_jax.data.tfds.builders.dbpedia14 import Dbpedia14 as Dbpedia14
from vrl_jax.data.tfds.builders.tiny_imagenet import TinyImagenet as TinyImagenet
