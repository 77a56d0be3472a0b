"""What a Mac can tell about a running program beside its timings: power, system log, memory, heat.

Read by the stage `evidence` in a second pass, never while samples are timed, and judged by `ane_sweep.results.verdict`. Each
source either gives figures or says in one sentence why it has none; nothing here ever fails a cell. All of it is written
against documented output and third parties' reports: none of it has been run by us on a Mac (ane_sweep/docs/mac.md).
"""
