"""The life of Apple's services, of looks by `ps`; the machine's memory, of the text of vm_stat."""

import pytest

from ane_sweep.machine import memory, services
from ane_sweep.machine.services import Helper

# The lines that vm_stat prints, with the names and the form of Apple's vm_stat.c (system_cmds-1012); numbers are made up.
WHOLE = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               10000.
Pages active:                            300000.
Pages inactive:                          290000.
Pages speculative:                         1000.
Pages throttled:                              0.
Pages wired down:                        120000.
Pages purgeable:                           2000.
"Translation faults":                 500000000.
Pages copy-on-write:                   10000000.
Pages zero filled:                    300000000.
Pages reactivated:                     20000000.
Pages purged:                           3000000.
File-backed pages:                       200000.
Anonymous pages:                         391000.
Pages stored in compressor:              400000.
Pages occupied by compressor:            150000.
Decompressions:                        40000000.
Compressions:                          50000000.
Pageins:                                7000000.
Pageouts:                                200000.
Swapins:                                1000000.
Swapouts:                               1200000.
"""


def test_the_text_of_vm_stat_in_bytes():
    found = memory.parse(WHOLE)
    page = 16384
    assert found.levels == {"free": 10000 * page, "wired": 120000 * page, "compressor": 150000 * page}
    assert found.counts == {
        "paged_in": 7000000 * page, "paged_out": 200000 * page, "swapped_in": 1000000 * page, "swapped_out": 1200000 * page,
    }  # fmt: skip
    later = memory.parse(WHOLE.replace("  10000.", "   4000.").replace("1200000.", "1200064."))
    changed = memory.change(found, later)
    assert changed["free"] == -6000 * page and changed["swapped_out"] == 64 * page and changed["paged_in"] == 0


@pytest.mark.parametrize("text", ["", "vm_stat: failed", "Pages free: 12.", "page size of 4096 bytes\nPages odd: 1."])
def test_what_vm_stat_does_not_say_is_a_reason(text):
    with pytest.raises(ValueError, match="nothing that is known"):
        memory.parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:01.23", 1.23), ("90:00.50", 5400.5), ("12:34:56", 45296), ("1-02:03:04", 93784), ("0:01,5", 1.5), ("-", None)],
)
def test_the_times_of_ps(text, seconds):
    assert services.seconds(text) == seconds


def one(name: str, pid: int, cpu: str, mib: int = 1) -> Helper:
    return Helper(name, pid, mib << 20, cpu)


def test_who_stayed_started_ended_and_was_another_than_before():
    looks = [
        [one("aned", 1, "0:10.00", 5), one("ANECompilerService", 2, "0:01.00")],
        [one("aned", 1, "0:12.50", 9), one("coremlcompilerd", 4, "0:03.00")],
        [one("aned", 1, "0:13.00", 7), one("ANECompilerService", 3, "0:20.00")],
    ]
    found = {(life.name, life.pid): life for life in services.lives(looks)}
    assert {key: (life.life, life.cpu_s) for key, life in found.items()} == {
        ("aned", 1): ("stayed", 3.0), ("ANECompilerService", 2): ("ended", 0.0),
        ("ANECompilerService", 3): ("started", 20.0), ("coremlcompilerd", 4): ("came and went", 3.0),
    }  # fmt: skip
    assert found["aned", 1].resident_bytes == 9 << 20
    assert services.replaced(services.lives(looks)) == ["ANECompilerService"]
    assert services.lives([[], []]) == []


def test_a_pid_that_is_used_again_is_not_counted_as_negative_time():
    (life,) = services.lives([[one("aned", 1, "5:00.00")], [one("aned", 1, "0:02.00")]])
    assert life.cpu_s == 2.0
