// Puts the instructions that a rank executes once per step behind all others, so that these are in one piece, which can
// be captured (PipelineOptions::capture_steps):
//
//   rank 0 with stages 0 and 3   ... 3B0 3SEND_B0 3STEP 0RECV_B0 0B0 0STEP
//   updates last                 ... 3B0 3SEND_B0 0RECV_B0 0B0 3STEP 0STEP
#pragma once

#include "penstock/schedule/schedule.h"

namespace penstock {

/// `schedule` with the REDUCE, NORM and STEP of each rank, in their order, behind its other instructions. They depend
/// only on instructions before them, and no other instruction depends on them, so that the result is valid where
/// `schedule` is.
Schedule updates_last(Schedule schedule);

}  // namespace penstock
