"""Run modules of CPython's own test suite and write what became of each test.

    cpython.py OUTCOMES MODULE...

OUTCOMES becomes a JSON object: the name of each test and "ok", "skipped: why",
"failed: why" or "error: why". What becomes of a test counts as that of its
worst subtest. Resources that regrtest does not turn on by itself (the network,
much time, large files) stay off.
"""

import json
import sys
import unittest

from test import support


class Outcomes(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.by_test = {}

    def note(self, test, outcome):
        name = test.id()
        if not self.by_test.get(name, "ok").startswith(("failed", "error")):
            self.by_test[name] = outcome

    def why(self, err):
        return f"{err[0].__name__}: {err[1]}"[:300]

    def addSuccess(self, test):
        self.note(test, self.by_test.get(test.id(), "ok"))

    def addSkip(self, test, reason):
        self.note(test, f"skipped: {reason}"[:300])

    def addFailure(self, test, err):
        self.note(test, "failed: " + self.why(err))

    def addError(self, test, err):
        self.note(test, "error: " + self.why(err))

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note(test, "failed: " + self.why(err))

    def addExpectedFailure(self, test, err):
        self.note(test, "ok")

    def addUnexpectedSuccess(self, test):
        self.note(test, "failed: unexpected success")


def main():
    where, *modules = sys.argv[1:]
    support.use_resources = []
    support.verbose = False
    outcomes = Outcomes()
    for module in modules:
        try:
            suite = unittest.defaultTestLoader.loadTestsFromName("test." + module)
        except unittest.SkipTest as reason:
            outcomes.by_test[module] = f"skipped: {reason}"
            continue
        suite.run(outcomes)
    with open(where, "w", encoding="utf-8") as out:
        json.dump(outcomes.by_test, out, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
