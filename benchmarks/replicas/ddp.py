"""The MLP of compare.py under DistributedDataParallel over Gloo; rank 0 prints the median ms of a step."""
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
widths = [784] + 8 * [1024] + [10]
layers = []
for a, b in zip(widths, widths[1:]):
    layers += [nn.Linear(a, b), nn.ReLU()]
network = nn.parallel.DistributedDataParallel(nn.Sequential(*layers[:-1]))
optimizer = torch.optim.SGD(network.parameters(), 0.01)
share = 128 // dist.get_world_size()
inputs, targets = torch.randn(share, 784), torch.arange(share) % 10
times = []
for step in range(12):
    begin = time.perf_counter()
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(inputs), targets).backward()
    optimizer.step()
    if step >= 2:
        times.append(time.perf_counter() - begin)
if dist.get_rank() == 0:
    print(1e3 * statistics.median(times))
dist.destroy_process_group()
