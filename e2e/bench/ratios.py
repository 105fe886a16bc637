#!/usr/bin/env python3
"""Medians over rounds of each row, and Sluice's ratio to each peer. Reads the rows of run.sh."""
import collections
import json
import statistics
import sys

rows = collections.defaultdict(list)
for line in open(sys.argv[1]):
    row = json.loads(line)
    case = row.get("shape") or f"{row['proto']} at {row['asked']}/s".replace("max/s", "saturation")
    rows[case, row["label"]].append(row)


def median(case, who, field):
    values = [r[field] for r in rows.get((case, who), []) if r.get(field) is not None]
    return statistics.median(values) if values else None


print(f"{'case':<22}{'who':<10}{'ops/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'CPU us/op':>11}{'errors':>8}")
for case, who in rows:
    shown = [median(case, who, f) for f in ("rate", "p50_ms", "p99_ms", "cpu_us")]
    errors = sum((r.get("errors") or 0) + (r.get("bad_status") or 0) + (r.get("failed") or 0) for r in rows[case, who])
    cells = [f"{v:.2f}" if v is not None else "-" for v in shown]
    print(f"{case:<22}{who:<10}{cells[0]:>10}{cells[1]:>10}{cells[2]:>10}{cells[3]:>11}{errors:>8}")
print("\nSluice's CPU per operation over a peer's (less than 1 is better), and its rate over the peer's:")
for case, who in rows:
    ours, theirs = median(case, "sluice", "cpu_us"), median(case, who, "cpu_us")
    if who != "sluice" and ours and theirs:
        rate = median(case, "sluice", "rate") / median(case, who, "rate")
        print(f"  {case:<22}{who:<10}CPU {ours / theirs:.2f}x   rate {rate:.2f}x")
