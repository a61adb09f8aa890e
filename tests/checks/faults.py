#!/usr/bin/env python3
"""Forms that lose an error of the machine, or a process: docs/dev/faults.md has the rules.

usage: faults.py ROOT

Absent is ENOENT or ENOTDIR, and only core/base/paths.cpp (and names_in of the program) decides that: no other file lists or looks by
std::filesystem's functions with an error code. A pass that tries looks at the code of what it catches. A thread is started where its
failure is an error that names it. What is written is synced: by FileWriter, not by a stream.
"""
import re
import sys

import sources

LIBRARY = re.compile(r"^(core|importers|serving|bindings/c|bindings/server|kernels/reference|kernels/cpu)/")
OWN = ("core/base/paths.cpp", "core/base/threads.h")
# (where, what is refused, what to do)
FORMS = [
    (re.compile(r"^(core|importers|serving|bindings|kernels)/"), re.compile(r"\bdirectory_iterator\b"),
     "names_in (core/base/paths.h): an iterator takes a directory that cannot be read for an empty one, and may end the process"),
    (LIBRARY, re.compile(r"\b(?:fs|filesystem)::(?:exists|is_directory|is_regular_file|is_symlink|status|canonical|weakly_canonical|"
                         r"read_symlink|create_director(?:y|ies)|remove|remove_all|rename|file_size|last_write_time|space)\("),
     "core/base/paths.h: absent is ENOENT or ENOTDIR, and every other answer is an error"),
    (LIBRARY, re.compile(r"\bstd::error_code\b"), "core/base/paths.h, which throws"),
    (LIBRARY, re.compile(r"\bstd::ofstream\b"), "FileWriter (core/base/file_writer.h): what is written is synced, and its errors are seen"),
    (re.compile(r"^core/|^bindings/c/"), re.compile(r"= std::thread\(|\bthread_\(\[|threads?_?\.emplace_back\(\["),
     "start_thread or start_threads (core/base/threads.h): the error names the thread, and those that exist are joined"),
]
PASSES = re.compile(r"^core/passes/")
BLIND = re.compile(r"catch \(const Error&\)")


def problems_of(path, lines):
    for number, line in enumerate(lines, 1):
        for where, form, instead in FORMS:
            if where.match(path) and path not in OWN and form.search(line):
                yield f"{path}:{number}: {form.search(line)[0]}; write: {instead}"
        if PASSES.match(path) and BLIND.search(line):
            yield f"{path}:{number}: catches any error; write: catch (const Error& error), and throw unless is_about_input(error.code())"
        if PASSES.match(path) and re.search(r"catch \(const Error& \w+\)", line):
            body = " ".join(lines[number:number + 4])
            if not re.search(r"\.code\(\)|error\.at\(|if \(all\.size|throw;", body):
                yield f"{path}:{number}: neither passes the error on nor looks at its code()"


def main(root):
    problems, checked = [], 0
    for path in sources.files(root):
        if not path.endswith(sources.CPP):
            continue
        text = sources.lines(root, path)
        if text is None:
            continue
        checked += 1
        problems += problems_of(path, list(text))
    sources.finish(checked, problems)


if __name__ == "__main__":
    main(sys.argv[1])
