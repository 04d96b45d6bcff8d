"""Every Python block of the documentation runs, in smoke size, and what pages point to exists."""

import re
from pathlib import Path

import preloaded
import pytest
from pages import script
from tiers import examples, processes, thinned

from rlpyt.cli import COMMANDS, make_parser, module_of_command
from rlpyt.utils.settings import NAMES_ELSEWHERE

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("docs/**/*.md")] if "_build" not in path.parts)
WITH_CODE = [page for page in PAGES if script(page.read_text()).strip()]
COMMAND = re.compile(r"\bpython ((?:examples|tests)/[\w/.]+\.py)")


def name(page):
    return str(page.relative_to(ROOT))


def test_a_script_is_the_python_blocks_of_a_page_each_line_where_it_was():
    page = "text\n```python\na = 1\n\n```\nmore\n```sh\nls\n```\n````text\n```python\nno\n```\n````\n```python\nb = a\n```\n"
    assert script(page).splitlines() == ["", "", "a = 1", "", "", "", "", "", "", "", "", "", "", "", "", "b = a", ""]


def test_these_pages_have_code():
    assert {"README.md", "docs/custom_environment.md", "docs/custom_agent.md", "docs/custom_algorithm.md"} <= set(map(name, WITH_CODE))


@pytest.mark.timeout(280)
@examples
@processes
@pytest.mark.parametrize("page", thinned(WITH_CODE, quick=[ROOT / "README.md"]), ids=name)
def test_the_code_of_a_page_runs(page, tmp_path):
    out = preloaded.run(ROOT / "tests" / "pages.py", page, tmp_path, cwd=tmp_path, timeout=240, OMP_NUM_THREADS="1")
    assert out.returncode == 0, out.stderr[-3000:]
    n_runs = script(page.read_text()).count("runner.train()")
    assert n_runs == 0 or out.stdout.count("Training complete") >= n_runs


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_scripts_that_a_page_names_exist(page):
    for path in COMMAND.findall(page.read_text()):
        assert (ROOT / path).is_file(), f"{name(page)} names {path}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_a_page_links_to_exist(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{name(page)} links to {target}"


RLPYT = re.compile(r"^ {4,}(rlpyt [a-z].*?)(?:  +#.*)?$", re.MULTILINE)


def command_lines():
    for page in PAGES:
        yield from ((name(page), line) for line in RLPYT.findall(page.read_text()))
    for command in COMMANDS:
        module = module_of_command(command)
        yield from ((f"rlpyt {command} --help", line) for line in re.findall(r"^  (rlpyt .*)$", module.__doc__, re.MULTILINE))


@pytest.mark.parametrize("where, line", [pytest.param(*pair, id=" in ".join(reversed(pair))) for pair in command_lines()])
def test_command_lines_are_understood(where, line):
    args = make_parser().parse_args(line.split()[1:])
    assert args.command == line.split()[1], where


def test_there_are_command_lines():
    assert {"docs/launching.md", "rlpyt plot --help"} <= {where for where, _ in command_lines()}


# ---------------------------------------------------------------------------------------------------------------------
# Names of other frameworks
# ---------------------------------------------------------------------------------------------------------------------
COMING_FROM = (ROOT / "docs" / "coming_from.md").read_text()
SETTING = re.compile(r"`([A-Za-z_]+)(?:=[^`]*)?`")
TRANSLATED = [tuple(line.strip("|").split("|"))[:3] for line in COMING_FROM.splitlines() if line.startswith("| `") and line.count("|") == 5]


@pytest.mark.parametrize("row", TRANSLATED, ids=lambda row: row[2].strip())
def test_the_page_translates_names_as_error_messages_do(row):
    *elsewhere, here = row
    for setting in SETTING.findall(" ".join(elsewhere)):
        ours = NAMES_ELSEWHERE.get(setting)
        names = {setting} if ours is None else {setting, ours.name, ours.or_else and ours.or_else.name}
        assert names & set(re.findall(r"\w+", here)), setting


def test_the_page_has_the_names_that_error_messages_translate():
    variants = {"n_workers", "num_workers"}  # Of older versions, and of none.
    assert {setting for setting in NAMES_ELSEWHERE if not re.search(rf"\b{setting}\b", COMING_FROM)} == variants
