#!/usr/bin/env python3
"""What the figures of a benchmark depend on: the processor, its read bandwidth, and who else is using it.

    machine.py [THREADS ...]       prints the processor and its read bandwidth
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("read_bandwidth.c")
WORTH_NAMING = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile",
                "amx_bf16", "amx_int8")


def cpu_info():
    """(name, instruction sets that matter to the kernels)"""
    name, flags = platform.machine(), []
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
        if key.strip() == "flags":
            flags = value.split()
            break
    return name, [flag for flag in WORTH_NAMING if flag in flags]


def read_bandwidth(threads):
    """{threads: GB/s}, the median of five passes over 2 GiB; empty without a C compiler."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "read_bandwidth"
        command = ["cc", "-O3", "-march=native", "-pthread", str(SOURCE), "-o", str(program)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return {}
        rates = {}
        for count in threads:
            made = subprocess.run([program, str(count)], check=True, capture_output=True, text=True)
            rates[count] = float(made.stdout.split()[0])
        return rates


def busy_share(seconds=1.0):
    """Share of the processors' time that others use now, 0 to 1."""

    def sample():
        fields = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    total, idle = sample()
    time.sleep(seconds)
    total_later, idle_later = sample()
    spent = max(total_later - total, 1)
    return 1 - (idle_later - idle) / spent


def describe(threads):
    name, sets = cpu_info()
    return {"cpu": name, "instruction_sets": sets, "cpus": os.cpu_count(), "busy_before": round(busy_share(), 3),
            "read_gb_s": read_bandwidth(threads)}


if __name__ == "__main__":
    facts = describe([int(argument) for argument in sys.argv[1:]] or [1, os.cpu_count()])
    print(f"{facts['cpu']}: {' '.join(facts['instruction_sets'])}")
    for count, rate in facts["read_gb_s"].items():
        print(f"{count} threads read {rate:.1f} GB/s")
    if facts["busy_before"] > 0.05:
        print(f"others use {facts['busy_before']:.0%} of the processors: the figures are low")
