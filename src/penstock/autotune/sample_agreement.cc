#include "penstock/autotune/sample_agreement.h"

#include "penstock/base/error.h"

namespace penstock {
namespace {

void require_sample(const Tensors& sample, int inputs) {
  require<ConfigError>(static_cast<int>(sample.size()) == inputs,
                       "layers are measured on PipelineOptions::sample, which holds ", sample.size(),
                       " tensors, but the network takes ", inputs, ": give it the inputs of some samples");
  for (const torch::Tensor& input : sample)
    require<ConfigError>(input.defined() && input.numel() >= 1, "PipelineOptions::sample has no rows: give it some");
}

}  // namespace

std::string SampleAgreement::on(Topic topic, const std::function<std::string(const RankContext&)>& decide) const {
  return decided_on_rank_0(world, pipeline, topic, [&](const RankContext& context) {
    // Checked here, on the only rank that reads the sample: an error on this thread ends all ranks.
    require_sample(sample, graph.inputs);
    return decide(context);
  });
}

}  // namespace penstock
