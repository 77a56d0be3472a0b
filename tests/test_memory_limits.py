"""The memory that tasks may use is that of the control group around us, where there is one: a container, a CI job."""

import pytest

from ane_sweep import memory_limits

GIB = 1 << 30


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A function that lays out /proc and /sys/fs/cgroup as a system has them; {path: text}."""
    monkeypatch.setattr(memory_limits, "_HOST", tmp_path / "meminfo")
    monkeypatch.setattr(memory_limits, "_GROUP", tmp_path / "cgroup")
    monkeypatch.setattr(memory_limits, "_MOUNT", tmp_path / "mount")
    memory_limits.host_bytes.cache_clear()

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="ascii")

    yield write
    memory_limits.host_bytes.cache_clear()


def test_no_group(system):
    system(meminfo="MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert memory_limits.host_bytes() > GIB // 4  # this host's own
    assert memory_limits.free_bytes() == 2048 << 10


def test_version_2_takes_the_smallest_limit_above(system):
    """As systemd lays it out: the unit has none, its slice has one. Page cache (`file`) does not count as used."""
    system(
        **{
            "meminfo": "MemAvailable: 99999999 kB\n",
            "cgroup": "0::/ci.slice/job.service\n",
            "mount/ci.slice/memory.max": f"{GIB // 8}\n",
            "mount/ci.slice/memory.stat": f"anon {GIB // 32}\nfile {GIB}\n",
            "mount/ci.slice/job.service/memory.max": "max\n",
        }
    )
    assert memory_limits.host_bytes() == memory_limits.most_bytes() == GIB // 8
    assert memory_limits.free_bytes() == GIB // 8 - GIB // 32


def test_version_1_in_a_container_whose_mount_lacks_the_path(system):
    system(
        **{
            "meminfo": "MemAvailable: 99999999 kB\n",
            "cgroup": "9:name=systemd:/docker/a1\n5:cpu,cpuacct:/docker/a1\n4:memory:/docker/a1\n0::/\n",
            "mount/memory/memory.limit_in_bytes": f"{GIB // 8}\n",
            "mount/memory/memory.stat": f"rss 5\ntotal_rss {GIB // 4}\n",
        }
    )
    assert memory_limits.host_bytes() == GIB // 8
    assert memory_limits.free_bytes() == 0  # used beyond the limit: none, never less


def test_an_unlimited_group_changes_nothing(system):
    system(
        **{
            "meminfo": "MemAvailable: 2048 kB\n",
            "cgroup": "4:memory:/\n",
            "mount/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "mount/memory/memory.stat": "total_rss 5\n",
        }
    )
    assert memory_limits.host_bytes() < 1 << 62
    assert memory_limits.free_bytes() == 2048 << 10
