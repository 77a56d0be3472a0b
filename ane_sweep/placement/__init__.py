"""Where a program would run, and why not on the ANE: predicted without a Mac. See METHOD.md.

sites.py      what is known of an op: type, tensors, constants
programs.py   ... read from a package's protobuf        cases.py             ... built from the calibration cases
defaults.py   sizes at the default shape                shapes.py            what an op makes of what it reads
legality.py   data/rules.json applied to it             chips.py             data/chips.json
laws.py       how an op's estimate grows                costs.py             in ms, with data/m4/rates.json
path.py       the planner's shortest path               gates.py             whole-program limits
predict.py    all of it put together                    advice.py            what to change
work.py       what a program asks of each unit          formulas.py          ... times rates: milliseconds
latency.py    an estimate with anchor and band          measured.py          rates of this machine
withheld.py   forms that get no estimate                choice.py            Neural Engine or GPU
agree.py      predicted against planned                 tests/proof/placement/  rates fitted, and how good all this is
"""
