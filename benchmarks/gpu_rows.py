"""Rows of a benchmark on a machine that is lent for minutes: each is on disk as soon as it is measured, one that fails
is a row with its error, and a device that a fault has made useless costs that row alone."""
import json
import os
import traceback


class Record:
    """Facts and tables of rows, in a JSON file if there is a path. resume: go on with what is there."""

    def __init__(self, path, facts, resume=False):
        self.path, self.facts = path, facts
        if resume and path and os.path.exists(path):
            with open(path) as file:
                self.facts = json.load(file)

    def rows(self, table):
        return self.facts.setdefault(table, [])

    def has(self, table, key):
        return any(key.items() <= row.items() for row in self.rows(table))

    def add(self, table, row):
        self.rows(table).append(row)
        if self.path:  # in one step: whoever stops this, at any time, has whole rows
            with open(f"{self.path}.part", "w") as file:
                json.dump(self.facts, file, indent=1)
            os.replace(f"{self.path}.part", self.path)

    def failures(self):
        return [row for table in self.facts.values() if isinstance(table, list) for row in table if "error" in row]


def measure_all(jobs, record, left, device_works, show):
    """Run (table, key, function giving the rest of its row), in order, but for those that the record has.

    left(): whether there is time for another; device_works(): asked after an error, since after a fault a process can
    do nothing more on its device; show(table, row). False where another process has to go on.
    """
    for table, key, function in jobs:
        if record.has(table, key):
            continue
        if not left():
            break
        try:
            row = key | function()
        except Exception as error:
            row = key | {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        record.add(table, row)
        show(table, row)
        if "error" in row and not device_works():
            return False
    return True
