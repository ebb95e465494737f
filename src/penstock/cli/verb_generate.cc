// `penstock generate`: continues texts, or answers in a chat, with the model of a Hugging Face directory.
#include <poll.h>
#include <unistd.h>

#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/log.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/config_file.h"
#include "penstock/cli/job.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/verbs.h"
#include "penstock/hf/model.h"
#include "penstock/text/chat.h"
#include "penstock/text/text_stream.h"
#include "penstock/train/generator.h"
#include "penstock/world/collectives.h"
#include "penstock/world/rank_threads.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

struct GenerateFlags {
  JobFlags job;
  std::vector<std::string> prompts;
  std::int64_t tokens = 256;
  bool greedy = false;
  SamplingOptions sampling;
  std::vector<std::string> stops;
  bool chat = false;
  bool raw = false;
  std::string system;
  std::string json;
};

void check(const GenerateFlags& flags) {
  require<ConfigError>(hf_directory(flags.job.network).has_value(), "generate with --model ", flags.job.network.model,
                       ": pass --model hf:DIR; 'penstock infer --generate' continues texts with --model gpt");
  require<ConfigError>(flags.chat || !flags.prompts.empty(), "nothing to continue: pass --prompt TEXT, or --chat");
  require<ConfigError>(flags.chat || flags.system.empty(), "--system without --chat: leave it out");
  require<ConfigError>(flags.chat || !flags.raw, "--raw without --chat: leave it out, a --prompt is not changed");
  for (const std::string& prompt : flags.prompts)
    require<ConfigError>(!prompt.empty(), "an empty prompt: pass at least one character to start with");
  require<ConfigError>(flags.tokens >= 0, "--tokens ", flags.tokens, ": pass 0 or more");
  penstock::check(flags.sampling);
  if (!flags.json.empty()) require_place_for(flags.json);
}

/// More prompts in a session read the weights less often; more sessions keep more ranks busy. The number does not depend
/// on the ranks, so that the texts do not.
int sessions_for(std::size_t prompts) {
  constexpr std::size_t in_session = 4;
  return static_cast<int>(std::max<std::size_t>(1, (prompts + in_session - 1) / in_session));
}

const char* name_of(SequenceEnd end) {
  switch (end) {
    case SequenceEnd::length: return "length";
    case SequenceEnd::stop_token: return "stop token";
    case SequenceEnd::stopped: return "stop text";
    case SequenceEnd::context: return "context";
  }
  return "";
}

/// Waits until standard input has a line or ends. The other ranks see that this one is alive.
void wait_for_line(const RankContext& context) {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (std::cin.rdbuf()->in_avail() <= 0 && poll(&input, 1, /*ms=*/1000) == 0)
    report_progress_of(context, "wait for the user's next line");
}

/// The next line that the user types on rank 0, on every rank; none at the end of the input.
std::optional<std::string> next_line(const World& world, std::uint64_t turn) {
  std::string told;  // the line after a mark; nothing at the end of the input
  ranks_of(world).run_on_local_ranks([&](const RankContext& context) {
    Message message;
    if (context.rank == WorldRank(0)) {
      std::cerr << "> " << std::flush;
      wait_for_line(context);
      std::string line;
      message = transport::message_of(std::getline(std::cin, line) ? "+" + line : std::string());
    }
    const Message line =
        broadcast(context, control_tag(pipeline_of_world, Topic::user_line, turn), message, "the user's next line");
    if (context.collects) told = transport::text_in(line);
  });
  if (told.empty()) return std::nullopt;
  return told.substr(1);
}

GenerateOptions options_of(const GenerateFlags& flags, const Tokenizer& tokenizer) {
  return {.tokens = flags.tokens,
          .context = context_of(flags.job.network),
          .sampling = flags.sampling,
          .seed = flags.job.pipeline.seed,
          .stop_tokens = tokenizer.stop_ids()};
}

/// Continues texts, and shows them on the main process while they grow.
class Writer {
 public:
  Writer(const GenerateFlags& flags, Pipeline& pipeline, const Tokenizer& tokenizer)
      : flags_(flags),
        tokenizer_(tokenizer),
        is_shown_(pipeline.world().is_main() && flags.json != "-"),
        generator_(pipeline, watched(options_of(flags, tokenizer))) {}

  /// The continuations of `prompts`. A single one is shown while it grows, several one after the other at the end.
  std::vector<std::string> write(const std::vector<Tokens>& prompts) {
    streams_.clear();
    for (std::size_t i = 0; i < prompts.size(); ++i) streams_.emplace_back(tokenizer_, flags_.stops);
    const Generated generated = generator_.generate(prompts);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      show(streams_[i].finish());
      texts.push_back(streams_[i].text());
      ends_.push_back(name_of(generated.ends[i]));
      if (prompts.size() > 1 && is_shown_) std::cout << "prompt " << i << "\n" << texts.back() << "\n";
    }
    if (prompts.size() == 1 && is_shown_) std::cout << std::endl;
    texts_.insert(texts_.end(), texts.begin(), texts.end());
    total_.tokens += generated.tokens;
    total_.seconds += generated.seconds;
    return texts;
  }

  Json json() const {
    return {{"texts", texts_},
            {"ends", ends_},
            {"tokens", total_.tokens},
            {"seconds", total_.seconds},
            {"tokens_per_s", total_.tokens_per_second()}};
  }
  std::string speed_text() const {
    return say(total_.tokens, " tokens in ", total_.seconds, " s: ", total_.tokens_per_second(), " a second");
  }

 private:
  GenerateOptions watched(GenerateOptions options) {
    options.on_token = [this](std::size_t prompt, std::int64_t token) {
      show(streams_[prompt].add(token));
      return streams_[prompt].is_stopped();
    };
    return options;
  }
  void show(const std::string& text) const {
    if (is_shown_ && streams_.size() == 1) std::cout << text << std::flush;
  }

  const GenerateFlags& flags_;
  const Tokenizer& tokenizer_;
  bool is_shown_;
  std::vector<TextStream> streams_;
  Generator generator_;
  std::vector<std::string> texts_, ends_;
  Generated total_;  // tokens and seconds of all calls
};

