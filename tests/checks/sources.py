"""What the checks of the sources share: which files are ours, and how a check reports."""
import os
import sys

# Where what we write lies; everything else at the top (build/, models/, .deps/, environments) is made by tools.
FOLDERS = (".ci", "bindings", "core", "docs", "importers", "kernels", "samples", "serving", "tests")
TOP_FILES = (".clang-format", ".clang-tidy", ".gitignore", "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md",
             "LICENSE", "README.md", "run")
SKIPPED_FOLDERS = {"__pycache__", "target", "generated"}
CPP = (".h", ".hpp", ".c", ".cpp")


def files(root, endings=()):
    """Paths of our files relative to the root, with '/', sorted; those of the endings, or all."""
    found = [name for name in TOP_FILES if os.path.exists(os.path.join(root, name))]
    for top in FOLDERS:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
            found += [os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/") for name in names]
    return sorted(path for path in found if not endings or path.endswith(tuple(endings)))


def lines(root, path):
    """The lines of a file, or None if it is not text."""
    with open(os.path.join(root, path), "rb") as file:
        data = file.read()
    if b"\0" in data:
        return None
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        return None


def finish(checked, problems):
    """Prints the verdict and ends the program. Nothing to look at is a failure too: then the check looks elsewhere."""
    for problem in problems:
        print(problem)
    if not checked:
        print("nothing was checked: is the first argument the root of the repository?")
    print(f"{checked} files, {len(problems)} problems")
    sys.exit(1 if problems or not checked else 0)
