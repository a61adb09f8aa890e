#!/usr/bin/env python3
"""What can be known of the CUDA kernels without a device, from their machine code (SASS): registers, blocks an SM, local memory,
widths of loads, and the issue slots that the hottest loop takes of those that pass while the memory delivers its weights.

usage: cuda.py CUOBJDUMP BARS FATBIN... [--write]

BARS (kernels/cuda/bars.json) holds the figures of each kernel and architecture, so that a slower kernel is a visible change, and the
limits that hold for all. --write puts the present figures there.
"""
import json
import re
import subprocess
import sys

# The chip that an architecture stands for: bandwidth in bytes a second, SMs, clock in hertz; registers, bytes of shared memory and
# threads of an SM. (Data sheets of A100 80 GB, H200, B200, RTX PRO 6000; CUDA C++ Programming Guide, compute capabilities.)
CHIPS = {
    "sm_80": (2.04e12, 108, 1.41e9, 65536, 164 << 10, 2048),
    "sm_90a": (4.8e12, 132, 1.755e9, 65536, 228 << 10, 2048),
    "sm_100a": (8.0e12, 148, 1.85e9, 65536, 228 << 10, 2048),
    "sm_120": (1.79e12, 188, 2.28e9, 65536, 100 << 10, 1536),
}
SCHEDULERS = 4  # of an SM; each issues an instruction a clock
FUNCTION = re.compile(r"\s*Function\s*:?\s*(\w+):?\s*$|\.nv\.info\.(\w+)$")
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?(.*?)\s*;")
WEIGHT_LOAD = 32 * 16  # bytes that a warp's load of weights brings


def by_function(cuobjdump, fatbin, what):
    """Of each architecture, the lines that `cuobjdump what` prints of each function."""
    said = subprocess.run([cuobjdump, what, fatbin], capture_output=True, text=True, check=True).stdout
    out, architecture, lines = {}, None, None
    for line in said.splitlines():
        if line.startswith("arch = "):
            architecture, lines = line.split()[2], None
        # A regular expression for each of millions of lines would take longer than cuobjdump.
        elif ("Function" in line or line.startswith(".nv.info.")) and (found := FUNCTION.match(line)):
            lines = out.setdefault(architecture, {}).setdefault(found[1] or found[2], [])
        elif lines is not None:
            lines.append(line)
    return out


def most_threads(lines):
    """Of a block, by the kernel's launch bounds; none: it has none."""
    for at, line in enumerate(lines):
        if "EIATTR_MAX_THREADS" in line or "EIATTR_REQNTID" in line:
            x, y, z = (int(word, 16) for word in re.findall(r"0x[0-9a-f]+", lines[at + 2]))
            return x * y * z
    return None


def instructions(lines):
    """(address, operation, text) of each."""
    for line in lines:
        if ";" in line and (found := INSTRUCTION.match(line)):
            yield int(found[1], 16), found[2].split()[0], found[2]


def is_weight_load(operation):
    """ptx.h's load_once, the only one that asks for sectors of 128 bytes."""
    return operation.startswith("LDG") and "LTC128B" in operation


def hottest_loop(code):
    """The operations between a branch back and its target: of the loops with most products, or weights, the longest."""
    loops = []
    for address, operation, text in code:
        target = operation.startswith("BRA") and re.search(r"0x([0-9a-f]+)", text)
        if target and int(target[1], 16) < address:
            loops.append([name for at, name, _ in code if int(target[1], 16) <= at <= address])
    heavy = [loop for loop in loops if any(is_weight_load(name) for name in loop)]
    return max(heavy or loops, key=len, default=[])


