#!/usr/bin/python3
"""Runs the benchmarks, and writes docs/performance.md with its plots.

    tools/bazel run //benchmarks:report -- [--family gemm,conv] [--quick] [--runs 3] [--isa avx2]

Results are kept in docs/performance/, so that a run of one family renews its part of the page. A
machine of another kind has a page of its own (--page).
"""

import argparse
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

FAMILIES = {
    "gemm": "Matrix products",
    "low_precision": "Matrix products of bf16 and int8",
    "conv": "Convolutions",
    "layers": "Pooling and normalization",
    "arrays": "Elementwise functions, reductions, softmax, layer norm, optimizers",
    "sequences": "Attention and recurrent modules",
    "streams": "Streams, a sample at a time",
    "networks": "Whole networks",
}
TEXTS = {
    "replicate": "Data parallel, 2 ranks",
    "compile_time": "Compile time",
}
COLOURS = {
    "Ikebana": "#c0392b",
    "OpenBLAS": "#2e86c1",
    "BLIS": "#7d3c98",
    "Eigen": "#239b56",
    "libxsmm": "#b7950b",
    "oneDNN": "#34495e",
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default=",".join([*FAMILIES, *TEXTS]),
                        help="what to run, by commas; nothing: only write the page anew")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--runs", type=int, default=1,
                        help="calls of each program; the page has their medians")
    parser.add_argument("--isa", default="", help="the instruction set, for IKEBANA_ISA")
    parser.add_argument("--filter", default="", help="only cases with this regular expression")
    parser.add_argument("--parts", type=int, default=1,
                        help="in how many calls to split a program, where others wait")
    parser.add_argument("--launcher", default="", help="a command that runs each program")
    parser.add_argument("--programs", default=os.path.dirname(os.path.abspath(sys.argv[0])),
                        help="the directory of the programs")
    parser.add_argument("--docs", default="", help="the directory of the page")
    parser.add_argument("--page", default="performance",
                        help="the name of the page, and of the directory of its results")
    options = parser.parse_args()
    if not options.docs:
        top = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
        if not top:
            parser.error("--docs is needed where Bazel does not run this")
        options.docs = os.path.join(top, "docs")
    return options


# Running.

def run_program(options, name, part):
    """The results of one call of a program."""
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "results.json")
        command = shlex.split(options.launcher) + [os.path.join(options.programs, name),
                                                   "--json", out, "--seed", str(options.seed),
                                                   "--part", f"{part}/{options.parts}"]
        if options.quick:
            command.append("--quick")
        if options.filter:
            command += ["--filter", options.filter]
        environment = dict(os.environ)
        if options.isa:
            environment["IKEBANA_ISA"] = options.isa
        subprocess.run(command, check=True, env=environment)
        with open(out, encoding="utf-8") as f:
            return json.load(f)


def merged(calls):
    """One result of several calls: the cases of all, medians where a case was measured again."""
    result = dict(calls[0])
    cases = {}
    for call in calls:
        for case in call["cases"]:
            cases.setdefault((case["group"], case["name"]), []).append(case)
    result["cases"] = []
    for same in cases.values():
        case = dict(same[0])
        case["limit"] = statistics.median(c["limit"] for c in same)
        case["contestants"] = []
        for contestant in same[0]["contestants"]:
            entries = [c for s in same for c in s["contestants"]
                       if c["name"] == contestant["name"]]
            entry = dict(contestant)
            for key in ("seconds", "spread"):
                entry[key] = statistics.median(e[key] for e in entries)
            entry["least"] = min(e["least"] for e in entries)
            case["contestants"].append(entry)
        result["cases"].append(case)
    result["cases"].sort(key=lambda case: case["place"])
    return result


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return value


def store(options, name, result):
    folder = os.path.join(options.docs, options.page)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name}.json")
    if options.filter and os.path.exists(path):
        # Only some cases are new.
        with open(path, encoding="utf-8") as f:
            old = json.load(f)
        new = {(c["group"], c["name"]): c for c in result["cases"]}
        kept = [new.pop((c["group"], c["name"]), c) for c in old["cases"]]
        result["cases"] = sorted(kept + list(new.values()), key=lambda case: case["place"])
    with open(path, "w", encoding="utf-8") as f:
        json.dump(rounded(result), f, indent=0, sort_keys=True)
        f.write("\n")