/// A conversation: the prompts, or else the lines that the user types, each answered in turn.
void chat(Writer& writer, const GenerateFlags& flags, const Tokenizer& tokenizer, const World& world) {
  std::vector<ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({"system", flags.system});
  for (std::size_t turn = 0;; ++turn) {
    const bool is_typed = flags.prompts.empty();
    if (!is_typed && turn == flags.prompts.size()) return;
    const std::optional<std::string> line = is_typed ? next_line(world, turn) : flags.prompts[turn];
    if (!line) return;
    if (line->empty()) continue;
    messages.push_back({"user", *line});
    const std::string prompt = flags.raw ? *line : render_chat(tokenizer, messages).text;
    const Tokens tokens = tokenizer.encode(prompt, {.special_tokens = flags.raw});
    messages.push_back({"assistant", writer.write({tokens}).front()});
  }
}

int generate(GenerateFlags flags) {
  settle(flags.job);
  check(flags);
  if (flags.greedy) flags.sampling.temperature = 0;
  int& sessions = flags.job.pipeline.micro_batches;
  if (sessions == 0) sessions = sessions_for(flags.prompts.size());
  const std::string directory = *hf_directory(flags.job.network);
  const auto tokenizer = Tokenizer::load(directory);
  const hf::Config config = hf::read_config(directory);
  tokenizer->require_fits(config.vocabulary);
  if (flags.chat && !flags.raw) (void)render_chat(*tokenizer, {{"user", "?"}});  // throws for an unknown template

  ModelFlags& network = flags.job.network;
  const auto sample = [&, trained = network] { return random_batch(trained, sessions, flags.job.pipeline.seed); };
  if (!network.context) network.context = config.context;
  std::vector<Tokens> prompts;  // a chat encodes each message in its turn
  if (!flags.chat) {
    for (const std::string& prompt : flags.prompts) prompts.push_back(tokenizer->encode(prompt));
    penstock::check(options_of(flags, *tokenizer), prompts);  // before ranks start
  }
  Job job(flags.job, Use::forward);
  const auto pipeline = job.make_pipeline({.sample = sample});
  const World& world = job.world();
  if (world.is_main()) log(LogLevel::info, say(describe(flags.job.network), ": ", world.describe()));

  Writer writer(flags, *pipeline, *tokenizer);
  if (flags.chat)
    chat(writer, flags, *tokenizer, world);
  else
    writer.write(prompts);
  if (!world.is_main()) return 0;
  log(LogLevel::info, writer.speed_text());
  if (!flags.json.empty()) write_text(flags.json, json_text(writer.json()) + "\n");
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("generate", "continue texts, or chat, with a Hugging Face model");
  auto flags = std::make_shared<GenerateFlags>();
  flags->job.add_network_to(*verb);
  in_theme(*verb, "Text");
  verb->add_option("--prompt", flags->prompts, "text to continue, or with --chat a message; may be given several times")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  verb->add_option("--tokens", flags->tokens, "generate at most this number of tokens")->capture_default_str();
  verb->add_flag("--greedy", flags->greedy, "always the most likely token, as --temperature 0");
  verb->add_option("--temperature", flags->sampling.temperature, "sampling temperature")->capture_default_str();
  verb->add_option("--top-k", flags->sampling.top_k, "sample among this number of the most likely tokens; 0: all")
      ->capture_default_str();
  verb->add_option("--top-p", flags->sampling.top_p, "sample among the fewest tokens that have this probability")
      ->capture_default_str();
  verb->add_option("--repetition-penalty", flags->sampling.repetition_penalty,
                   "above 1: tokens that have occurred become less likely")
      ->capture_default_str();
  verb->add_option("--stop", flags->stops, "end before this text; may be given several times")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  verb->add_flag("--chat", flags->chat, "answer messages: each --prompt, or else each line of standard input");
  verb->add_option("--system", flags->system, "with --chat: the message that tells the model its role");
  verb->add_flag("--raw", flags->raw, "with --chat: messages are passed as they are, without the model's template");
  flags->job.pipeline.micro_batches = 0;
  flags->job.add_pipeline_to(*verb);
  verb->get_option("--micro-batches")
      ->description("sessions that go through the stages one after the other; auto: one for every 4 prompts")
      ->default_str("auto");
  flags->job.add_tuning_to(*verb);
  in_theme(*verb, "Output");
  verb->add_option("--json", flags->json, "one JSON object, to this file or - (stdout)");
  verb->footer(
      "Example:\n"
      "  penstock generate --model hf:SmolLM2-135M-Instruct --prompt \"The capital of France is\" --greedy\n"
      "  mpirun -n 2 penstock generate --model hf:SmolLM2-135M-Instruct --stages 2 --chat");
  add_config_flags(*verb);
  set_work(*verb, exit_code, [flags] { return generate(*flags); });
}

}  // namespace penstock::cli
