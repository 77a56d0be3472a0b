"""The axes `converter` and `torch_version`: versions of coremltools and torch, installed aside once for all cells."""

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


def test_another_torch_is_installed_with_what_it_needs_and_traces_alone():
    made = planned(*TINY, "torch_version=installed,2.7.0")
    installs = [task for task in made.tasks.values() if task.stage == "install"]
    assert [task.params for task in installs] == [
        {"package": "torch==2.7.0", "python": installs[0].params["python"], "requirements": True}
    ]
    assert installs[0].disk_bytes > 4e8, "a plan that forgets gigabytes fills a disk"
    plain, other, *_ = (stages(made, key) for key in made.chains.values())
    assert "install" not in plain and other["convert"].inputs["torch"] == installs[0].key
    assert plain["reference"].key == other["reference"].key and plain["convert"].key != other["convert"].key


def test_both_packages_are_installed_for_one_conversion():
    made = planned("model=tiny-gpt2", "weights=random", "torch_version=2.7.0", "converter=8.3.0")
    (convert,) = (task for task in made.tasks.values() if task.stage == "convert")
    assert {made.tasks[convert.inputs[role]].params["package"] for role in ("converter", "torch")} == {
        "coremltools==8.3.0", "torch==2.7.0",
    }  # fmt: skip


def test_the_installed_torch_by_its_number_is_the_installed_one():
    version = host.version_of("torch").partition("+")[0]
    assert all(task.stage != "install" for task in planned(*TINY, f"torch_version={version}").tasks.values())


@pytest.mark.parametrize("word", ["2.10", "2.7", "1.13.1", "latest", "'2.7.0+cpu'", "'2.7.0 --pre'"])
def test_a_version_of_torch_is_whole(word):
    """2.10 is a number, and 2.1 to YAML."""
    with pytest.raises(
        ConfigError, match=r"torch_version=.*: expected torch_version=installed, or a whole version, as 2\.7\.0"
    ):
        planned(*TINY, f"torch_version={word}")
