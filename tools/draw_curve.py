#!/usr/bin/env python3
"""Draws a training as an SVG picture: the loss of every step and the results on the test set.

    penstock train ... --json run.jsonl
    tools/draw_curve.py run.jsonl --title "ResNet-18 on CIFAR-10" --output curve.svg

Reads the output of `penstock train --json` and of the examples, one JSON object a line (docs/json_lines.md): steps have
"loss", evaluations "test_loss" and perhaps "test_accuracy". Steps are drawn pale, their mean over a window dark.
"""
import argparse
import json
import math
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 60, 60, 40, 40
WINDOW = 25  # steps in the dark line's mean


def read(path):
    """The losses by step, and (step, test loss, accuracy or None) of every evaluation."""
    losses, tests = [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            sys.exit(f"{path}:{number}: not a JSON object: {error}")
        if "test_loss" in entry:
            tests.append((len(losses), entry["test_loss"], entry.get("test_accuracy")))
        elif "loss" in entry:
            losses.append(entry["loss"])
    if not losses:
        sys.exit(f"{path}: no line has a \"loss\": give a file that --json wrote")
    return losses, tests


def smoothed(values):
    means = []
    for i in range(len(values)):
        part = values[max(0, i - WINDOW + 1):i + 1]
        means.append(sum(part) / len(part))
    return means


def nice_ticks(low, high, count=5):
    if not high > low:
        high = low + 1
    step = 10 ** math.floor(math.log10((high - low) / count))
    step *= min((1, 2, 5, 10), key=lambda f: abs((high - low) / (step * f) - count))
    first = math.ceil(low / step) * step
    return [first + i * step for i in range(int((high - first) / step + 1e-9) + 1)]


def draw(losses, tests, title):
    """The picture as text."""
    most = max(losses[:1] + [v for v in smoothed(losses)] + [t[1] for t in tests])
    least = min(0.0, min(losses))
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    x = lambda step: LEFT + inner_width * step / max(1, len(losses))
    y = lambda value: TOP + inner_height * (1 - (min(value, most) - least) / (most - least or 1))
    y_accuracy = lambda share: TOP + inner_height * (1 - share)
    points = lambda pairs: " ".join(f"{a:.1f},{b:.1f}" for a, b in pairs)
    thin = max(1, len(losses) // 1000)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
             f'font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             f'<text x="{LEFT}" y="24" font-size="15">{title}</text>']
    for tick in nice_ticks(least, most):
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#e4e4e4"/>'
                     f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in nice_ticks(0, len(losses)):
        parts.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text>')
    parts.append(f'<polyline fill="none" stroke="#b9cfe8" points="'
                 f'{points([(x(i + 1), y(v)) for i, v in enumerate(losses)][::thin])}"/>')
    parts.append(f'<polyline fill="none" stroke="#1f5fa8" stroke-width="1.6" points="'
                 f'{points([(x(i + 1), y(v)) for i, v in enumerate(smoothed(losses))][::thin])}"/>')
    legend = [("#1f5fa8", "training loss")]
    if tests:
        parts.append(f'<polyline fill="none" stroke="#c2541b" stroke-width="1.6" points="'
                     f'{points([(x(s), y(v)) for s, v, _ in tests])}"/>')
        legend.append(("#c2541b", f"test loss, at last {tests[-1][1]:.3f}"))
    if tests and tests[-1][2] is not None:
        parts.append(f'<polyline fill="none" stroke="#3d8b40" stroke-width="1.6" points="'
                     f'{points([(x(s), y_accuracy(a)) for s, _, a in tests])}"/>')
        legend.append(("#3d8b40", f"test accuracy (right), at last {tests[-1][2]:.3f}"))
        for tick in (0, 0.25, 0.5, 0.75, 1):
            parts.append(f'<text x="{WIDTH - RIGHT + 6}" y="{y_accuracy(tick) + 4:.1f}" fill="#3d8b40">{tick:g}</text>')
    for i, (colour, arguments) in enumerate(legend):
        parts.append(f'<text x="{WIDTH - RIGHT - 8}" y="{TOP + 16 + 16 * i}" text-anchor="end" '
                     f'fill="{colour}">{arguments}</text>')
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="JSON lines of one training")
    parser.add_argument("--title", default="")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    losses, tests = read(arguments.run)
    arguments.output.write_text(draw(losses, tests, arguments.title))


if __name__ == "__main__":
    main()
