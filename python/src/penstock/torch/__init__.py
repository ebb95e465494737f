"""The bridge to torch.distributed.pipelining: measured costs, schedules that torch executes, accounts of its traces.

Needs torch.
"""
from penstock.torch.decoders import layers
from penstock.torch.measuring import measure
from penstock.torch.profiles import account
from penstock.torch.running import cut, runtime

__all__ = ["account", "cut", "layers", "measure", "runtime"]
