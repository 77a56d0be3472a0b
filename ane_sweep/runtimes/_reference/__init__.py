"""The room of the `reference` runtime: ML Programs executed op by op with torch on the CPU.

    site.py                  what an op's builder sees, the table of ops, and the two laws below as helpers
    plan.py                  program -> flat plan of closures; constants prepared once, dead values freed
    elementwise.py  linear.py  normalise.py  shapes.py  indexing.py     the ops, by kind

Two laws. First: an op computes with fp32 (or wider) accumulation and its result is rounded once, to its declared type.
Second: every value is contiguous and starts on a 64-byte boundary. Kernels choose their order of summation by layout
and alignment; under this law the same op on the same numbers gives the same bits, however the program was cut into
chunks.

To add an op: write a function under `@op("name")` in the file of its kind; it gets a Site and returns a Step.
"""
