"""Plans, draws, validates and predicts pipeline-parallel training.

>>> import penstock as ps
>>> print(ps.schedule("1f1b", ranks=2, micro_batches=4).check())
rank 0 | 0F0 0F1  .  0B0 0F2 0B1 0F3 0B2  .  0B3
rank 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3  .
<BLANKLINE>

Every error is an `Error`: `Misuse` (also a ValueError) of bad input, which is a `ConfigError`, a `ScheduleError` with
the place of the violation, or a `DataError` of a file; `CostError` of costs that cannot be read or do not fit the
schedule; `Failure` and `InternalError` (also RuntimeErrors) of what the caller cannot correct.
"""
from penstock._planning import (
    Candidate, ConfigError, CostError, CriticalSlot, DataError, Error, Failure, Fit, InternalError, MeasuredStep,
    Misuse, Plan, Schedule, ScheduleError, Simulation, Slot, StageCosts, StepTerms)
from penstock.comparing import Comparison, Sweep, compare, sweep
from penstock.fitting import fit
from penstock.gallery import gallery
from penstock.grading import Grade, grade
from penstock.planning import Planned, Scaling, on_cluster, plan, scaling
from penstock.schedules import generator, generators, load, policy, schedule, table

__version__ = "0.2.0"
__all__ = [
    "Candidate", "Comparison", "ConfigError", "CostError", "CriticalSlot", "DataError", "Error", "Failure", "Fit",
    "Grade", "InternalError", "MeasuredStep", "Misuse", "Plan", "Planned", "Scaling", "Schedule", "ScheduleError",
    "Simulation", "Slot", "StageCosts", "StepTerms", "Sweep", "compare", "fit", "gallery", "generator",
    "generators", "grade", "load", "on_cluster", "plan", "policy", "scaling", "schedule", "sweep", "table",
]
