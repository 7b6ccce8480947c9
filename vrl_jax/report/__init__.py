"""Tables, figures and one self-contained HTML page from run and sweep directories.

`python -m vrl_jax.report RUN_OR_SWEEP… [--reference CSV…] [--output DIR]`
"""

from vrl_jax.report import backend as backend  # before anything that imports matplotlib
from vrl_jax.report.figures import comparison_figure as comparison_figure
from vrl_jax.report.figures import plot as plot
from vrl_jax.report.page import write_report as write_report
from vrl_jax.report.records import Run as Run
from vrl_jax.report.records import Sweep as Sweep
from vrl_jax.report.reference import read_reference as read_reference
from vrl_jax.report.runs import read_any as read_any
from vrl_jax.report.runs import read_run as read_run
from vrl_jax.report.runs import read_sweep as read_sweep
from vrl_jax.report.tables import comparison_table as comparison_table
