"""Builds the jars by Maven and runs their JUnit tests, under -Xcheck:jni. Without the network, and without what Maven kept of an
earlier time, nothing can be run, and that is said.

usage: java_test.py ROOT BUILD [WORD FOR MAVEN...]
"""
import glob
import os
import re
import subprocess
import sys

# Maven's message if it can fetch nothing.
OFFLINE = re.compile(r"Unknown host|Could not transfer|Connection (refused|timed out)|No route to host|in offline mode|"
                     r"Non-resolvable|Temporary failure in name resolution")


def main():
    root, build, *words = sys.argv[1:]
    done = subprocess.run(["mvn", "-B", "-q", "-f", os.path.join(root, "bindings/java"), f"-Dplait.cmake={build}", *words, "verify"],
                          capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode != 0 and OFFLINE.search(said):
        print("NOT RUN: Maven cannot fetch what it needs\n" + "\n".join(said.splitlines()[-20:]))
        return 0
    reports = os.path.join(build, "bindings/java/*/surefire-reports")
    # What the machine writes past the tests, as warnings of -Xcheck:jni, surefire puts here.
    dumps = [path for path in glob.glob(os.path.join(reports, "*.dumpstream")) if "JNI" in open(path).read()]
    for path in dumps:
        print(path, open(path).read())
    for path in sorted(glob.glob(os.path.join(reports, "*.txt"))):
        print(*re.findall(r"Tests run:.*", open(path).read()))
    if done.returncode != 0:
        print(said[-6000:])
    return 1 if done.returncode != 0 or dumps else 0


if __name__ == "__main__":
    sys.exit(main())
