"""Predict which unit runs each op of a program, and why not the ANE; no Mac is needed. See METHOD.md.

sites.py      an op as rules see it: type, tensors, constants
programs.py   ... read from a package's protobuf        cases.py             ... built from the calibration cases
defaults.py   sizes at the default shape                shapes.py            shapes of an op's outputs
legality.py   data/rules.json applied to an op          chips.py             data/chips.json
laws.py       how an op's estimate grows                costs.py             in ms, with data/m4/rates.json
path.py       the planner's shortest path               gates.py             whole-program limits
predict.py    all steps put together                    advice.py            changes that save time
work.py       amounts of work for each unit             formulas.py          ... times rates: milliseconds
latency.py    an estimate with anchor and band          measured.py          rates of this machine
withheld.py   forms that get no estimate                choice.py            Neural Engine or GPU
agree.py      predicted against planned                 tests/proof/placement/  rates fitted, and how good all this is
"""
