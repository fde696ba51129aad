"""Whether the Autobahn suite found what is known: `judge.py INDEX.json...`, one for each role."""

import collections
import json
import sys

# All of the suite's cases, release 25.10.1.
CASES = 517
# What is neither "OK" nor a failure, and why.
KNOWN = {
    # Text that is not UTF-8 is noticed at the end of a frame, not inside it.
    "6.4.3": "NON-STRICT",
    "6.4.4": "NON-STRICT",
    # The suite itself only informs about these: data behind a close frame, codes that nobody has defined.
    "7.1.6": "INFORMATIONAL",
    "7.13.1": "INFORMATIONAL",
    "7.13.2": "INFORMATIONAL",
}
# How connections are closed that are not closed well.
KNOWN_CLOSES = {
    # A close frame that is longer than such frames may be: yawc 0.5.0 sends it back before it is refused here.
    "7.3.6": "FAILED BY CLIENT",
    # Opcodes that do not exist: 1003, where the suite expects 1002.
    **{f"4.{group}.{number}": "WRONG CODE" for group in (1, 2) for number in range(1, 6)},
}


def judge(path):
    with open(path, encoding="utf-8") as file:
        (cases,) = json.load(file).values()
    wrong = [] if len(cases) == CASES else [f"{len(cases)} cases, not {CASES}"]
    for name, case in cases.items():
        behaviour = case["behavior"]
        if behaviour != "OK" and behaviour != KNOWN.get(name):
            wrong.append(f"case {name}: {behaviour}")
        close = case["behaviorClose"]
        if close not in ("OK", "INFORMATIONAL") and close != KNOWN_CLOSES.get(name):
            wrong.append(f"case {name}, how it was closed: {close}")
    counts = collections.Counter(case["behavior"] for case in cases.values())
    print(path, ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    for line in wrong:
        print("  FAILED:", line)
    return not wrong


if __name__ == "__main__":
    outcomes = [judge(path) for path in sys.argv[1:]]
    sys.exit(0 if outcomes and all(outcomes) else 1)
