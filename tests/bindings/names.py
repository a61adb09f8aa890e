#!/usr/bin/env python3
"""Every function of plait.h has its place in Java and in C#, and docs/bindings.md says where; and it is fuzzed.

usage: names.py ROOT [--write]
"""
import glob
import os
import re
import sys

TITLE = """# What a function of the C interface is in Java and in C#

Made by `tests/bindings/names.py --write` from `plait.h` and the sources of the bindings; a test fails when it is not up to date, or
when a function of the header has no place in one of them. C++ (`plait.hpp`) may call all of them as they are.

| C | Java | C# |
|---|---|---|
"""
# A declaration of a member, at the one indent that members have; its name, and whether people can call it.
JAVA = re.compile(r"^  ((?:(?:public|protected|private|static|final|synchronized|abstract) )*)(?:<[^>]*> )?"
                  r"(?:[\w.<>\[\]?, ]+ )?(\w+)\((?!.*;$)")
CSHARP = re.compile(r"^  ((?:(?:public|protected|private|internal|static|override|unsafe|sealed|async) )*)(?:[\w.<>\[\]?, ]+ )?"
                    r"(\w+)(?:<\w+>)?\s*(?:\(|\{$)")


def members(text, pattern):
    """(name, public, body) of each member, in order."""
    out, name, public, body = [], None, False, []
    for line in text.splitlines():
        found = pattern.match(line)
        if found and not line.startswith("   "):
            if name:
                out.append((name, public, "\n".join(body)))
            name, public, body = found[2], "public" in found[1].split(), []
        body.append(line)
    return out + ([(name, public, "\n".join(body))] if name else [])


def seen_from_outside(class_name, all_members, name, seen=()):
    """The members that people can call and that come to the member `name`."""
    out = []
    for other, public, body in all_members:
        if other == name and public:
            out.append(f"{class_name}.{other}" if other != class_name else f"new {class_name}")
    if out:
        return out
    for other, _, body in all_members:
        if other != name and other not in seen and re.search(rf"(?<![\w.]){name}(?:<\w+>)?\(", body):
            out += seen_from_outside(class_name, all_members, other, (*seen, name))
    return out


def calls(folder, ending, pattern, closing):
    """Function of C to names."""
    out = {}
    for path in sorted(glob.glob(os.path.join(folder, "**", "*" + ending), recursive=True)):
        class_name = os.path.basename(path)[:-len(ending)]
        with open(path) as file:
            all_members = members(file.read(), pattern)
        for name, _, body in all_members:
            for function in re.findall(r"Native(?:\.|::)(plait_\w+)", body):
                places = seen_from_outside(class_name, all_members, name)
                if function.endswith("_release"):
                    places = [f"{class_name}.{closing}"]
                for place in places or [class_name]:
                    if place not in out.setdefault(function, []):
                        out[function].append(place)
    return out


def table(root):
    """The text of the page, and the functions that have no place somewhere."""
    sys.path.insert(0, os.path.join(root, "bindings/swig"))
    import conventions
    java = calls(os.path.join(root, "bindings/java/plait/src/main/java"), ".java", JAVA, "close")
    csharp = calls(os.path.join(root, "bindings/csharp/Plait"), ".cs", CSHARP, "Dispose")
    # In Java the wrapper throws, in the thread and the call that failed.
    with open(os.path.join(root, "bindings/swig/java_support.h")) as file:
        for function in re.findall(r"(plait_last_\w+)\(\)", file.read()):
            java.setdefault(function, ["PlaitException"])
    with open(os.path.join(root, "tests/fuzz/c_api.cpp")) as file, open(os.path.join(root, "tests/fuzz/c_api_machine.h")) as machine:
        fuzzed = set(re.findall(r"plait_\w+", file.read() + machine.read()))
    rows, missing = [], []
    for function in conventions.functions(os.path.join(root, "bindings/c/plait.h")):
        for language, names in (("Java", java), ("C#", csharp)):
            if function not in names:
                missing.append(f"{function} has no place in {language}")
        if function not in fuzzed:
            missing.append(f"{function} is not called by tests/fuzz/c_api.cpp")
        cells = [", ".join(f"`{name}`" for name in names.get(function, [])) for names in (java, csharp)]
        rows.append(f"| `{function}` | {' | '.join(cells)} |")
    return TITLE + "\n".join(rows) + "\n", missing


def main():
    root = sys.argv[1]
    page = os.path.join(root, "docs/bindings.md")
    text, missing = table(root)
    if "--write" in sys.argv:
        with open(page, "w") as file:
            file.write(text)
    with open(page) as file:
        if file.read() != text:
            missing.append("docs/bindings.md is not up to date: tests/bindings/names.py ROOT --write")
    print("\n".join(missing) or f"{text.count('| `plait_')} functions")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
