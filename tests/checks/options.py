#!/usr/bin/env python3
"""Every option is read by whatever it is said to be for, and what is read is an option.

Usage: options.py ROOT

The table in bindings/c/options.cpp is the only list of options. Reads are calls of a Settings getter with the key
written out, in the files that make the objects of each scope.
"""
import re
import sys
from pathlib import Path

READERS = {
    "model": ["model.cpp", "library.cpp"],
    "tokenizer": ["model.cpp"],
    "generator": ["generator.cpp", "adapters.cpp", "devices.cpp"],
    "request": ["generator.cpp", "request_inputs.cpp", "tokenizer.cpp"],
    "session": ["session.cpp", "devices.cpp"],
    "world": ["world.cpp"],
    "trainer": ["trainer.cpp", "trainer_options.cpp", "generator.cpp", "devices.cpp"],
    "export": ["model_export.cpp", "trained_tensors.cpp", "quantized_weights.cpp", "generator.cpp", "trainer_options.cpp"],
    "server": ["plait_server.cpp"],
    "plan": ["planning.cpp"],
}
ROW = re.compile(r'\{"(\w+)",\s*Type::\w+,\s*((?:for_\w+(?:\s*\|\s*)?)+),')
READ = re.compile(r'\.(?:has|integer|real|boolean|text|texts|ids|biases|tensor)\("(\w+)"\)')


def main():
    folder = Path(sys.argv[1]) / "bindings" / "c"
    rows = dict(ROW.findall((folder / "options.cpp").read_text()))
    if len(rows) < 10:
        sys.exit(f"options.py found {len(rows)} rows in options.cpp: it does not read the table any more")
    sources = [*folder.rglob("*.cpp"), folder.parent / "server" / "plait_server.cpp"]
    read = {path.name: set(READ.findall(path.read_text())) for path in sources}
    faults = []
    for key, scopes in rows.items():
        for scope in re.findall(r"for_(\w+)", scopes):
            if not any(key in read[name] for name in READERS[scope]):
                faults.append(f"option {key} is for a {scope}, and {' and '.join(READERS[scope])} do not read it")
    for name, keys in read.items():
        faults += [f"{name} reads {key}, which is no option" for key in sorted(keys - set(rows))]
    for fault in faults:
        print(f"bindings/c: {fault}")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
