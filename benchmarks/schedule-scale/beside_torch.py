"""The same shape planned by torch.distributed.pipelining's Python and by schedule-scale, one after the other.

    beside_torch.py SCHEDULE_SCALE [P M V]     a Python that imports torch; the shape is 64 512 2 unless given
"""
import subprocess
import sys
import time

from torch.distributed.pipelining import _schedule_visualizer as visualizer
from torch.distributed.pipelining import schedules


def torch_seconds(p, m, v):
    """Order of Interleaved1F1B with its validation, sends and receives, and torch's simulation of the whole.

    Processor time, so that others on the machine do not count against it.
    """
    begin = time.process_time()
    orders = visualizer.get_schedule_ops("Interleaved1F1B", p, m, v)
    compute = {rank: [action for action in actions if action is not None] for rank, actions in enumerate(orders)}
    lowered = schedules._add_send_recv(compute, lambda stage: stage % p, p * v)
    instructions = sum(len(actions) for actions in lowered.values())
    schedules._simulate_comms_compute(lowered, lambda stage: stage % p, p * v)
    return instructions, time.process_time() - begin


def main():
    program = sys.argv[1]
    p, m, v = (int(number) for number in sys.argv[2:5]) if len(sys.argv) > 2 else (64, 512, 2)
    shape = [str(number) for number in (p, m, v)]
    ours = subprocess.run([program, *shape], capture_output=True, text=True, check=True).stdout.split()
    theirs = torch_seconds(p, m, v)
    print(f"interleaved, p = {p}, m = {m}, v = {v}          instructions    seconds    instructions/s")
    rates = []
    for name, (instructions, seconds) in (("torch's Python", theirs), ("Penstock", (int(ours[0]), float(ours[1])))):
        rates.append(instructions / seconds)
        print(f"{name:40} {instructions:9} {seconds:10.3f} {rates[-1]:10.0f}")
    print(f"times faster, per instruction: {rates[1] / rates[0]:.0f}")


main()
