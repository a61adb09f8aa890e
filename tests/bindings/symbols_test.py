"""plait.symbols, the functions of plait.h, and what libplait.so exports and needs are the same list.

usage: symbols_test.py LIBRARY HEADER SYMBOLS
"""
import re
import subprocess
import sys

# The loader's name differs between systems; all else is listed whole.
NEEDED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1"}
# The oldest C library that suffices by the documentation: what comes newer is found here, on a build machine that has it.
GLIBC = (2, 34)
# Whatever a model or a configuration names, it is not run, nor loaded as code (checks.no_abort_no_print lists who may do
# that).
RUNS_CODE = re.compile(r"(dlmopen|system|popen|v?fork|exec[lv]\w*|posix_spawnp?)(@|$)")


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def told(title, difference):
    for name in sorted(difference):
        print(f"{title}: {name}")
    return bool(difference)


def main():
    library, header, symbols = sys.argv[1:]
    with open(symbols) as file:
        lines = file.read().split()
    golden = set(lines)
    with open(header) as file:
        declared = set(re.findall(r"PLAIT_API[^;]*?\b(plait_\w+)\(", file.read()))
    exported = set()
    for line in output("nm", "-D", "--defined-only", library).splitlines():
        kind, name = line.split()[-2:]
        name, _, version = name.partition("@@")
        if kind != "A":  # the name of the version itself
            exported.add(name if version == "PLAIT_0" else f"{name} (version {version or 'none'})")
    used = {line.split()[-1] for line in output("nm", "-D", "--undefined-only", library).splitlines()}
    newer = {name for name in used if tuple(map(int, re.findall(r"\d+", name.partition("@GLIBC_")[2]))) > GLIBC}
    dynamic = output("readelf", "-d", library)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    soname = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
    wrong = [
        told("in the header, not in plait.symbols", declared - golden),
        told("in plait.symbols, not in the header", golden - declared),
        told("exported, not in plait.symbols", exported - golden),
        told("in plait.symbols, not exported", golden - exported),
        told("needed", {name for name in needed - NEEDED if not name.startswith("ld-linux")}),
        told("not in glibc 2.34", newer),
        told("loads or runs code", set(filter(RUNS_CODE.match, used))),
        told("soname", set(soname) ^ {"libplait.so.0"}),
    ]
    if lines != sorted(golden):
        print("plait.symbols is not sorted")
        wrong.append(True)
    print(f"{len(golden)} symbols, needs {', '.join(sorted(needed))}")
    return 1 if any(wrong) or len(golden) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
