// Settings of a world and of a pipeline.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "penstock/model/loss.h"

namespace penstock {

enum class TransportKind {
  automatic,  // MPI where mpirun started this process, threads otherwise
  threads,
  mpi
};

struct WorldOptions {
  int stages = 1;                        // pipeline ranks p
  int replicas = 0;                      // d; 0: 1 for threads, the number of processes / stages under MPI
  TransportKind transport = TransportKind::automatic;
  int threads = 1;                       // intra-op threads per rank; changes bits, so it is fixed and recorded
  std::chrono::milliseconds deadline = std::chrono::seconds(60);  // a peer without progress for so long has failed
};

struct PipelineOptions {
  int micro_batches = 1;                 // m per step and replica
  std::string schedule = "1f1b";         // a generator's name, or a .sched or CSV file
  Reduction reduction = Reduction::mean;
  std::string cut = "parameters";        // for networks without annotations: plan/cut.h
  std::uint64_t seed = 0;                // of the initial weights
};

}  // namespace penstock
