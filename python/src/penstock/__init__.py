"""Plans, draws, validates and predicts pipeline-parallel training.

>>> import penstock as ps
>>> print(ps.schedule("1f1b", ranks=2, micro_batches=4).check())
rank 0 | 0F0 0F1  .  0B0 0F2 0B1 0F3 0B2  .  0B3
rank 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3  .
<BLANKLINE>
"""
from penstock._planning import (
    Candidate,
    ConfigError,
    DataError,
    Failure,
    Fit,
    InternalError,
    MeasuredStep,
    Misuse,
    Plan,
    ScheduleError,
    Schedule,
    Simulation,
    Slot,
    StageCosts,
    StepTerms,
)
from penstock.comparing import Comparison, compare
from penstock.fitting import fit
from penstock.grading import Grade, grade
from penstock.planning import Planned, Scaling, on_cluster, plan, scaling
from penstock.schedules import generator, generators, load, policy, schedule, table

__version__ = "0.2.0"
__all__ = [
    "Candidate", "Comparison", "ConfigError", "DataError", "Failure", "Fit", "Grade", "InternalError", "MeasuredStep",
    "Misuse", "Plan", "Planned", "Scaling", "Schedule", "ScheduleError", "Simulation", "Slot", "StageCosts",
    "StepTerms", "compare", "fit", "generator", "generators", "grade", "load", "on_cluster", "plan", "policy",
    "scaling", "schedule", "table",
]
