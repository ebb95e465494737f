"""Shows that the device tests notice every missing event, wait, record of memory and device guard.

Usage: removals.py [--only PATTERN]

Copies the source tree to build/removals and builds the device tests there. Then removes one piece of order after the
other from the library, and expects that the tests fail each time. Takes more than an hour on two cores: run it by
hand after a change of what orders streams. Exit code 1 if a removal is not noticed.
"""

import argparse
import os
import re
import subprocess
import sys
from typing import NamedTuple

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
FOLDER = os.path.join(ROOT, "build", "removals")
TREE, BUILD = os.path.join(FOLDER, "tree"), os.path.join(FOLDER, "build")


# For all tests, which take a minute: a rank may wait for ever for one that has failed.
LIMIT_S = 240


class Removal(NamedTuple):
    what: str
    file: str  # in src/penstock
    text: str  # occurs once
    instead: str = ""


HAND_OVER, STAGING = "transport/device_hand_over.cc", "transport/host_staging.cc"
CHANNELS = "transport/device_channels.cc"
RUNNERS, EXECUTOR = "runtime/local_runners.cc", "runtime/step_executor.cc"

REMOVALS = [
    Removal("the event of a message is not recorded", HAND_OVER,
            "    events->events_.back().record(current_stream(tensor.device()));\n"),
    Removal("the receiver's stream does not wait", HAND_OVER, "  ready.block(stream, tensor.device());\n"),
    Removal("the receiver's use of the sender's memory is not recorded", HAND_OVER, "  record_use(tensor, stream);\n"),
    Removal("the link stream does not wait", HAND_OVER, "  ready.block(from, tensor.device());\n"),
    Removal("the copy is not on the link streams", HAND_OVER,
            "    const c10::MultiStreamGuard guard({from, to});\n"),
    Removal("the link stream's use of the sender's memory is not recorded", HAND_OVER, "  record_use(tensor, from);\n"),
    Removal("the receiver's stream does not wait for the copy", HAND_OVER, "  done.block(user);\n"),
    Removal("the receiver's use of the copy is not recorded", HAND_OVER, "  record_use(copy, user);\n"),
    Removal("the copy to the host does not wait for what it copies", STAGING, "    ready->block(link, link.device());\n"),
    Removal("the copy to the host is not on the link stream", STAGING, "    const c10::StreamGuard guard(link);\n"),
    Removal("the link stream's use of what it copies to the host is not recorded", STAGING,
            "    record_use(payload.tensor, link);\n"),
    Removal("a message goes to another process before it is complete", STAGING,
            "  for (const c10::Event& done : copy.done) done.synchronize();\n"),
    Removal("the link stream does not wait for what a device channel receives", CHANNELS,
            "    for (const auto& receive : arriving.receives) receive->wait();  // the link stream does\n"),
    Removal("the receiver's stream does not wait for what a device channel receives", CHANNELS,
            "  arrived.block(user);\n"),
    Removal("a buffer of a device channel is received into while it is read", "transport/receive_memory.cc",
            "    event_on(reader).block(current_stream(device));\n"),
    Removal("a buffer of a device channel is received into while a tensor has it", "transport/receive_memory.cc",
            " || owner.storage().use_count() > 1"),
    Removal("the receiver's use of what a device channel receives is not recorded", CHANNELS,
            "if (travels(payload.tensor)) record_use(payload.tensor, user);", "continue;"),
    Removal("a rank's stream is not ordered behind its sends in device channels", CHANNELS,
            "    sent.work->wait();  // the stream does\n"),
    Removal("a link stream is not part of a capture", CHANNELS, "    begun.block(incoming.link_streams.of(device));\n"),
    Removal("sends are not joined at the end of a capture", CHANNELS, "    sent_.back().work->wait();\n"),
    Removal("the numbers of a step are in memory of the graph", EXECUTOR, "    endpoint.begin_capture();\n",
            "    endpoint.begin_capture();\n    graph_->numbers.reserve(parts_.setting.device, graph_->draws.keys, "
            "compiled().schedule.micro_batches);\n"),
    Removal("a graph uses weights that were converted before it", EXECUTOR, "    stage->gradients().compute_again();\n"),
    Removal("a graph adds to gradients that are not there", EXECUTOR,
            "stage->gradients().copy_to(graph_->sums_before.at(stage->id()));", "continue;"),
    Removal("a batch on a device carries no event", "runtime/job_factory.cc", "DeviceEvents::of(tensors)", "nullptr"),
    Removal("ranks do not wait for a batch on a device", EXECUTOR, "  job.ready->block_current_streams();\n"),
    Removal("the ranks' use of a batch's memory is not recorded", EXECUTOR,
            "record_use(tensor, current_stream(tensor.device()));", "continue;"),
    Removal("the inputs of an inference carry no event", "runtime/inferences.cc", "DeviceEvents::of(inputs)",
            "nullptr"),
    Removal("layers are built without the rank's device and stream", "runtime/rank_runner.cc",
            "  const RankDeviceGuard guard(device_);\n"),
    Removal("steps run without the rank's device and stream", RUNNERS,
            "      const RankDeviceGuard guard(to->device());\n"),
    Removal("other work runs without the rank's device and stream", RUNNERS,
            "    const RankDeviceGuard guard(runner.device());\n"),
    Removal("the program does not wait for the results of other work", RUNNERS,
            "  synchronize();  // the caller may read the results\n"),
    Removal("ranks do not wait for the state that the program has changed", "runtime/pipeline.cc",
            "    if (changed) changed->block_current_streams();\n"),
    Removal("a loss that may be refused is read without a wait", "runtime/job_results.cc",
            "  current_stream(setting_.device).synchronize();\n"),
    Removal("nothing watches the other ranks during the wait for a loss that may be refused", "runtime/job_results.cc",
            '  await_device("the loss");\n'),
    Removal("nothing watches the other ranks during the wait for a metric", "runtime/job_results.cc",
            """    if (is_on_device()) await_device(say("the metric '", metric.name, "'"));\n"""),
    Removal("nothing watches the other ranks during the wait for outputs", "runtime/job_results.cc",
            '    if (is_on_device()) await_device("the outputs");\n'),
    Removal("nothing watches the other ranks during the wait at the end of a step", EXECUTOR,
            '  parts_.placement.endpoint().await_stream(*parts_.device.stream(), say("the end of step ", job_->step));\n'),
    Removal("a wait for a device does not tell its end from an abort", "transport/progress_thread.cc",
            "  if (const auto reason = mailbox_.aborted())\n    throw", "  if (const auto reason = mailbox_.aborted(); !is_done())\n    throw"),
    Removal("results of a step are read without a wait", "base/stream_marks.cc",
            "  stream_.synchronize();\n  const auto present = static_cast<std::size_t>(mark());\n"
            "  events_[present].synchronize();\n", "  const auto present = static_cast<std::size_t>(mark());\n"),
    Removal("backward passes run on LibTorch's thread", "runtime/stage.cc",
            "  const BackwardOnThisThread on_this_thread;\n"),
]


