"""The bridge to torch.distributed.pipelining: measured costs, schedules that torch executes, accounts of its traces.

Needs torch.
"""
from penstock.torch.decoders import layers
from penstock.torch.measuring import Costs, measure
from penstock.torch.profiles import account
from penstock.torch.running import cut, runtime

__all__ = ["Costs", "account", "cut", "layers", "measure", "runtime"]
