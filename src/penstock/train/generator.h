// Text generation: runs a language model token by token through the pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/pipeline/pipeline.h"
#include "penstock/train/sampling.h"

namespace penstock {

/// What happens to a sequence that fills the context.
enum class ContextEnd {
  stop,    // it ends there; a prompt that is longer is a ConfigError
  restart  // it continues from the last half of the context, so that the model no longer sees what was before
};

/// Why a sequence ended.
enum class SequenceEnd { length, stop_token, stopped, context };

struct GenerateOptions {
  std::int64_t tokens = 100;  // to generate after each prompt, at most
  std::int64_t context = 64;  // longest sequence that the model takes, at least 2
  ContextEnd at_context_end = ContextEnd::stop;
  SamplingOptions sampling = {};
  std::uint64_t seed = 0;  // of the sampling
  /// One for each prompt, in place of `seed` and the prompt's number, so that a text does not depend on which other
  /// prompts are continued with it; empty: none.
  std::vector<std::uint64_t> seeds = {};
  Tokens stop_tokens = {};  // a sequence ends with the first of these; it contains that token
  /// Called for every token as soon as it is drawn, with the number of its prompt; true ends that sequence: for
  /// streams of text and for stop strings. Under MPI every process calls it, and must get the same result.
  std::function<bool(std::size_t prompt, std::int64_t token)> on_token = nullptr;
};

/// Throws ConfigError for options out of range, no prompts, an empty prompt, a prompt that exceeds the context under
/// ContextEnd::stop, and another number of seeds than prompts.
void check(const GenerateOptions& options, const std::vector<Tokens>& prompts);

struct Generated {
  std::vector<Tokens> sequences;  // each prompt followed by its continuation, in the order of the prompts
  std::vector<SequenceEnd> ends;  // of each sequence
  std::int64_t tokens = 0;        // generated tokens, summed over all prompts
  double seconds = 0;             // from the first call to the last token
  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// Continues prompts with a network that takes int64 tokens [n, T], returns logits [n, T, V] as its first output, and
/// supports inference sessions (zoo/gpt.h). The prompts are distributed over as many sessions as the pipeline has
/// micro-batches. Each session is one micro-batch and all sessions are in flight at once, so that every stage has work
/// if there are at least as many sessions as stages. Within a session all prompts advance together: the length of the
/// shortest prompt in one call, then one token per call.
///
/// A Generator keeps its sessions between calls: prompts that begin with the sequences of the call before, as the turns
/// of a conversation do, are not computed again.
///
/// Tokens are drawn by (seed, prompt, position), so they do not depend on stages, schedule or transport; they may
/// depend on the number of micro-batches, which changes the last bits of the logits.
///
/// Under MPI every process makes one and calls it with the same arguments, and gets the same tokens. Used by the
/// thread that uses the pipeline, which outlives it.
class Generator {
 public:
  Generator(Pipeline& pipeline, GenerateOptions options);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /// Continues `prompts`, of any lengths. Collective. Throws as check().
  Generated generate(const std::vector<Tokens>& prompts);

 private:
  class Batch;

  void distribute(const std::vector<Tokens>& prompts);

  Pipeline& pipeline_;
  GenerateOptions options_;
  std::vector<std::unique_ptr<Batch>> batches_;  // of the latest call
};

}  // namespace penstock