def copy_tree():
    """Files of the working tree; those of an earlier call that are as they were keep their times."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        source, target = os.path.join(ROOT, name), os.path.join(TREE, name)
        if os.path.isfile(source):
            write(target, read(source))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    if os.path.exists(path) and read(path) == content:
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def configure():
    python = os.path.join(ROOT, "build", "venv", "bin", "python")
    found = subprocess.run([python, "-c", "import torch; print(torch.utils.cmake_prefix_path)"], capture_output=True,
                           text=True)
    torch = [f"-DCMAKE_PREFIX_PATH={found.stdout.strip()}"] if found.returncode == 0 else []
    # Files are compiled one by one, so that a removal compiles one; it may leave a variable unused (-w).
    subprocess.run(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *torch,
                    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG -w"], stdout=subprocess.DEVNULL, check=True)


def build():
    done = subprocess.run(["ninja", "-C", BUILD, "device_tests"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"removals: device_tests cannot be built:\n{done.stdout[-4000:]}")


def run_tests():
    """None if all pass, else the first failed test with the number of all."""
    try:
        done = subprocess.run([os.path.join(BUILD, "tests", "device_tests")], capture_output=True, text=True,
                              timeout=LIMIT_S, cwd=BUILD)
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT_S} s"
    if done.returncode == 0:
        return None
    failed = list(dict.fromkeys(re.findall(r"^\[  FAILED  \] (\w+\S*\.[\w/]+)", done.stdout, re.MULTILINE)))
    return f"{len(failed)} tests fail, {failed[0]} first" if failed else f"the program ends with {done.returncode}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", metavar="PATTERN", default="",
                           help="removals in whose description this regular expression is found")
    only = arguments.parse_args().only
    chosen = [removal for removal in REMOVALS if re.search(only, removal.what)]
    if not chosen:
        arguments.error(f"in no removal's description there is '{only}'")
    copy_tree()
    configure()
    build()
    if problem := run_tests():
        sys.exit(f"removals: without a removal {problem}")
    unnoticed = 0
    for removal in chosen:
        path = os.path.join(TREE, "src", "penstock", removal.file)
        before = read(path)
        if before.count(removal.text.encode()) != 1:
            sys.exit(f"removals: {removal.file} has not once: {removal.text.strip()}")
        write(path, before.replace(removal.text.encode(), removal.instead.encode()))
        build()
        noticed = run_tests()
        write(path, before)
        unnoticed += not noticed
        print(f"{removal.what}: {noticed or 'NOT NOTICED'}", flush=True)
    print(f"{unnoticed} removals are not noticed" if unnoticed else "every removal is noticed")
    return unnoticed > 0


if __name__ == "__main__":
    sys.exit(main())
