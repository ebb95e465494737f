// Inference and generation: `generate_program STAGES REPLICAS MICRO_BATCHES`. Every process prints its outputs with and
// without broadcast, with shared and with repeated inputs of replicas, then the generated tokens.
#include <cstdlib>
#include <iostream>
#include <sstream>

#include <torch/torch.h>

#include "penstock/penstock.h"

namespace {

using namespace penstock;

/// A digest of all bits (FNV-1a), because mpirun would mix long lines.
std::uint64_t digest_of(const torch::Tensor& values) {
  const torch::Tensor flat = values.contiguous();
  const auto* bytes = static_cast<const unsigned char*>(flat.const_data_ptr());
  std::uint64_t digest = 14695981039346656037ull;
  for (std::size_t i = 0; i < flat.nbytes(); ++i) digest = (digest ^ bytes[i]) * 1099511628211ull;
  return digest;
}

std::string outputs_of(const InferResult& result) {
  result.wait();
  if (result.has_outputs()) return say(result.output().sizes(), " ", digest_of(result.output()));
  try {
    result.outputs();
  } catch (const ConfigError& error) {
    return say("nothing: ", error.what());
  }
  return "no error";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    const GptOptions model{.vocabulary = 11, .context = 12, .width = 12, .layers = 3, .heads = 2, .dropout = 0.3};
    World world({.stages = std::atoi(argv[1]), .replicas = std::atoi(argv[2])});
    Gpt gpt(model);
    Pipeline pipeline(world, gpt, next_token_loss, {.micro_batches = std::atoi(argv[3]), .seed = 8});
    std::ostringstream out;
    const int rank = world.rank();
    const auto print = [&](const char* what, const std::string& text) {
      out << "rank " << rank << ", " << what << ": " << text << "\n";
    };
    torch::manual_seed(1);
    const torch::Tensor tokens = torch::randint(0, 11, {9, 5}, torch::kInt64);
    // All are submitted before the first result is read.
    std::vector<InferResult> results;
    for (const bool broadcast : {false, true})
      for (const ReplicaInput replicas : {ReplicaInput::share, ReplicaInput::each})
        results.push_back(pipeline.infer(tokens, {.broadcast = broadcast, .replicas = replicas}));
    print("broadcast, each", outputs_of(results[3]));
    print("broadcast, share", outputs_of(results[2]));
    print("each", outputs_of(results[1]));
    print("share", outputs_of(results[0]));
    for (int i = 0; i < 20; ++i) pipeline.infer(tokens, {.broadcast = true});  // the result is never read

    const std::vector<Tokens> prompts{{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 0, 1}, {3, 3}, {9, 1}};
    Generator generator(pipeline, {.tokens = 25, .context = 12, .at_context_end = ContextEnd::restart, .seed = 3});
    const Generated generated = generator.generate(prompts);
    for (const Tokens& sequence : generated.sequences) {
      std::string text;
      for (const std::int64_t token : sequence) text += say(" ", token);
      print("text", text);
    }
    std::cout << out.str() << std::flush;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
