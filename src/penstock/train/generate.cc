#include "penstock/train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include <ATen/core/PhiloxRNGEngine.h>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/split.h"

namespace penstock {

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  require<InternalError>(!logits.empty(), "a token out of none");
  for (const float logit : logits)
    require<Failure>(std::isfinite(logit), "the model returned a logit of ", logit,
                     ": its weights are damaged, or its training failed");
  std::vector<std::size_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), std::size_t{0});
  std::stable_sort(tokens.begin(), tokens.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (options.temperature == 0) return static_cast<std::int64_t>(tokens.front());
  const double largest = logits[tokens.front()];
  if (options.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(options.top_k)));
  std::sort(tokens.begin(), tokens.end());

  std::vector<double> widths;
  for (const std::size_t token : tokens) widths.push_back(std::exp((logits[token] - largest) / options.temperature));
  double left = uniform * std::accumulate(widths.begin(), widths.end(), 0.0);
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (widths[i] == 0) continue;
    chosen = i;  // rounding may leave left > 0 after the last token
    left -= widths[i];
    if (left < 0) break;
  }
  return static_cast<std::int64_t>(tokens[chosen]);
}

double uniform_number(const TokenPlace& place) {
  // The engine counts its offset in groups of four numbers.
  at::philox_engine draw(place.seed, place.prompt, place.position);
  const std::uint64_t high = draw(), low = draw();
  return static_cast<double>((high << 21) ^ (low >> 11)) * 0x1p-53;
}

namespace {

void check(const std::vector<Tokens>& prompts, const GenerateOptions& options) {
  require<ConfigError>(!prompts.empty(), "nothing to continue: pass at least one prompt");
  for (const Tokens& prompt : prompts)
    require<ConfigError>(!prompt.empty(), "an empty prompt: pass at least one token to start with");
  require<ConfigError>(options.tokens >= 0, "generate ", options.tokens, " tokens: pass 0 or more");
  require<ConfigError>(options.context >= 2, "a context of ", options.context, " tokens: generation needs 2 or more");
  const SamplingOptions& sampling = options.sampling;
  require<ConfigError>(std::isfinite(sampling.temperature) && sampling.temperature >= 0, "a temperature of ",
                       sampling.temperature, ": pass 0 (always the likeliest token) or more");
  require<ConfigError>(sampling.top_k >= 0, "top-k of ", sampling.top_k, ": pass 0 (all tokens) or more");
}

/// The prompts of one session. All rows advance together.
class GenerationBatch {
 public:
  GenerationBatch(Pipeline& pipeline, std::vector<Tokens> prompts, std::uint64_t first_prompt,
                  const GenerateOptions& options)
      : pipeline_(pipeline), options_(options), first_prompt_(first_prompt), session_(pipeline) {
    for (Tokens& prompt : prompts) {
      ends_.push_back(static_cast<std::int64_t>(prompt.size()) + options.tokens);
      rows_.push_back(std::move(prompt));
    }
    known_ = size_of(*std::min_element(rows_.begin(), rows_.end(),
                                       [](const Tokens& a, const Tokens& b) { return a.size() < b.size(); }));
  }

  bool is_done() const { return known_ >= *std::max_element(ends_.begin(), ends_.end()); }

  /// Submits the tokens that all rows have and that the session has not processed.
  void submit() {
    const bool is_full = known_ - begin_ > options_.context;
    if (is_full) {
      begin_ = fed_ = known_ - options_.context / 2;
      if (result_) session_.restart();
    }
    const std::int64_t length = known_ - fed_;
    torch::Tensor tokens = torch::empty({static_cast<std::int64_t>(rows_.size()), length}, torch::kInt64);
    auto* out = tokens.data_ptr<std::int64_t>();
    for (const Tokens& row : rows_) out = std::copy_n(row.begin() + fed_, length, out);
    fed_ = known_;
    result_ = pipeline_.infer(tokens, {.broadcast = true, .micro_batches = 1, .session = session_});
  }

  /// Waits for the outputs and appends the sampled token to every row that ends there.
  void advance() {
    const torch::Tensor& output = result_->output();
    require<ConfigError>(output.dim() == 3 && output.size(0) == static_cast<std::int64_t>(rows_.size()),
                         "generation needs logits of [n, T, V], but the network's first output is ", output.sizes());
    const torch::Tensor logits = output.select(1, output.size(1) - 1).to(torch::kCPU, torch::kFloat32).contiguous();
    const auto width = static_cast<std::size_t>(logits.size(1));
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (size_of(rows_[row]) > known_) continue;  // still within its prompt
      const std::span<const float> of_row(logits.const_data_ptr<float>() + row * width, width);
      const double number = uniform_number(
          {.seed = options_.seed, .prompt = first_prompt_ + row, .position = static_cast<std::uint64_t>(known_)});
      rows_[row].push_back(sample_token(of_row, options_.sampling, number));
    }
    ++known_;
  }

  /// Appends the rows to `sequences`, truncated to their own ends: they advance until the longest is done.
  void give(std::vector<Tokens>& sequences) {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      rows_[row].resize(static_cast<std::size_t>(ends_[row]));
      sequences.push_back(std::move(rows_[row]));
    }
  }

 private:
  static std::int64_t size_of(const Tokens& row) { return static_cast<std::int64_t>(row.size()); }

  Pipeline& pipeline_;
  const GenerateOptions& options_;
  std::uint64_t first_prompt_;
  InferenceSession session_;
  std::vector<Tokens> rows_;
  std::vector<std::int64_t> ends_;
  std::int64_t known_ = 0;  // number of tokens that all rows have
  std::int64_t fed_ = 0;    // number of these that were submitted
  std::int64_t begin_ = 0;  // index of the first token in the session's memory
  std::optional<InferResult> result_;
};

}  // namespace

Generated generate(Pipeline& pipeline, const std::vector<Tokens>& prompts, const GenerateOptions& options) {
  check(prompts, options);
  const std::int64_t begin = now_ns();
  const auto count = static_cast<std::int64_t>(prompts.size());
  const int sessions = static_cast<int>(std::min<std::int64_t>(count, pipeline.options().micro_batches));
  std::vector<GenerationBatch> batches;
  for (int i = 0; i < sessions; ++i) {
    const RowRange rows = split(count, {.index = i, .of = sessions});
    batches.emplace_back(pipeline, std::vector<Tokens>(prompts.begin() + rows.begin, prompts.begin() + rows.end),
                         static_cast<std::uint64_t>(rows.begin), options);
  }
  const auto submit = [](GenerationBatch& batch) {
    if (!batch.is_done()) batch.submit();
  };
  std::for_each(batches.begin(), batches.end(), submit);
  // While the tokens of one batch are sampled, the other batches are in the pipeline.
  while (std::any_of(batches.begin(), batches.end(), [](const GenerationBatch& batch) { return !batch.is_done(); }))
    for (GenerationBatch& batch : batches) {
      if (batch.is_done()) continue;
      batch.advance();
      submit(batch);
    }

  Generated generated;
  for (GenerationBatch& batch : batches) batch.give(generated.sequences);
  generated.tokens = count * options.tokens;
  generated.seconds = s_since(begin);
  return generated;
}

}  // namespace penstock
