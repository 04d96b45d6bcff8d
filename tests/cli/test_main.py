"""The command line as a whole."""

import subprocess
import sys
from pathlib import Path

import pytest
from tiers import processes

from rlpyt import cli
from rlpyt.cli import COMMANDS, main_of_script
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.misc import iterate_mb_idxs

HEAVY = {"torch", "numpy", "matplotlib", "gymnasium", "numba", "cv2", "psutil"}


def run(*args, **kwargs):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=120, **kwargs)


@processes
@pytest.mark.timeout(150)
def test_help_lists_the_commands_and_needs_nothing_heavy():
    code = "import sys, rlpyt.cli\ntry: rlpyt.cli.main(['--help'])\nfinally: print('modules', *sys.modules)"
    out = run("-c", code)
    text, _, modules = out.stdout.partition("modules ")
    assert out.returncode == 0, out.stderr
    assert all(f"\n    {command} " in text for command in COMMANDS)
    assert not HEAVY & set(modules.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_an_example(command, rlpyt):
    code, out, _ = rlpyt(command, "--help")
    assert code == 0 and f"  rlpyt {command}" in out.partition("example")[2]
    assert max(map(len, out.splitlines())) <= 110


@processes
@pytest.mark.timeout(150)
def test_it_also_runs_as_a_module(tmp_path):
    out = run("-m", "rlpyt", "plot", str(tmp_path))
    assert out.returncode == 2 and out.stdout == ""
    assert out.stderr.startswith(f"rlpyt plot: There is no run in {tmp_path}: no directory with ")


def test_a_misspelt_command_is_refused_with_those_there_are(rlpyt):
    code, _, err = rlpyt("polt", "somewhere")
    assert code == 2 and all(command in err for command in COMMANDS) and "Did you mean 'plot'?" in err


def test_without_a_command_the_help_is_shown(rlpyt):
    code, out, err = rlpyt()
    assert (code, out) == (2, "") and err == rlpyt("--help")[1]


def test_an_agent_that_takes_other_actions_is_answered_with_other_configurations(rlpyt, tmp_path):
    code, _, err = rlpyt("train", "cartpole", "ppo", "--log_dir", tmp_path / "log", "--set", "env.id=Pendulum-v1")
    assert code == 2 and "environment's action space is" in err and "pendulum sac for continuous ones." in err
    assert not (tmp_path / "log").exists()


@processes
@pytest.mark.timeout(150)
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    for i in range(200):
        (tmp_path / f"run_{i}").mkdir()
        (tmp_path / f"run_{i}" / "debug.log").touch()
    process = subprocess.Popen([sys.executable, "-m", "rlpyt", "status", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(120) == 0
    process.stderr.close()


def sampler_with_a_misspelt_setting():
    SerialSampler(EnvCls=dict, batch_t=1)


def environment_with_an_error():
    raise ValueError("not one of ours")


def error_of_python_in_our_code():
    iterate_mb_idxs(10, "a")


def script(monkeypatch, function, *options):
    """Return exit code and stderr of a script with that main function."""
    monkeypatch.setattr(sys, "argv", ["/somewhere/mine.py", *options])
    with pytest.raises(SystemExit) as end:
        main_of_script(function)
    return end.value.code


@pytest.mark.parametrize(
    "function, sentence",
    [
        (sampler_with_a_misspelt_setting, "mine.py: SerialSampler has no setting 'batch_t'. Did you mean 'batch_T' or 'batch_B'?\n"),
        (lambda: open("/nowhere/at/all"), "mine.py: [Errno 2] No such file or directory: '/nowhere/at/all'\n"),
    ],
)
def test_an_expected_error_ends_a_script_with_a_sentence(function, sentence, monkeypatch, capsys):
    assert script(monkeypatch, function) == 2
    assert capsys.readouterr().err == sentence


def test_a_script_shows_the_traceback_of_an_expected_error_if_asked(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mine.py", "--traceback", "--game", "pong"])
    with pytest.raises(TypeError, match="has no setting 'batch_t'"):
        main_of_script(sampler_with_a_misspelt_setting)
    assert sys.argv == ["mine.py", "--game", "pong"]


@pytest.mark.parametrize("function", [environment_with_an_error, error_of_python_in_our_code])
def test_a_script_shows_the_traceback_of_errors_that_are_not_expected(function):
    with pytest.raises((ValueError, TypeError)):
        main_of_script(function)


def test_a_script_hands_on_what_its_main_function_returns_and_how_it_ends(monkeypatch):
    assert main_of_script(lambda: "run_0") == "run_0"
    assert script(monkeypatch, lambda: sys.exit(3)) == 3

    def interrupted():
        raise KeyboardInterrupt

    assert script(monkeypatch, interrupted) == 130


def test_a_command_shows_the_traceback_of_an_error_if_asked(rlpyt, tmp_path):
    code, _, err = rlpyt("plot", tmp_path)
    assert code == 2 and err.startswith("rlpyt plot: There is no run in") and err.count("\n") == 1
    with pytest.raises(FileNotFoundError, match="There is no run in"):
        rlpyt("plot", tmp_path, "--traceback")


def test_a_misspelt_setting_of_a_command_is_a_sentence(rlpyt, tmp_path):
    code, _, err = rlpyt("train", "cartpole", "ppo", "--log_dir", tmp_path, "--set", "algo.learning_rat=1")
    assert code == 2 and err.startswith("rlpyt train: ") and "Did you mean 'learning_rate'?" in err and err.count("\n") == 1


def test_a_misspelt_option_of_a_command_is_answered_with_the_nearest(rlpyt, tmp_path):
    code, _, err = rlpyt("eval", tmp_path, "--episode=3")
    assert code == 2 and err.endswith("unrecognized arguments: --episode=3. Did you mean '--episodes'?\n")
    assert rlpyt("eval", tmp_path, "--qqq")[2].endswith("rlpyt eval --help lists all options.\n")


def options_with_several_values():
    """Command and flag of all options that take any number of values."""
    parsers = cli.make_parser()._subparsers._group_actions[0].choices
    actions = [(command, action) for command in COMMANDS for action in parsers[command]._actions]
    return [(command, action.option_strings[-1]) for command, action in actions if action.option_strings and action.nargs == "+"]


@pytest.mark.parametrize("command, flag", options_with_several_values())
def test_a_repeated_option_takes_all_its_values_and_they_replace_the_default(command, flag):
    parser = cli.make_parser()._subparsers._group_actions[0].choices[command]
    (option,) = (action for action in parser._actions if flag in action.option_strings)
    places = [action.dest for action in parser._actions if not action.option_strings and action.nargs != "?"]
    for _ in range(2):
        args = parser.parse_args([*places, flag, "a=1", "b=2", flag, "c=3"])
        assert getattr(args, option.dest) == ["a=1", "b=2", "c=3"]
    assert getattr(parser.parse_args(places), option.dest) == option.default


def test_repeated_settings_all_count(rlpyt, tmp_path):
    changes = ["--set", "algo.learning_rate=0.5", "--set", "algo.gamma_typo=1"]
    code, _, err = rlpyt("train", "cartpole", "ppo", "--log_dir", tmp_path, *changes, "--set", "runner.n_steps=64")
    assert code == 2 and "'gamma_typo'" in err


def test_options_that_a_launcher_determines_are_refused_beside_its_arguments(rlpyt, tmp_path):
    code, _, err = rlpyt("train", "0slt_1cpu_0hto_1ass", tmp_path, "0", "cartpole:ppo", "--seed", "0", "--cuda_idx", "1")
    assert code == 2 and "--seed, --cuda_idx cannot be given with slot_affinity_code, log_dir, run_ID and config_key" in err


def test_nothing_beside_the_script_of_searches_could_hide_a_module():
    """Python looks for modules beside a script first."""
    assert {path.name for path in Path(cli.__file__).with_name("launched").glob("*.py")} == {"__init__.py", "train.py"}
