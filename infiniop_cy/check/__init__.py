"""The command `infiniop-cy check`: is an operator right, where is it not, and what shows it. See docs/check.md.

From the bottom up: calls.py (what a candidate is asked), arena.py (the memory that it shares with the command),
candidates.py and presets.py (what can be checked), worker.py (the process that a candidate lives in), session.py (one
call and what it left behind), inputs.py and reference.py (what is tried, and what is right), tally.py and standards.py
(how wrong it is, and how wrong it may be), properties/ (what is promised), runner.py, report.py and cli.py.

Only the command imports this package: it needs the extra `check`.
"""
