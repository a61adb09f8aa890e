"""The generation benchmark's table: medians, ratios to Plait, and the share of the machine's read bandwidth."""

import statistics

# Figure -> (label, unit, whether more is better).
FIGURES = {
    "first_token_128_s": ("first token, 128 tokens", "s", False),
    "first_token_512_s": ("first token, 512 tokens", "s", False),
    "decode_1_tok_s": ("decode", "tok/s", True),
    "decode_8_tok_s": ("decode, batch of 8", "tok/s", True),
    "load_s": ("load", "s", False),
    "start_s": ("load and first token of 8", "s", False),
    "peak_mib": ("peak memory", "MiB", False),
}
NAME_WIDTH, COLUMN_WIDTH = 30, 16
OURS = "plait"


def medians(rounds):
    """[{figure: value}] -> {figure: median}"""
    names = {name for figures in rounds for name in figures}
    return {name: statistics.median(figures[name] for figures in rounds if name in figures) for name in names}


def bandwidth_share(row, engine, batch):
    """Share of the read bandwidth that decoding used, or None without a measurement."""
    rate = row["engines"][engine]["median"].get(f"decode_{batch}_tok_s")
    roof = row["machine_gb_s"]
    if not rate or not roof:
        return None
    return row["bytes_per_token"][engine][str(batch)] * rate / 1e9 / roof


def counted(threads):
    return f"{threads} thread" + ("s" if threads > 1 else "")


def ratio(ours, theirs, more_is_better):
    return ours / theirs if more_is_better else theirs / ours


def cell(row, engine, name):
    """A value, then how many times better Plait's is."""
    value = row["engines"][engine]["median"].get(name)
    if value is None:
        return "-"
    text = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    ours = row["engines"].get(OURS, {}).get("median", {}).get(name)
    if engine == OURS or ours is None:
        return text
    return f"{text} ({ratio(ours, value, FIGURES[name][2]):.2f}x)"


def line(label, cells):
    return label.ljust(NAME_WIDTH) + "".join(text.rjust(COLUMN_WIDTH) for text in cells)


def table(row):
    """The lines of one model, dtype and number of threads."""
    engines = list(row["engines"])
    lines = [line(f"{row['model']} {row['dtype']}, {counted(row['threads'])}", engines)]
    for name, (label, unit, _) in FIGURES.items():
        if any(name in row["engines"][engine]["median"] for engine in engines):
            lines.append(line(f"  {label} [{unit}]", [cell(row, engine, name) for engine in engines]))
        if name.startswith("decode_"):
            shares = [bandwidth_share(row, engine, int(name.split("_")[1])) for engine in engines]
            if any(share is not None for share in shares):
                lines.append(line("    of the read bandwidth", ["-" if s is None else f"{s:.0%}" for s in shares]))
    lines.append(line("  tokens as the first engine's", [agreement(row, engine) for engine in engines]))
    return lines


def agreement(row, engine):
    """How many of the checked tokens two engines agree on before they part."""
    expected = next(iter(row["engines"].values()))["answer"]
    answer = row["engines"][engine]["answer"]
    same = next((i for i, pair in enumerate(zip(expected, answer)) if pair[0] != pair[1]), len(expected))
    return f"{same} of {len(expected)}"


def text(result):
    machine = result["machine"]
    lines = [f"{machine['cpu']}, {machine['cpus']} processors: {' '.join(machine['instruction_sets'])}"]
    rates = ", ".join(f"{counted(count)} {rate:.1f} GB/s" for count, rate in machine["read_gb_s"].items())
    lines.append(f"read bandwidth: {rates or 'not measured (no C compiler)'}")
    if machine["busy_before"] > 0.05:
        lines.append(f"NOT IDLE: others used {machine['busy_before']:.0%} of the processors: these figures mean little")
    lines.append(f"median of {result['rounds']} rounds; in brackets: how many times better Plait is")
    for row in result["rows"]:
        lines += ["", *table(row)]
    notes = dict.fromkeys(f"{engine}: {note}" for row in result["rows"] for engine, made in row["engines"].items()
                          for note in made["notes"])
    lines += ["", *notes] if notes else []
    lines += ["", *(f"not run: {entry['what']}: {entry['why']}" for entry in result["not_run"])]
    return "\n".join(lines).rstrip()
