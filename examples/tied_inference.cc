// Inference through four stages, with a head that uses the table of the embedding three stages before it.
//
//   build/release/examples/tied_inference                          four threads
//   mpirun -n 4 --oversubscribe build/release/examples/tied_inference    four processes: only rank 3 has the logits
//   ... tied_inference broadcast                                   every rank has them
//   ... tied_inference broadcast table                             with a table of other numbers than ones
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <penstock/penstock.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;

int main(int argc, char** argv) try {
  std::vector<std::string> choices;
  Arguments("tied_inference", "Inference through four stages with a head that is tied to the embedding.")
      .add_choices("CHOICE", choices, "broadcast: the result on every rank; table: a table of other numbers than ones",
                   {"broadcast", "table"})
      .parse(argc, argv);
  const auto asked_for = [&](const char* choice) {
    return std::find(choices.begin(), choices.end(), choice) != choices.end();
  };

  ps::TiedLanguageModel net;
  net.word_embedding.pipeline_stage = 0;
  net.layer1.pipeline_stage = 1;
  net.layer2.pipeline_stage = 2;
  net.head.pipeline_stage = 3;

  ps::World world({.stages = 4});
  ps::Pipeline pipeline(world, net, ps::cross_entropy, {.micro_batches = 4, .seed = 1});
  if (asked_for("table")) {
    const torch::NoGradGuard no_grad;
    // Only the owner stage's process changes its table; sync_ties() then updates the copy of the head.
    ps::StateDict values = pipeline.local_state_dict();
    if (world.is_main()) values["word_embedding.table"].copy_(torch::arange(32 * 32).view({32, 32}) % 37 * 0.01);
    pipeline.sync_ties();
  }

  const torch::Tensor tokens = torch::arange(0, 32, 4).view({8, 1});
  const ps::InferResult result = pipeline.infer({tokens}, {.broadcast = asked_for("broadcast")});
  if (!result.has_outputs()) {
    std::cout << "rank " << world.rank() << ": not on this rank\n";
    return 0;
  }
  const torch::Tensor logits = result.output();
  std::cout << "logits of shape " << logits.sizes() << ", from " << logits.min().item<float>() << " to "
            << logits.max().item<float>() << "\n"
            << logits << "\n";
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
