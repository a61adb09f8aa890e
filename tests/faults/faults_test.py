"""Every k-th failure: each call of the system that the commands, a C host and a server make is made to fail, one at a time.

usage: faults_test.py LIBRARY PLAIT FIXTURES HOST [--large] [--workload NAME] [--seed N] [--update]

LIBRARY is inject.c, built; HOST is host.c. A finding is a line of found.txt: what is known to be wrong and why it is left. One that is
not there fails the test, and so does a line that is not found any more by a run that looks for it (--large). Sites are drawn by a seed,
which is the day's number: docs/dev/faults.md.
"""
import argparse
import collections
import datetime
import os
import random
import resource
import sys
import tempfile

import page as faults
import workloads

HERE = os.path.dirname(os.path.abspath(__file__))


def known_findings():
    out = {}
    with open(os.path.join(HERE, "found.txt")) as file:
        for line in file:
            line = line.strip()
            if line and not line.startswith("#"):
                key, _, why = line.partition("  ")
                out[key] = why.strip()
    return out


def processor_seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Run:
    def __init__(self, given):
        self.given = given
        self.draw = random.Random(given.seed)
        self.page = faults.Page(given.library)
        build = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(given.plait))))
        modules = {"plait": given.plait, "host": given.host}
        for folder in ("bindings/c", "bindings/server", "bindings"):
            place = os.path.join(build, folder)
            for name in os.listdir(place) if os.path.isdir(place) else ():
                if ".so" in name:
                    modules[name] = os.path.join(place, name)
        self.names = faults.Names(modules)
        self.found, self.cases = collections.OrderedDict(), 0

    def case(self, workload, fault):
        """One case. The fault's stack is what a finding is known by, whatever its number has become."""
        self.page.arm(fault)
        wrong = workload.check(self.page, fault)
        hit, stack, ending = self.page.layout.injected, self.page.layout.stack.decode(), self.page.layout.ending.decode()
        self.page.clear()
        self.cases += 1
        if not wrong or (not hit and fault.mode == faults.ONCE and "hangs" not in wrong):
            return hit
        inner = " < ".join(name for name in self.names.stack(stack) if name not in ("?", "libc.so.6", "libstdc++.so.6"))
        parts = inner.split(" < ")[:3]
        key = f"{workload.name} {fault.kind} {' < '.join(parts)}".replace("  ", " ")
        if key not in self.found:
            self.found[key] = f"{fault}: {wrong}"
            if self.given.verbose:
                print(f"  {key}\n    {fault}: {wrong}\n    {inner}\n    ended in {' < '.join(self.names.stack(ending, 12))}", flush=True)
        return hit

    def numbers(self, workload, kind, share):
        """The calls to fail: all of a class with few, and of the others one of each stack, of which a share is drawn."""
        self.page.count(kind, sites=kind == "alloc")
        workload.warm(self.page)
        count = self.page.calls(kind)
        chosen = self.page.sites() if kind == "alloc" else list(range(1, count + 1))
        self.page.clear()
        if self.given.large:
            return chosen
        return sorted(self.draw.sample(chosen, min(share, len(chosen))))

    def run(self, workload):
        begin, before = processor_seconds(), self.cases
        workload.prepare(self.page)
        for kind, share in workload.classes.items():
            for number in self.numbers(workload, kind, share):
                self.case(workload, faults.Fault(kind, number))
                if self.given.large and kind in workload.lasting and number % 7 == 1:
                    self.case(workload, faults.Fault(kind, number, faults.FROM_THEN_ON))
        workload.end()
        print(f"{workload.name}: {self.cases - before} cases, {processor_seconds() - begin:.1f} s of processor time", flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ("library", "plait", "fixtures", "host"):
        parser.add_argument(name)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--workload", action="append")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())
    parser.add_argument("--update", action="store_true", help="write found.txt anew, without its reasons")
    given = parser.parse_args()
    run = Run(given)
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder:
        for workload in workloads.all_of(given, folder):
            if not given.workload or workload.name in given.workload:
                run.run(workload)
    run.page.close()
    known = known_findings()
    if given.update:
        with open(os.path.join(HERE, "found.txt"), "a") as file:
            file.writelines(f"{key}  {what}\n" for key, what in run.found.items() if key not in known)
        return 0
    new = [key for key in run.found if key not in known]
    for key in new:
        print(f"NEW  {key}\n     {run.found[key]}")
    looked = {name for name in known if not given.workload or name.split(" ")[0] in given.workload}
    stale = [key for key in looked if key not in run.found] if given.large else []
    for key in stale:
        print(f"STALE  {key}: it is not found any more; leave it out of found.txt")
    print(f"{run.cases} cases, {len(run.found)} findings, of which {len(run.found) - len(new)} are known; "
          f"{processor_seconds():.0f} s of processor time")
    return 1 if new or stale else 0


if __name__ == "__main__":
    sys.exit(main())
