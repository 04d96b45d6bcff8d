"""What setup.py, the documentation and the error messages say about extras is the same."""

import re
import runpy
from pathlib import Path

import pytest
from absent import make_absent

from rlpyt.utils import extras
from rlpyt.utils.extras import EXTRAS, clone_directory, extra_with, import_error, install_command, missing_modules

ROOT = Path(__file__).parents[2]
FOR_DEVELOPERS = {"test", "docs"}


@pytest.fixture
def settings(monkeypatch):
    """The arguments of setup() in setup.py."""
    setuptools, given = pytest.importorskip("setuptools"), {}
    monkeypatch.setattr(setuptools, "setup", lambda **kwargs: given.update(kwargs))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    return given


def package(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower()


def test_every_extra_is_one_that_something_needs(settings):
    assert set(settings["extras_require"]) - FOR_DEVELOPERS == set(EXTRAS) - {None}


def test_pages_list_the_extras_that_there_are(settings):
    there_are = set(settings["extras_require"])
    sentence = re.search(r"has the extras: (.*?);", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    assert set(re.findall(r"`(\w+)`", sentence)) == there_are
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/installing.md").read_text(), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == there_are


def test_everything_that_can_be_installed_has_a_tested_version(settings):
    pinned = {package(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    needed = [*settings["install_requires"], *(each for extra in settings["extras_require"].values() for each in extra)]
    assert {package(each) for each in needed} - pinned <= {"pillow"}  # Comes with others, in whichever version they need.


def test_type_checkers_find_the_hints_of_an_installed_package(settings):
    assert settings["package_data"] == {"rlpyt": ["py.typed"]} and (ROOT / "rlpyt" / "py.typed").is_file()


def test_what_to_install_is_said_in_one_way(monkeypatch):
    monkeypatch.chdir(ROOT)
    command = re.compile(r"pip install [^`\n]*\[[^`\n]*?\]\"?")
    files = [path for pattern in ("*.md", "*.py", "*.txt", "rlpyt/**/*.py", "docs/*.md", "examples/*") for path in ROOT.glob(pattern)]
    found = [(path, line) for path in files if path.is_file() for line in command.findall(path.read_text())]
    assert len(found) > 5
    for path, line in found:
        assert line == install_command(re.search(r"\[(.*?)\]", line)[1]), path


@pytest.mark.parametrize(
    "clone, video, nothing",
    [
        ("/a/clone", 'pip install -c /a/clone/constraints.txt -e "/a/clone[video]"', "pip install -c /a/clone/constraints.txt -e /a/clone"),
        (
            "/my clone",
            "pip install -c '/my clone/constraints.txt' -e '/my clone[video]'",
            "pip install -c '/my clone/constraints.txt' -e '/my clone'",
        ),
        (None, 'pip install -c constraints.txt -e ".[video]"', "pip install -c constraints.txt -e ."),
    ],
)
def test_away_from_the_clone_the_command_says_where_it_is(monkeypatch, tmp_path, clone, video, nothing):
    monkeypatch.setattr(extras, "clone_directory", lambda: clone and Path(clone))
    monkeypatch.chdir(tmp_path)
    assert (install_command("video"), install_command()) == (video, nothing)


def test_the_command_is_short_in_the_clone_and_complete_elsewhere(monkeypatch, tmp_path):
    assert clone_directory() == ROOT
    monkeypatch.chdir(ROOT)
    assert install_command("plot") == 'pip install -c constraints.txt -e ".[plot]"'
    monkeypatch.chdir(tmp_path)
    assert str(ROOT / "constraints.txt") in install_command("plot")
    tmp_path.rmdir()  # A directory that is gone is not the clone.
    assert str(ROOT / "constraints.txt") in install_command("plot")


def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch):
    monkeypatch.chdir(ROOT)
    make_absent(monkeypatch, "PIL", "pygame")
    assert missing_modules("video")[0] == "PIL" and "pygame" in missing_modules("video")
    error = import_error("Filming needs", "video", ImportError("No module named 'PIL'"))
    assert re.fullmatch(
        r"Filming needs packages that are not installed \(PIL, .*pygame\)\. "
        r'To install them: pip install -c constraints\.txt -e "\.\[video\]"',
        str(error),
    )
    monkeypatch.setattr(extras, "clone_directory", lambda: None)  # Installed without -e.
    assert "In the clone of rlpyt: pip install" in str(import_error("Filming needs", "video", ImportError()))


def test_what_is_installed_and_broken_is_not_proposed_to_be_installed():
    error = import_error("Logging needs", None, ImportError("libfoo.so: cannot open shared object file"))
    assert str(error) == "Logging needs packages that are installed but cannot be imported: libfoo.so: cannot open shared object file"


def test_what_is_installed_and_broken_is_to_be_reinstalled_with_its_extra(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(EXTRAS, "atari", ("PIL", "numpy"))  # Modules that are installed, one by a package of another name.
    error = import_error("Atari needs", "atari", ImportError("libfoo.so"))
    assert str(error).endswith('. To reinstall them: pip uninstall -y pillow numpy && pip install -c constraints.txt -e ".[atari]"')


def test_modules_are_found_in_the_extra_that_brings_them():
    assert [extra_with(module) for module in ("mujoco", "Box2D", "pygame", "tensorboard", None)] == ["mujoco", "box2d", "video", None, None]
