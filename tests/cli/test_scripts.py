"""Scripts whose options are the arguments of their functions."""

from collections.abc import Sequence

import pytest

from rlpyt.cli.scripts import COMMON, command_line
from rlpyt.runners.digests import is_digested, set_digest


def build(game: str = "pong", cuda_idxs: Sequence[int] = (), rate: float | None = None, reset: bool = False, seed: int | None = None):
    """Return the runner.

    Args:
        game: Atari game,
            100% of it.
        cuda_idxs, rate: two of them.
    """


def train(run_ID: int = 0, game: str = "breakout", smoke: bool = False, **settings):
    """Train."""
    return dict(settings, run_ID=run_ID, game=game, smoke=smoke)


def called(monkeypatch, words, *functions, **choices):
    monkeypatch.setattr("sys.argv", ["mine.py", *words.split()])
    return command_line(*(functions[:1] or (train,)), "What it does.", *(functions[1:] or (() if functions else (build,))), **choices)


def test_options_are_the_arguments_of_the_main_function_and_of_those_it_hands_settings_to(monkeypatch):
    settings = dict(cuda_idxs=(), rate=None, reset=False, seed=None)
    assert called(monkeypatch, "") == dict(settings, run_ID=0, game="breakout", smoke=False)
    words = "--run_ID 3 --game qbert --cuda_idxs 0 1 --rate 1e-3 --reset true --seed 5 --smoke"
    settings = dict(cuda_idxs=[0, 1], rate=1e-3, reset=True, seed=5)
    assert called(monkeypatch, words) == dict(settings, run_ID=3, game="qbert", smoke=True)
    assert called(monkeypatch, "--reset False")["reset"] is False and called(monkeypatch, "--reset")["reset"] is True


def test_every_script_can_record_digests(monkeypatch):
    try:
        assert "digest" not in called(monkeypatch, "") and not is_digested()
        assert "digest" not in called(monkeypatch, "--digest") and is_digested()
    finally:
        set_digest(False)
    assert called(monkeypatch, "--digest 3", lambda digest=0: digest) == 3 and not is_digested(), "unless its function has the name"


def test_help_has_the_description_and_what_docstrings_say(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        called(monkeypatch, "--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "What it does." in text and "--game GAME Atari game, 100% of it." in text
    assert "--rate RATE two of them." in text and COMMON["smoke"] in text and "--traceback" in text


def test_arguments_without_a_default_have_places_and_flags_beside_them_take_no_value(monkeypatch):
    def launch(name, n: int, smoke: bool = False, other=None, several=(1,)):
        return name, n, smoke, other, several

    assert called(monkeypatch, "--smoke a 3", launch) == ("a", 3, True, None, (1,))
    assert called(monkeypatch, "a 3 --other 4 --several 5 6", launch) == ("a", 3, False, 4, [5, 6]), "without annotations"
    assert called(monkeypatch, "a 3 --several 5 6 --several 7", launch)[-1] == [5, 6, 7]


@pytest.mark.parametrize(
    "words, message",
    [
        ("--reset no", "must be true or false, not 'no'"),
        ("--seed x", "invalid int value: 'x'"),
        ("--game x", "choose from"),
    ],
)
def test_what_an_option_cannot_be_is_refused(words, message, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        called(monkeypatch, words, game=dict(pong=1))
    assert message in capsys.readouterr().err
