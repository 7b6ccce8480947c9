"""The project's files agree with each other: dependencies, Makefile, CI, citation, changelog, public names."""

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from support.public_api import PUBLIC

import vrl_jax

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
FORMS = sorted((ROOT / '.github' / 'ISSUE_TEMPLATE').glob('*.yml'))
FOR_USERS = [
  ROOT / 'README.md',
  *(path for name in ('docs', 'notebooks', 'examples') for path in (ROOT / name).rglob('*.*')),
]
FOR_USERS = [path for path in FOR_USERS if path.suffix in ('.md', '.py')]


def _yaml(path):
  return yaml.safe_load((ROOT / path).read_text())


def _recipe(target):
  """The commands of a Makefile target."""
  command = ['make', '--dry-run', *target.split(), 'VENV=/nowhere']
  return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


# The Makefile and the dependencies.


def test_requirements_equal_the_dependencies_with_the_extra_train():
  lines = (ROOT / 'requirements.txt').read_text().splitlines()
  listed = [line for line in lines if not line.startswith('#')]
  assert listed == sorted([*PROJECT['dependencies'], *PROJECT['optional-dependencies']['train']])


def test_import_loads_no_tensorflow_and_starts_no_backend():
  code = (
    'import sys, vrl_jax, vrl_jax.training.loop, vrl_jax.engine.devices as d; assert not d.backend_started(); '
    'assert not {"tensorflow", "tensorflow_datasets", "torch"} & set(sys.modules)'
  )
  subprocess.run([sys.executable, '-c', code], check=True, cwd=ROOT)


def test_pmap_is_called_in_one_file():
  calls = [path.name for path in (ROOT / 'vrl_jax').rglob('*.py') if 'jax.pmap(' in path.read_text()]
  assert calls == ['placement.py']


def test_makefile_finds_an_inactive_pyenv_python(tmp_path):
  python = tmp_path / '.pyenv' / 'versions' / '3.99.1' / 'bin' / 'python3.99'
  python.parent.mkdir(parents=True)
  python.touch()
  command = ['make', '--dry-run', 'test', 'VENV=/nowhere', f'HOME={tmp_path}', 'PYTHON=python3.99']
  shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
  assert f'{python} -m venv /nowhere' in shown


@pytest.mark.parametrize(
  'target',
  [
    'demo',
    'demo-picture',
    'multihost-demo',
    'test',
    'test-all',
    'test-oldest',
    'lint',
    'bench',
    'results',
    'notebooks',
    'docs',
    'dist',
  ],
)
def test_every_target_installs_extras_that_exist(target):
  (extras,) = re.findall(r"--editable '\.(.*)'", _recipe(target))
  assert extras == '' or extras[1:-1] in PROJECT['optional-dependencies'], extras


# The files of a public project.


def test_workflow_calls_existing_make_targets():
  jobs = _yaml('.github/workflows/ci.yml')['jobs']
  runs = [step['run'] for job in jobs.values() for step in job['steps'] if 'run' in step]
  assert [command.split()[:2] for command in runs] == [
    ['make', 'lint'],
    ['make', 'test'],
    ['make', 'test-oldest'],
    ['make', 'docs'],
  ]
  assert all(_recipe(command.split()[1]) for command in runs)
  pythons = jobs['test']['strategy']['matrix']['python']
  assert pythons == ['3.11', '3.13'] and PROJECT['requires-python'] == f'>={pythons[0]}'


def test_pre_commit_runs_the_tools_of_make_lint():
  (repo,) = _yaml('.pre-commit-config.yaml')['repos']
  assert repo['repo'] == 'local' and {hook['language'] for hook in repo['hooks']} == {'system'}
  tools = {' '.join(word for word in hook['entry'].split() if word[0] != '-') for hook in repo['hooks']}
  lint = re.findall(r'^/nowhere/bin/(?!python)([^-.\n]+)', _recipe('lint'), re.MULTILINE)
  assert tools == {f'.venv/bin/{tool.strip()}' for tool in lint} and len(tools) == 3


def test_citation_agrees_with_pyproject():
  citation = _yaml('CITATION.cff')
  assert {'cff-version', 'message', 'title', 'authors'} <= set(citation)  # which the format requires
  assert (citation['version'], citation['license']) == (vrl_jax.__version__, PROJECT['license'])
  paper = citation['preferred-citation']
  authors = ', '.join(f'{author["given-names"]} {author["family-names"]}' for author in paper['authors'])
  for page in ('docs/algorithm.md', 'README.md'):
    assert paper['title'] in (text := ' '.join((ROOT / page).read_text().split())) and paper['url'] in text
  assert authors in ' '.join((ROOT / 'docs/algorithm.md').read_text().split())


def test_changelog_starts_with_the_current_version():
  lines = (ROOT / 'CHANGELOG.md').read_text().splitlines()
  versions = [line for line in lines if line.startswith('## ')]
  assert re.fullmatch(rf'## \[{re.escape(vrl_jax.__version__)}\] - (Unreleased|\d{{4}}-\d\d-\d\d)', versions[0])
  kinds = {line.removeprefix('### ') for line in lines if line.startswith('### ')}
  assert kinds and kinds <= {'Added', 'Changed', 'Deprecated', 'Removed', 'Fixed', 'Security'}


@pytest.mark.parametrize('form', FORMS, ids=lambda path: path.stem)
def test_issue_form_is_valid(form):
  content = _yaml(form)
  assert content['name'] and content['description']
  fields = content['body']
  assert {field['type'] for field in fields} <= {'textarea', 'input', 'dropdown', 'checkboxes', 'markdown'}
  assert all(field['attributes']['label'] for field in fields)
  assert len({field['id'] for field in fields}) == len(fields)


def test_issue_forms_for_bugs_and_features():
  assert [form.stem for form in FORMS] == ['bug_report', 'feature_request']


def test_contributing_names_existing_targets_and_files():
  text = (ROOT / 'CONTRIBUTING.md').read_text()
  targets = set(re.findall(r'\bmake ([a-z-]+)', text))
  assert {'demo', 'test', 'test-all', 'lint'} <= targets and all(_recipe(target) for target in targets)
  paths = re.findall(r'[`(]((?:[\w-]+/)+[\w.]*|\w+\.(?:md|toml|cff))[`)]', text)
  assert len(paths) > 8 and {path for path in paths if not (ROOT / path).exists()} <= {'dist/'}


# The public names.

_COMMAND = r"(?:-m |'-m', ')vrl_jax\.[\w.]+"


@pytest.mark.parametrize('path', FOR_USERS, ids=lambda path: path.name)
def test_texts_for_users_use_only_public_names(path):
  text = re.sub(_COMMAND, '', path.read_text())
  names = set(re.findall(r'\bvrl_jax\.(\w+)', text))
  names |= {name for line in re.findall(r'from vrl_jax import ([\w, ]+)', text) for name in re.split(r', *', line)}
  assert names - {*PUBLIC, 'tasks', '__file__'} == set()
  of_tasks = set(re.findall(r'\bvrl_jax\.tasks\.(\w+)', text))
  of_tasks |= {name for line in re.findall(r'from vrl_jax.tasks import ([\w, ]+)', text) for name in line.split(', ')}
  assert of_tasks <= set(vrl_jax.tasks.__all__)