def figures(architecture, usage, threads, lines):
    bandwidth, sms, clock, registers, shared, most = CHIPS[architecture]
    used = {key: int(value) for key, value in re.findall(r"(\w+):(\d+)", " ".join(usage))}
    code = list(instructions(lines))
    operations = [operation for _, operation, _ in code]
    loop = hottest_loop(code)
    reserved = 1024 if architecture == "sm_80" else 0  # of each block, by the system; later architectures count it themselves
    a_warp = -(-used["REG"] * 32 // 256) * 256
    out = {
        "registers": used["REG"],
        "blocks": min(registers // (a_warp * -(-threads // 32)), shared // max(used["SHARED"] + reserved, 1), most // threads),
        "shared": used["SHARED"],
        "stack": used["STACK"],
        "local": used["LOCAL"] + sum(name.startswith(("LDL", "STL")) for name in operations),
        "instructions": len(code),
        "loop": len(loop),
        "tensor": sum(name.startswith(("HMMA", "IMMA", "HGMMA", "IGMMA", "QMMA", "OMMA")) for name in loop),
    }
    weights = [name for name in operations if is_weight_load(name)]
    if weights:
        out["narrow_weight_loads"] = sum(".128" not in name for name in weights)
        loads = sum(is_weight_load(name) for name in loop)
        if loads:
            clocks = loads * WEIGHT_LOAD * clock * sms / bandwidth
            out["issue_percent"] = round(100 * len(loop) / (SCHEDULERS * clocks))
            out["in_flight_kb"] = out["blocks"] * threads // 32 * loads * WEIGHT_LOAD >> 10
    return out


def measure(cuobjdump, fatbins):
    out, problems = {}, []
    for fatbin in fatbins:
        usage, elf, sass = (by_function(cuobjdump, fatbin, what) for what in ("-res-usage", "-elf", "-sass"))
        for architecture in sass:
            for kernel, lines in sass[architecture].items():
                threads = most_threads(elf[architecture].get(kernel, []))
                if not threads:
                    problems.append(f"{kernel}, {architecture}: no launch bounds")
                    continue
                out.setdefault(kernel, {})[architecture] = figures(architecture, usage[architecture][kernel][:2], threads, lines)
    return out, problems


def beyond_limits(kernels, limits):
    """What holds for all kernels, and the issue slots by name."""
    for kernel, chips in kernels.items():
        for architecture in CHIPS:
            if architecture not in chips:
                yield f"{kernel}: no machine code for {architecture}"
        for architecture, have in chips.items():
            for key in ("stack", "local", "narrow_weight_loads"):
                if have.get(key):
                    yield f"{kernel}, {architecture}: {key} {have[key]}, must be 0"
    for pattern, percent in limits.items():
        names = [kernel for kernel in kernels if re.fullmatch(pattern, kernel)]
        if not names:
            yield f"no kernel is called {pattern}, which has a limit"
        for kernel in names:
            took = kernels[kernel]["sm_90a"].get("issue_percent")
            if took is None or took > percent:
                yield f"{kernel}: {took} % of the issue slots of an H200 while it delivers the weights, at most {percent} % are good"


def changes(have, want):
    for kernel in sorted({*have, *want}):
        if kernel not in have or kernel not in want:
            yield f"{kernel}: {'new' if kernel in have else 'gone'}"
            continue
        for architecture in have[kernel]:
            old = want[kernel].get(architecture, {})
            for key, value in have[kernel][architecture].items():
                if old.get(key) != value:
                    yield f"{kernel}, {architecture}: {key} {old.get(key)} -> {value}"


def main():
    words = [word for word in sys.argv[1:] if word != "--write"]
    cuobjdump, path, fatbins = words[0], words[1], words[2:]
    with open(path) as file:
        bars = json.load(file)
    kernels, problems = measure(cuobjdump, fatbins)
    problems += beyond_limits(kernels, bars["issue_limits"])
    if "--write" in sys.argv:
        with open(path, "w") as file:
            text = json.dumps({**bars, "kernels": dict(sorted(kernels.items()))}, indent=1)
            # A line an architecture, so that a change shows.
            file.write(re.sub(r'(?<="sm_)(\w+)": \{([^}]*)\}', lambda found: f'{found[1]}": {{{" ".join(found[2].split())}}}', text) + "\n")
    else:
        problems += [f"{line}; if it is meant: --write" for line in changes(kernels, bars["kernels"])]
    for problem in problems:
        print(problem)
    print(f"{len(kernels)} kernels, {len(problems)} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
