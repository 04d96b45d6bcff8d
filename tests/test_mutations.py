"""The deliberate errors of mutations.py can still be made."""

from pathlib import Path

import pytest
from mutations import MUTANTS

import rlpyt

PACKAGE = Path(rlpyt.__file__).parent
TESTS = Path(__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.says}")
def test_the_text_that_an_error_replaces_occurs_once_and_its_tests_are_there(mutant):
    assert (PACKAGE / mutant.file).read_text().count(mutant.old) == 1
    assert all((TESTS / path.split("::")[0]).exists() for path in mutant.tests.split())
