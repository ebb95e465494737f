#include "penstock/train/generator.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/split.h"

namespace penstock {
namespace {

std::int64_t size_of(const Tokens& row) { return static_cast<std::int64_t>(row.size()); }

}  // namespace

/// The prompts of one session. All rows advance together.
class Generator::Batch {
 public:
  Batch(Pipeline& pipeline, const GenerateOptions& options)
      : pipeline_(pipeline), options_(options), session_(pipeline) {}

  /// Begins with other prompts, of which the first has the number `first_prompt`. What the session has processed is
  /// kept if all prompts continue it.
  void begin(std::vector<Tokens> prompts, std::size_t first_prompt) {
    first_prompt_ = first_prompt;
    const auto continues_row = [&](const Row& row, const Tokens& prompt) {
      return size_of(prompt) > fed_ && std::equal(row.tokens.begin(), row.tokens.begin() + fed_, prompt.begin());
    };
    const bool continues =
        begin_ == 0 && std::equal(rows_.begin(), rows_.end(), prompts.begin(), prompts.end(), continues_row);
    rows_.clear();
    known_ = size_of(prompts.front());
    for (Tokens& prompt : prompts) {
      known_ = std::min(known_, size_of(prompt));
      rows_.push_back({std::move(prompt), std::nullopt, 0});
      rows_.back().most = size_of(rows_.back().tokens) + options_.tokens;
      finish_full(rows_.back());
    }
    if (continues) return;
    begin_ = fed_ = 0;
    if (std::exchange(is_used_, true)) session_.restart();
  }

  bool is_done() const {
    return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.end.has_value(); });
  }

  /// Submits the tokens that all rows have and that the session has not processed.
  void submit() {
    if (known_ - begin_ > options_.context) {
      begin_ = fed_ = known_ - options_.context / 2;
      session_.restart();
    }
    const std::int64_t length = known_ - fed_;
    torch::Tensor tokens = torch::empty({static_cast<std::int64_t>(rows_.size()), length}, torch::kInt64);
    auto* out = tokens.data_ptr<std::int64_t>();
    for (const Row& row : rows_) out = std::copy_n(row.tokens.begin() + fed_, length, out);
    fed_ = known_;
    result_ =
        pipeline_.infer(tokens, {.broadcast = true, .micro_batches = 1, .session = session_, .last_position = true});
  }

  /// Waits for the outputs and appends the sampled token to every row that ends there.
  void advance() {
    const torch::Tensor& output = result_->output();
    require<ConfigError>(output.dim() == 3 && output.size(0) == static_cast<std::int64_t>(rows_.size()),
                         "generation needs logits of [n, T, V], but the network's first output is ", output.sizes());
    const torch::Tensor logits = output.select(1, output.size(1) - 1).to(torch::kCPU, torch::kFloat32).contiguous();
    const auto width = static_cast<std::size_t>(logits.size(1));
    for (std::size_t i = 0; i < rows_.size(); ++i)
      if (size_of(rows_[i].tokens) == known_)
        draw(i, std::span<const float>(logits.const_data_ptr<float>() + i * width, width));
    ++known_;
  }

  /// Appends the sequences and why they ended, and counts the tokens that were generated.
  void give(Generated& generated) const {
    for (const Row& row : rows_) {
      generated.sequences.push_back(row.sequence());
      generated.ends.push_back(*row.end);
      generated.tokens += size_of(generated.sequences.back()) - (row.most - options_.tokens);
    }
  }

 private:
  struct Row {
    Tokens tokens;  // longer than the sequence if others of the batch were not done when it ended
    std::optional<SequenceEnd> end;
    std::int64_t most = 0;    // length at which it ends at the latest
    std::int64_t length = 0;  // of the sequence, once it has ended

    Tokens sequence() const { return {tokens.begin(), tokens.begin() + length}; }
  };

  void draw(std::size_t i, std::span<const float> logits) {
    Row& row = rows_[i];
    if (row.end) {
      row.tokens.push_back(row.tokens.back());  // fed along, never shown
      return;
    }
    const std::size_t prompt = first_prompt_ + i;
    TokenPlace place{.seed = options_.seed, .prompt = prompt, .position = static_cast<std::uint64_t>(known_)};
    if (!options_.seeds.empty()) place = {.seed = options_.seeds[prompt], .prompt = 0, .position = place.position};
    const std::int64_t token = sample_token(logits, options_.sampling, uniform_number(place), row.tokens);
    row.tokens.push_back(token);
    const bool is_stopped = options_.on_token && options_.on_token(prompt, token);
    if (std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), token) != options_.stop_tokens.end())
      finish(row, SequenceEnd::stop_token);
    else if (is_stopped)
      finish(row, SequenceEnd::stopped);
    else
      finish_full(row);
  }

  void finish_full(Row& row) const {
    if (size_of(row.tokens) >= row.most)
      finish(row, SequenceEnd::length);
    else if (options_.at_context_end == ContextEnd::stop && size_of(row.tokens) >= options_.context)
      finish(row, SequenceEnd::context);
  }

  static void finish(Row& row, SequenceEnd end) {
    row.end = end;
    row.length = size_of(row.tokens);
  }

  Pipeline& pipeline_;
  const GenerateOptions& options_;
  std::size_t first_prompt_ = 0;  // number of the first row's prompt
  InferenceSession session_;
  bool is_used_ = false;
  std::vector<Row> rows_;
  std::int64_t known_ = 0;  // number of tokens that all rows have
  std::int64_t fed_ = 0;    // number of these that were submitted
  std::int64_t begin_ = 0;  // index of the first token in the session's memory
  std::optional<InferResult> result_;
};

