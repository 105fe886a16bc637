#!/usr/bin/env python3
"""Medians over rounds of each row, and Sluice's ratio to each peer. Reads the rows of run.sh.

The ratio of an axis is the median of the ratios of each round: peers and we took turns within it.
"""
import collections
import json
import statistics
import sys

# The store's axes: case, field, name, at most, goal. A ratio is ours over etcd's; "ours" is a figure of ours alone.
CPU, P50 = "cpu_us", "p50_ms"
AXES = [
    ("create, 100 clients", CPU, "CPU", 0.42, 0.2),
    ("create, 300 clients", CPU, "CPU", 0.42, 0.2),
    ("update, 100 clients", CPU, "CPU", 0.42, 0.2),
    ("update, 300 clients", CPU, "CPU", 0.42, 0.2),
    ("create, 100 clients", P50, "p50", 0.5, 0.33),
    ("create, 300 clients", P50, "p50", 0.5, 0.33),
    ("update, 100 clients", P50, "p50", 0.5, 0.33),
    ("update, 300 clients", P50, "p50", 0.5, 0.33),
    ("update at 1,000/s", CPU, "CPU", None, None),
    ("update at 1,000/s", P50, "p50", None, None),
    ("get, 100 clients", CPU, "CPU", 0.5, 0.3),
    ("put, 1 client", P50, "p50", 0.67, "the sync and a round trip"),
    ("range limit 500 in 118k", CPU, "CPU", 1 / 40, 1 / 100),
    ("count of 200k", P50, "ours", 0.1, None),
    ("get, 1 client", P50, "p50", None, None),
    ("count of 200k", CPU, "CPU", None, None),
    ("watch, single", "server_cpu_us_per_event", "CPU an event", 0.5, 0.33),
    ("watch, batched", "server_cpu_us_per_event", "CPU an event", 0.5, 0.33),
    ("list, busy store", P50, "ours", 2, 0.8),
    ("list, busy store", "p99_ms", "p99", None, None),
    ("list, busy, each 250 ms", P50, "p50", None, None),
    ("list, quiet store", P50, "p50", None, None),
    ("memory of 1000000 keys", "rss_mib", "RSS", 0.5, None),
    ("memory of 1000000 keys", "restart_s", "restart", 0.2, None),
    ("1000000 keys, limited", "rss_mib", "RSS", 0.5, None),
    ("1000000 keys, limited", "restart_s", "restart", 0.2, None),
]

# What a case costs beside another: both, field, how they are compared, at most.
BESIDE = [
    ("1,000/s, compacting", "1,000/s, old versions", "p99_ms", "p99 over", 1.5),
    ("count of 200k", "get, 1 client", P50, "p50 less", 0.1),
]

# The gateway's axes beside HAProxy: case, and how much of its CPU per request at most, with the goal.
GATEWAY = [
    ("h2 at saturation", 1.25, 0.8),
    ("h2 at 1000/s", 1.0, 0.8),
    ("h2 at 3000/s", 1.0, 0.8),
]

# What it may add to HAProxy's latency, in ms: case, field, name, at most.
ADDED = [
    ("h2 at 5000/s", P50, "p50", 0.1),
    ("h2 at 5000/s", "p99_ms", "p99", 0.5),
]

rows = collections.defaultdict(list)
for line in open(sys.argv[1]):
    row = json.loads(line)
    case = row.get("case") or f"{row['proto']} at {row['asked']}/s".replace("max/s", "saturation")
    rows[case, row["label"]].append(row)


def values(case, who, field):
    return [row.get(field) for row in rows.get((case, who), [])]


def median(case, who, field):
    known = [value for value in values(case, who, field) if value is not None]
    return statistics.median(known) if known else None


def ratio(case, who, field):
    """Median over rounds of ours over theirs, with the least and the greatest."""
    pairs = zip(values(case, "sluice", field), values(case, who, field))
    ratios = sorted(ours / theirs for ours, theirs in pairs if ours is not None and theirs)
    return (statistics.median(ratios), ratios[0], ratios[-1]) if ratios else None


def figure(value, digits=2):
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:.{digits}f}" if value >= 0.095 else f"{value:.3f}"


