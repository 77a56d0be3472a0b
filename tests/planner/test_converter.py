"""The axis `converter`: versions of coremltools, installed aside once for all cells."""

import pytest

from ane_sweep.errors import ConfigError
from ane_sweep.machine import host

from .test_plan import planned

TINY = ("-m", "model=tiny-gpt2,tiny-bert", "weights=random")


def stages(made, key):
    return {task.stage: task for task in (made.tasks[one] for one in key)}


def test_a_version_is_installed_once_and_only_what_is_converted_differs():
    made = planned(*TINY, "converter=installed,8.3.0")
    assert not made.refused
    installs = [task for task in made.tasks.values() if task.stage == "install"]
    assert [task.params["package"] for task in installs] == ["coremltools==8.3.0"]
    plain, other, *_ = (stages(made, key) for key in made.chains.values())
    assert "install" not in plain and other["convert"].inputs["converter"] == installs[0].key
    assert plain["convert"].params == other["convert"].params and plain["convert"].key != other["convert"].key
    assert plain["reference"].key == other["reference"].key
    assert installs[0].label == "install tiny-gpt2 converter=8.3.0"


def test_the_installed_version_by_its_number_is_the_installed_one():
    made = planned(*TINY, f"converter=installed,{host.version_of('coremltools')}")
    assert len({task.key for task in made.tasks.values() if task.stage == "convert"}) == 2
    assert all(task.stage != "install" for task in made.tasks.values())


@pytest.mark.parametrize("word", ["8.0", "8.3.0", "9.0b1", "9.1.dev1", "10.2"])
def test_a_version_is_a_version_of_pypi(word):
    assert not planned(*TINY, f"converter={word}").refused


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (
            "7.2",
            "converter=7.2: expected converter=installed, or a version from 8.0 on, as 8.3.0; older ones need another protobuf",
        ),
        ("latest", "converter=latest: expected converter=installed, or a version"),
        ("8.x", "converter=8.x: expected"),
        ("'8.3.0 --pre'", "expected converter=installed"),
        ("true", "converter="),
    ],
)
def test_a_wrong_word_is_told_with_the_choices(word, said):
    with pytest.raises(ConfigError, match="converter") as error:
        planned(*TINY, f"converter={word}")
    assert said in str(error.value)