void check(const GenerateOptions& options, const std::vector<Tokens>& prompts) {
  require<ConfigError>(options.tokens >= 0, "generate ", options.tokens, " tokens: pass 0 or more");
  require<ConfigError>(options.context >= 2, "a context of ", options.context, " tokens: generation needs 2 or more");
  check(options.sampling);
  require<ConfigError>(!prompts.empty(), "nothing to continue: pass at least one prompt");
  require<ConfigError>(options.seeds.empty() || options.seeds.size() == prompts.size(), options.seeds.size(),
                       " seeds for ", prompts.size(), " prompts: pass one for each, or none");
  for (const Tokens& prompt : prompts) {
    require<ConfigError>(!prompt.empty(), "an empty prompt: pass at least one token to start with");
    require<ConfigError>(options.at_context_end == ContextEnd::restart || size_of(prompt) <= options.context,
                         "a prompt of ", size_of(prompt), " tokens, but the model's context is ", options.context,
                         ": pass a shorter one");
  }
}

Generator::Generator(Pipeline& pipeline, GenerateOptions options) : pipeline_(pipeline), options_(std::move(options)) {}

Generator::~Generator() = default;

void Generator::distribute(const std::vector<Tokens>& prompts) {
  const auto count = static_cast<std::int64_t>(prompts.size());
  const int sessions = static_cast<int>(std::min<std::int64_t>(count, pipeline_.options().micro_batches));
  batches_.resize(std::min(batches_.size(), static_cast<std::size_t>(sessions)));
  for (int i = 0; i < sessions; ++i) {
    const RowRange rows = split(count, {.index = i, .of = sessions});
    if (static_cast<std::size_t>(i) == batches_.size())
      batches_.push_back(std::make_unique<Batch>(pipeline_, options_));
    batches_[static_cast<std::size_t>(i)]->begin({prompts.begin() + rows.begin, prompts.begin() + rows.end},
                                                 static_cast<std::size_t>(rows.begin));
  }
}

Generated Generator::generate(const std::vector<Tokens>& prompts) {
  check(options_, prompts);
  const std::int64_t begin = now_ns();
  distribute(prompts);
  const auto submit = [](const auto& batch) {
    if (!batch->is_done()) batch->submit();
  };
  std::for_each(batches_.begin(), batches_.end(), submit);
  // While the tokens of one batch are sampled, the other batches are in the pipeline.
  while (!std::all_of(batches_.begin(), batches_.end(), [](const auto& batch) { return batch->is_done(); }))
    for (const auto& batch : batches_) {
      if (batch->is_done()) continue;
      batch->advance();
      submit(batch);
    }

  Generated generated;
  for (const auto& batch : batches_) batch->give(generated);
  generated.seconds = s_since(begin);
  return generated;
}

}  // namespace penstock
