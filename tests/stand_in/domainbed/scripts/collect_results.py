"""The mean accuracy of every algorithm in a sweep."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--input_dir", type=str, required=True)
    records = []
    for path in Path(parser.parse_args().input_dir).glob("*/results.jsonl"):
        records += [json.loads(line) for line in path.read_text().splitlines()]
    print("Total records:", len(records))
    for name in sorted({r["args"]["algorithm"] for r in records}):
        held = [r[f"env{r['args']['test_envs'][0]}_in_acc"] for r in records if r["args"]["algorithm"] == name]
        print(f"{name:<20} {100 * sum(held) / len(held):.1f}")
