#!/usr/bin/env python3
"""Draws several schedules of the same work, one above the other on one axis of time, as an SVG.

    compare_schedules.py PROGRAM OUTPUT SCHEDULE... [-- FLAG...]

PROGRAM is `penstock`; the times are those of its `schedule show SCHEDULE --format json FLAG...`. A rank has the same
work in every schedule: with v stages per rank each instruction of a stage takes 1/v of a unit. OUTPUT - is standard
output.
"""
import json
import subprocess
import sys

# The colours of src/penstock/trace/timeline.cc, and its lighter shade for a rank's second stage.
COLOURS = {"F": (0x86, 0xB6, 0xE8), "B": (0xE0, 0x7B, 0x39), "I": (0xF6, 0xCD, 0x5A), "W": (0x4A, 0x9A, 0x7C)}
NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
IDLE = "#efefef"
LEFT, WIDTH, ROW, TITLE, GAP, TOP = 70, 890, 26, 30, 16, 40


def colour(op, second=False):
    return "#" + "".join(f"{round(part + (255 - part) * 0.45 * second):02x}" for part in COLOURS[op])


def shown(program, name, flags):
    """A schedule with its times, in units of a whole rank's instruction."""
    def json_of(*more):
        return json.loads(subprocess.run([program, "schedule", "show", name, "--format", "json", *flags, *more],
                                         check=True, capture_output=True, text=True).stdout)

    first = json_of()
    share = str(first["ranks"] / first["stages"])
    return json_of("--cost-f", share, "--cost-i", share, "--cost-w", share)


def band(schedule, top, unit):
    """The rows of one schedule under its title."""
    yield (f'<text x="{LEFT}" y="{top + 19}" font-size="15" font-weight="bold">{schedule["name"]}'
           f'<tspan font-weight="normal" font-size="12" fill="#505050" dx="10">'
           f'{schedule["makespan"]:g} units, {100 * schedule["bubble_makespan"]:.1f} % idle, '
           f'at most {max(schedule["peak_activations"]):g} live micro-batches</tspan></text>')
    for rank in range(schedule["ranks"]):
        y = top + TITLE + rank * ROW
        yield f'<text x="{LEFT - 10}" y="{y + 17}" font-size="12" text-anchor="end">rank {rank}</text>'
        yield f'<rect x="{LEFT}" y="{y}" width="{schedule["makespan"] * unit:.2f}" height="{ROW - 4}" fill="{IDLE}"/>'
    for slot in schedule["slots"]:
        if slot["op"] not in COLOURS:
            continue
        x, y = LEFT + slot["begin"] * unit, top + TITLE + slot["rank"] * ROW
        width = (slot["end"] - slot["begin"]) * unit
        yield (f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 4}" stroke="#303030" stroke-width="0.6" '
               f'fill="{colour(slot["op"], slot["stage"] >= schedule["ranks"])}"/>')
        yield (f'<text x="{x + width / 2:.2f}" y="{y + 15}" font-size="10" text-anchor="middle">'
               f'{slot["micro_batches"][0]}</text>')


def picture(schedules):
    unit = WIDTH / max(schedule["makespan"] for schedule in schedules)
    lines, x = [], LEFT
    for op, name in NAMES.items():
        lines.append(f'<rect x="{x}" y="14" width="18" height="12" stroke="#303030" stroke-width="0.6" '
                     f'fill="{colour(op)}"/>')
        lines.append(f'<text x="{x + 24}" y="24" font-size="12">{op} {name}</text>')
        x += 62 + 7 * len(name)
    lines.append(f'<rect x="{x}" y="14" width="18" height="12" fill="{IDLE}"/>')
    lines.append(f'<text x="{x + 24}" y="24" font-size="12">idle</text>')
    y = TOP
    for schedule in schedules:
        lines += band(schedule, y, unit)
        y += TITLE + schedule["ranks"] * ROW + GAP
    size = f'width="{LEFT + WIDTH + 20}" height="{y}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {LEFT + WIDTH + 20} {y}" '
                      f'font-family="Helvetica, Arial, sans-serif">', f'<rect {size} fill="#ffffff"/>', *lines,
                      "</svg>\n"])


def main():
    arguments = sys.argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if end < 3:
        sys.exit(__doc__)
    program, output, *names = arguments[:end]
    text = picture([shown(program, name, arguments[end + 1:]) for name in names])
    with (sys.stdout if output == "-" else open(output, "w")) as file:
        file.write(text)


if __name__ == "__main__":
    main()