def run_all(options):
    for name in filter(None, options.family.split(",")):
        if name in TEXTS:
            if options.isa:
                continue
            print(f"== {name}", flush=True)
            command = shlex.split(options.launcher) if name != "replicate" else []
            done = subprocess.run(command + [os.path.join(options.programs, name)], check=False,
                                  stdout=subprocess.PIPE, text=True)
            print(done.stdout)
            if done.returncode == 0:
                store(options, name, {"text": done.stdout})
            continue
        if name not in FAMILIES:
            sys.exit(f"report: there is no family {name}; there are "
                     f"{', '.join([*FAMILIES, *TEXTS])}")
        if not os.path.exists(os.path.join(options.programs, name)):
            print(f"{name} is left out: it was not built")
            continue
        calls = []
        for call in range(options.runs):
            print(f"== {name}, call {call + 1} of {options.runs}", flush=True)
            calls += [run_program(options, name, part + 1) for part in range(options.parts)]
        result = merged(calls)
        result["calls"] = options.runs
        result["quick"] = options.quick
        if result["cases"]:
            store(options, f"{name}.{result['machine']['instruction_set']}", result)


def load(options):
    """{instruction set: {family: results}}, and the texts."""
    folder = os.path.join(options.docs, options.page)
    results, texts = {}, {}
    for file in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if not file.endswith(".json"):
            continue
        with open(os.path.join(folder, file), encoding="utf-8") as f:
            content = json.load(f)
        if "text" in content:
            texts[file[:-len(".json")]] = content["text"]
        else:
            results.setdefault(content["machine"]["instruction_set"], {})[
                content["family"]] = content
    return results, texts


# Figures.

def ours(case):
    return case["contestants"][0]["seconds"]


def ratio(case, key="seconds"):
    """Our time by the best peer's; None without peers."""
    peers = [c[key] for c in case["contestants"][1:]]
    return case["contestants"][0][key] / min(peers) if peers else None


def share(case):
    return case["limit"] / ours(case) if case["limit"] > 0 else None


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def groups(result):
    """{group: cases}, in the order of the program."""
    by_group = {}
    for case in result["cases"]:
        by_group.setdefault(case["group"], []).append(case)
    return by_group


# The page.