def table():
    print(f"{'case':<26}{'who':<9}{'ops/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'CPU us':>9}{'client':>8}{'RSS MiB':>9}{'errors':>7}")
    for case, who in rows:
        cpu = "server_cpu_us_per_event" if median(case, who, "events") else "cpu_us"
        own = "own_cpu_us_per_event" if median(case, who, "events") else "own_cpu_us_per_op"
        latency = ("deliver_p50_ms", "deliver_p99_ms") if median(case, who, "events") else ("p50_ms", "p99_ms")
        rate = "events_per_s" if median(case, who, "events") else "rate"
        rss = median(case, who, "rss_mib") or median(case, who, "server_rss_mib")
        shown = [median(case, who, field) for field in (rate, *latency, cpu, own)]
        faults = ("errors", "bad_status", "failed", "compare_failed", "watchers_ended")
        errors = sum(row.get(fault) or 0 for row in rows[case, who] for fault in faults)
        lost = sum((row.get("events_expected") or 0) - (row.get("events") or 0) for row in rows[case, who])
        cells = [figure(value) for value in shown]
        print(f"{case:<26}{who:<9}{cells[0]:>10}{cells[1]:>9}{cells[2]:>9}{cells[3]:>9}{cells[4]:>8}"
              f"{figure(rss, 0):>9}{errors + lost:>7}")


def store():
    print("\nThe store, Sluice over etcd (median of the rounds' ratios, least to greatest):")
    print(f"{'axis':<26}{'of':<14}{'etcd':>10}{'sluice':>10}{'ratio':>8}{'range':>14}{'at most':>9}{'goal':>7}  verdict")
    for case, field, name, most, goal in AXES:
        ours, theirs = median(case, "sluice", field), median(case, "etcd", field)
        if ours is None:
            continue
        found = ratio(case, "etcd", field)
        counted = ours if name == "ours" else found and found[0]
        verdict = "-"
        if counted is not None and most is not None:
            verdict = "over" if counted > most else "ok"
            if verdict == "ok" and isinstance(goal, float):
                verdict = "goal" if counted <= goal else "ok"
        span = f"{figure(found[1])}-{figure(found[2])}" if found else "-"
        if name == "ours":
            name = "p50 ms, alone"
        aim = figure(goal) if isinstance(goal, float) else "-"
        print(f"{case:<26}{name:<14}{figure(theirs):>10}{figure(ours, 3 if name.startswith('p50 ms') else 2):>10}"
              f"{figure(found and found[0]):>8}{span:>14}{figure(most):>9}{aim:>7}  {verdict}")


def beside():
    print("\nOne case beside another of the same server (median of the rounds):")
    for case, other, field, name, most in BESIDE:
        for who in ("etcd", "sluice"):
            pairs = [(a, b) for a, b in zip(values(case, who, field), values(other, who, field)) if a is not None and b]
            if not pairs:
                continue
            found = statistics.median(a - b if name.endswith("less") else a / b for a, b in pairs)
            verdict = "" if who == "etcd" else f"at most {figure(most)}: {'over' if found > most else 'ok'}"
            print(f"  {case:<22}{name} {other:<24}{who:<8}{figure(found, 3):>9}  {verdict}")


def gateway():
    print("\nSluice's CPU per operation over a peer's (less than 1 is better), and its rate over the peer's:")
    for case, who in rows:
        found, rate = ratio(case, who, "cpu_us"), ratio(case, who, "rate")
        if who not in ("sluice", "direct", "etcd", "disk") and found and rate:
            print(f"  {case:<22}{who:<10}CPU {found[0]:.2f}x   rate {rate[0]:.2f}x")
    print("\nBeside HAProxy (median of the rounds, least to greatest):")
    for case, most, goal in GATEWAY:
        if found := ratio(case, "haproxy", "cpu_us"):
            verdict = "goal" if found[0] <= goal else "ok" if found[0] <= most else "over"
            print(f"  {case:<22}CPU {found[0]:.2f}x ({found[1]:.2f}-{found[2]:.2f})   at most {most}x, goal {goal}x: {verdict}")
    for case, field, name, most in ADDED:
        pairs = zip(values(case, "sluice", field), values(case, "haproxy", field))
        added = sorted(a - b for a, b in pairs if a is not None and b is not None)
        if added:
            middle = statistics.median(added)
            verdict = "ok" if middle <= most else "over"
            print(f"  {case:<22}{name} {middle:+.3f} ms ({added[0]:+.3f} to {added[-1]:+.3f})   at most +{most} ms: {verdict}")


table()
labels = {who for _, who in rows}
if "etcd" in labels:
    store()
    beside()
if labels & {"haproxy", "nginx"}:
    gateway()
