"""What is imported when it is first used."""

import subprocess
import sys

import preloaded
import pytest
from tiers import processes

from rlpyt.utils.lazy import LazyModule, lazy_names

PACKAGES = ("rlpyt.episodes", "rlpyt.experiment", "rlpyt.samplers.episodic", "rlpyt.samplers.ray")


@processes
def test_a_module_is_imported_by_its_first_use():
    code = (
        "import sys; from rlpyt.utils.lazy import LazyModule; module = LazyModule('colorsys');"
        "assert 'colorsys' not in sys.modules; module.hsv_to_rgb; assert 'colorsys' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert LazyModule("colorsys").hsv_to_rgb(0, 0, 1) == (1, 1, 1)


@processes
@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_package_is_there_and_only_when_asked_for(package, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys, {package} as package; modules = {{module for module in sys.modules if module.startswith('rlpyt')}};"
        f"assert not any(m.startswith('{package}.') for m in modules), modules;"
        "assert set(package.__all__) <= set(dir(package)) and '__name__' in dir(package);"
        "values = [getattr(package, name) for name in package.__all__];"
        "assert all(vars(package)[name] is value for name, value in zip(package.__all__, values, strict=True)) and len(values) > 1"
    )
    preloaded.run(script, timeout=120).check_returncode()


def test_a_name_that_is_not_there_is_told_with_those_that_are():
    get, _, names = lazy_names("rlpyt.utils.lazy", {"colorsys": ["rgb_to_hsv", "hsv_to_rgb"]}, {"yiq": "Nobody needs yiq."})
    assert names == ["hsv_to_rgb", "rgb_to_hsv"]
    with pytest.raises(AttributeError, match="module 'rlpyt.utils.lazy' has no attribute 'rgb'; it has hsv_to_rgb, rgb_to_hsv."):
        get("rgb")
    with pytest.raises(ImportError, match="Nobody needs yiq."):
        get("yiq")