def significant(value):
    """Three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1 else f"{value:.2g}"


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"


def as_ratio(value):
    return "" if value is None else f"{value:.2f}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def time_scale(cases):
    middle = statistics.median(ours(c) for c in cases)
    if middle < 1e-6:
        return 1e9, "ns"
    return (1e6, "us") if middle < 3e-3 else (1e3, "ms")


def group_table(cases):
    names = list(dict.fromkeys(c["name"] for case in cases for c in case["contestants"]))
    is_rate = cases[0]["rate"]
    scale, unit = time_scale(cases)

    def cell(case, name):
        for c in case["contestants"]:
            if c["name"] == name:
                value = (case["operations"] / c["seconds"] / 1e9 if is_rate
                         else c["seconds"] * scale)
                calls = f" [{c['allocations']:,.0f}]" if "allocations" in c else ""
                return significant(value) + calls
        return ""

    unit = "G/s" if is_rate else unit
    header = [unit] + names + ["time / best peer", "least / least", "of the limit"]
    return table(header, [[case["name"]] + [cell(case, n) for n in names] +
                          [as_ratio(ratio(case)), as_ratio(ratio(case, "least")),
                           percent(share(case))] for case in cases])


def summary_rows(name, result):
    rows = []
    for group, cases in groups(result).items():
        ratios = [(ratio(c), c["name"]) for c in cases if ratio(c) is not None]
        shares = [share(c) for c in cases if share(c) is not None]
        worst = max(ratios) if ratios else None
        rows.append([name, group, str(len(cases)),
                     as_ratio(geometric_mean(r for r, _ in ratios)),
                     f"{worst[0]:.2f} ({worst[1]})" if worst else "",
                     f"{sum(r <= 1 for r, _ in ratios)}" if ratios else "",
                     percent(statistics.median(shares)) if shares else ""])
        name = ""
    return rows


def machine_text(result):
    machine = result["machine"]
    caches = ", ".join(f"{c['name']} {c['type'].lower()} {c['bytes'] // 1024:,} KiB"
                       for c in machine["caches"] if c["type"] != "Instruction")
    interesting = ["sse4_2", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16",
                   "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "asimd"]
    flags = [f for f in interesting if f in machine["flags"].split()]
    return (f"{machine['processor']}, {machine['processors']} processors ({', '.join(flags)}); "
            f"{caches}; {machine['system']}, {machine['compiler']}.")


def peak_rows(results):
    rows = []
    for isa, families in results.items():
        peaks = [r["peaks"] for r in families.values()]
        operations = {n: max(p["operations"].get(n, 0) for p in peaks)
                      for n in ("float", "double", "bf16", "int8")}
        memory = []
        for i, level in enumerate(peaks[0]["memory"]):
            memory.append(f"{max(p['memory'][i]['read'] for p in peaks) / 1e9:.0f} / "
                          f"{max(p['memory'][i]['copy'] for p in peaks) / 1e9:.0f}")
        rows.append([isa] + [f"{v / 1e9:,.0f}" if v else "" for v in operations.values()] + memory)
    return rows


def page(results, texts, plots, folder):
    # The instruction set with the most results is shown in the tables.
    main = max(results, key=lambda isa: (len(results[isa]), isa == "avx512"))
    families = results[main]
    any_result = next(iter(families.values()))
    peers = {}
    absent = set()
    for result in families.values():
        peers.update(result["peers"])
        absent.update(result["absent"])
    absent -= set(peers)
    levels = [level["name"] for level in any_result["peaks"]["memory"]]
    out = ["# Performance", "",
           "Measured by `tools/bazel run //benchmarks:report`. All contestants of a case run in one "
           "process, by turns in random order, on one thread bound to one processor. Each figure is "
           "the median of runs of some milliseconds of CPU time, and of the program's calls. Ikebana "
           "is compiled with `-O2` and no `-m` flag, header-only peers with `-O3 -march=native`. "
           "Absolute figures differ between machines and hours; ratios differ less.", "",
           "`time / best peer` is our time divided by that of the fastest peer in the same case: "
           "below 1, Ikebana is faster. `least / least` is the same for the fastest runs, which other "
           "programs on the machine disturb less. `of the limit` is the share of the attainable "
           "speed: the least time that the arithmetic takes at the measured peak, or that the "
           "operands, each once, take at the measured bandwidth of the memory that holds them, "
           "whichever is longer, divided by our time.", "",
           f"**Machine**: {machine_text(any_result)}", "",
           "**Peers**: " + "; ".join(f"{n} {v}" for n, v in sorted(peers.items())) + "." +
           (f" Not installed on this machine: {', '.join(sorted(absent))}."
            if absent else ""), "",
           "**Peaks** of one core, measured in the same runs (G operations/s; GB/s read / "
           "copied):", "",
           table(["", "float", "double", "bf16", "int8"] + levels, peak_rows(results))]
    out += ["## Summary", ""]
    if "summary" in plots:
        out += [f"![Our time divided by the best peer's]({folder}/summary.svg)", ""]
    for isa in sorted(results, key=lambda i: i != main):
        rows = [row for name, title in FAMILIES.items() if name in results[isa]
                for row in summary_rows(title, results[isa][name])]
        out += [f"Instruction set {isa}:", "",
                table(["", "", "cases", "time / best peer, geometric mean", "worst case",
                       "at least as fast", "of the limit, median"], rows)]
    for name, title in FAMILIES.items():
        if name not in families:
            continue
        out += [f"## {title}", ""]
        out += [f"![{title}]({folder}/{plot}.svg)\n" for plot in plots.get(name, [])]
        result = families[name]
        calls = result.get("calls", 1)
        out += ["One call of the program" if calls == 1 else f"{calls} calls of the program"]
        out[-1] += ", with fewer and shorter runs (`--quick`)." if result.get("quick") else "."
        out += [""]
        if "seed" in result:
            out += [f"Random sizes of `--seed {result['seed']}`.", ""]
        if name == "gemm":
            out += ["Sizes up to 16 (NN, TN) are known in advance: to Ikebana by `fixed_gemm`, to Eigen by "
                    "the type, to libxsmm by a generated kernel; in the group with sizes at run time, "
                    "only to libxsmm.", ""]
        if name in ("networks", "streams"):
            out += ["In brackets: calls of operator new per step.", ""]
        for group, cases in groups(result).items():
            out += [f"### {group[0].upper() + group[1:]}", "", group_table(cases)]
    for name, title in TEXTS.items():
        if name in texts:
            out += [f"## {title}", "", texts[name].strip(), ""]
    return "\n".join(out).rstrip() + "\n"


# Plots.

def plot_all(options, results):
    """Writes the plots; the names of those of each family."""
    try:
        import matplotlib
    except ImportError:
        print("plots are left out: there is no matplotlib (python3-matplotlib)")
        return {}
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "ikebana", "font.size": 8,
                                "axes.spines.top": False, "axes.spines.right": False})
    import matplotlib.pyplot as plt
    import matplotlib.ticker

    def save(figure, name):
        figure.savefig(os.path.join(options.docs, options.page, f"{name}.svg"),
                       metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)

    main = max(results, key=lambda isa: (len(results[isa]), isa == "avx512"))
    families = results[main]
    plots = {}

    def by_logarithm(axis):
        axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:g}"))

    labels, lows, means, highs, shares = [], [], [], [], []
    for name in FAMILIES:
        for group, cases in groups(families[name]).items() if name in families else []:
            ratios = [ratio(c) for c in cases if ratio(c) is not None]
            if not ratios:
                continue
            labels.append(f"{name}: {group}")
            lows.append(min(ratios))
            means.append(geometric_mean(ratios))
            highs.append(max(ratios))
            known = [share(c) for c in cases if share(c) is not None]
            shares.append(statistics.median(known) if known else 0)
    if labels:
        figure, (left, right) = plt.subplots(1, 2, sharey=True,
                                             figsize=(8, 0.6 + 0.2 * len(labels)))
        rows = range(len(labels))
        left.hlines(rows, lows, highs, color="#bbbbbb", linewidth=2)
        left.plot(means, rows, "o", color=COLOURS["Ikebana"])
        left.axvline(1, color="black", linewidth=0.8)
        left.set_xscale("log")
        by_logarithm(left.xaxis)
        left.set_yticks(list(rows), labels)
        left.invert_yaxis()
        left.set_xlabel("our time / best peer's: geometric mean, best and worst case")
        right.barh(list(rows), [100 * s for s in shares], color="#95a5a6")
        right.set_xlabel("% of the machine's limit, median")
        save(figure, "summary")
        plots["summary"] = ["summary"]

    if "gemm" in families:
        squares = [c for c in families["gemm"]["cases"] if c["group"] == "squares, float"]
        if squares:
            figure, axes = plt.subplots(figsize=(7, 3.2))
            for name in dict.fromkeys(c["name"] for s in squares for c in s["contestants"]):
                points = [(round((s["operations"] / 2) ** (1 / 3)), s["operations"] / c["seconds"])
                          for s in squares for c in s["contestants"] if c["name"] == name]
                axes.plot([x for x, _ in points], [y / 1e9 for _, y in points], "o-", label=name,
                          color=COLOURS.get(name), markersize=3,
                          linewidth=2 if name == "Ikebana" else 1)
            axes.axhline(families["gemm"]["peaks"]["operations"]["float"] / 1e9, color="black",
                         linestyle=":", linewidth=0.8, label="peak")
            axes.set_xscale("log", base=2)
            axes.set_xlabel("n, of n x n x n in float")
            axes.set_ylabel("GFLOP/s")
            axes.legend(frameon=False, ncol=2)
            save(figure, "gemm_squares")
            plots.setdefault("gemm", []).append("gemm_squares")
        figure, axes = plt.subplots(figsize=(7, 3))
        for group, cases in groups(families["gemm"]).items():
            points = [(c["operations"], ratio(c)) for c in cases if ratio(c) is not None]
            axes.plot([x for x, _ in points], [y for _, y in points], ".", label=group)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        by_logarithm(axes.yaxis)
        axes.set_xlabel("operations")
        axes.set_ylabel("our time / best peer's")
        axes.legend(frameon=False, fontsize=6, ncol=2, loc="center left", bbox_to_anchor=(1, 0.5))
        save(figure, "gemm_all")
        plots.setdefault("gemm", []).append("gemm_all")

    for name in FAMILIES:
        if name not in families or name == "gemm":
            continue
        cases = [c for c in families[name]["cases"] if ratio(c) is not None]
        if not cases:
            continue
        figure, axes = plt.subplots(figsize=(7, 0.6 + 0.13 * len(cases)))
        for group in groups({"cases": cases}):
            points = [(ratio(c), i) for i, c in enumerate(cases) if c["group"] == group]
            axes.plot([x for x, _ in points], [y for _, y in points], "o", markersize=4,
                      label=group)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        by_logarithm(axes.xaxis)
        axes.set_yticks(range(len(cases)), [c["name"] for c in cases], fontsize=6)
        axes.set_ylim(len(cases) - 0.5, -0.5)
        axes.grid(axis="y", color="#eeeeee")
        axes.set_xlabel("our time / best peer's")
        axes.legend(frameon=False, fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
        save(figure, name)
        plots[name] = [name]
    return plots


def main():
    options = parse_arguments()
    # The same random sizes in all calls.
    options.seed = int.from_bytes(os.urandom(3), "big") + 1
    run_all(options)
    results, texts = load(options)
    if not results:
        sys.exit("report: there are no results")
    plots = plot_all(options, results)
    path = os.path.join(options.docs, f"{options.page}.md")
    with open(path, "w", encoding="utf-8") as f:
        f.write(page(results, texts, plots, options.page))
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
