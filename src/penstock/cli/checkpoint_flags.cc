#include "penstock/cli/checkpoint_flags.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/value_flags.h"

namespace penstock::cli {
namespace {

constexpr const char* settings_file = "train.toml";
constexpr const char* kernels_file = "kernels.txt";

/// Refuses the empty text, which comes from a script that uses a variable without a value.
CLI::Validator is_a_folder_name() {
  return {[](const std::string& text) {
            return std::string(text.empty() ? "an empty name of a folder: leave the flag out, or pass one" : "");
          },
          ""};
}

/// The newest complete checkpoint of a folder, or the one whose directory `path` is.
NewestCheckpoint newest_at(const std::string& path) {
  NewestCheckpoint newest;
  if (!may_exist(path)) return newest;
  if (!is_checkpoint(path)) return newest_checkpoint(path, CheckpointCheck::structure);
  newest.checkpoint.emplace(path);
  return newest;
}

/// The text file called `name`; empty if there is none.
std::string text_called(const Checkpoint& checkpoint, const std::string& name) {
  const auto& files = checkpoint.manifest().files;
  for (std::size_t i = 0; i < files.size(); ++i)
    if (files[i].kind == FileKind::text && files[i].name == name) {
      require<DataError>(files[i].bytes <= most_settings_bytes, "'", checkpoint.directory(), "/", name, "' has ",
                         files[i].bytes, " bytes: more than the ", most_settings_bytes, " that are accepted");
      return checkpoint.text(i);
    }
  return "";
}

/// The whole number at the start of `text`, which is shortened by it; none if there is none above 0.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 1) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

}  // namespace

std::optional<StoredSettings> stored_settings(const std::string& path) {
  const auto checkpoint = newest_at(path).checkpoint;
  if (!checkpoint) return std::nullopt;
  std::string text = text_called(*checkpoint, settings_file);
  if (text.empty()) return std::nullopt;
  return StoredSettings{checkpoint->directory() + "/" + settings_file, std::move(text)};
}

void CheckpointFlags::add_to(CLI::App& verb) {
  in_theme(verb, "Checkpoints");
  verb.add_option("--checkpoint", folder,
                  "write checkpoints into this folder: at intervals, at the end, and when SIGTERM, SIGINT or SIGUSR1 "
                  "ends the training after its step (a second signal ends it at once)")
      ->type_name("DIR")
      ->check(is_a_folder_name());
  verb.add_option("--checkpoint-every", every, "the interval: 600s, 100steps (or 100), 1epochs (default: 600s)")
      ->type_name("N[s|steps|epochs]");
  verb.add_option("--checkpoint-keep", keep, "complete checkpoints to keep, at least 2 (default: 2)")->type_name("K");
  verb.add_option(
          "--resume", resume,
          "continue from the newest complete checkpoint of this folder, with its settings where no flag gives "
          "others, and write there unless --checkpoint names another; auto: from that of --checkpoint, or begin "
          "if there is none")
      ->type_name("DIR|auto")
      ->check(is_a_folder_name());
  verb.add_option("--max-time", max_time,
                  "after this time save a checkpoint and end with exit code 75, before a scheduler does")
      ->type_name("[D-]H:MM:SS");
}

void CheckpointFlags::settle() {
  require<ConfigError>(resume != resume_if_possible || writes(), "--resume auto continues from the newest checkpoint ",
                       "of --checkpoint, which is not set: pass both, or --resume DIR");
  if (folder.empty() && resumes()) folder = folder_of_checkpoints(resume);
  require<ConfigError>(writes() || (!every && !keep && max_time.empty()),
                       every  ? "--checkpoint-every"
                       : keep ? "--checkpoint-keep"
                              : "--max-time",
                       " is for checkpoints: pass --checkpoint DIR, too");
  require<ConfigError>(keep.value_or(2) >= 2, "--checkpoint-keep ", keep.value_or(2),
                       ": at least 2 are kept, because the newest may turn out to be damaged");
  interval();
  longest_time();
}

bool CheckpointFlags::continues_in_place() const {
  if (!resumes() || !writes()) return false;
  std::error_code code;  // folders that are not there are not the same
  return std::filesystem::equivalent(folder, folder_of_checkpoints(source()), code);
}

CheckpointEvery CheckpointFlags::interval() const {
  if (!every) return {.seconds = 600};
  std::string_view unit = *every;
  const auto number = take_number(unit);
  if (number && unit == "s") return {.seconds = static_cast<double>(*number)};
  if (number && (unit.empty() || unit == "steps" || unit == "step")) return {.steps = *number};
  if (number && (unit == "epochs" || unit == "epoch")) return {.epochs = *number};
  throw ConfigError(
      say("--checkpoint-every ", *every, ": pass a whole number above 0 and its unit: 600s, 100steps or ", "1epochs"));
}

std::optional<double> CheckpointFlags::longest_time() const {
  if (max_time.empty()) return std::nullopt;
  return parse_time_limit("--max-time", max_time);
}

std::optional<RecordedRun> recorded_run(const CheckpointFlags& flags) {
  if (!flags.resumes()) return std::nullopt;
  const auto newest = newest_at(flags.source());
  const auto& checkpoint = newest.checkpoint;
  require<ConfigError>(checkpoint || flags.resume == resume_if_possible, "--resume ", flags.resume,
                       ": there is no complete checkpoint",
                       newest.damaged.empty() ? "" : "; the newest one: " + newest.damaged.front());
  if (!checkpoint) return std::nullopt;
  RecordedRun run{checkpoint->manifest(), checkpoint->directory()};
  run.kernel_selection = text_called(*checkpoint, kernels_file);
  run.settings = text_called(*checkpoint, settings_file);
  if (checkpoint->frozen())
    run.has_all_weights =
        std::ranges::none_of(*checkpoint->frozen(), [](const auto& parameter) { return parameter.second.has_value(); });
  for (std::size_t i = 0; i < run.manifest.files.size() && run.weight_metadata.empty(); ++i)
    if (run.manifest.files[i].kind == FileKind::model) run.weight_metadata = checkpoint->metadata(i);
  return run;
}

HeldTensors tensors_of(const RecordedRun& recorded) {
  HeldTensors held{recorded.directory};
  for (const FileRecord& file : recorded.manifest.files) {
    if (file.kind != FileKind::model) continue;
    for (const TensorRecord& tensor : file.tensors) {
      double elements = 1;
      for (const std::int64_t size : tensor.shape) elements *= static_cast<double>(size);
      held.elements += elements;
      ++held.tensors;
    }
  }
  return held;
}

void keep_recorded_bits(const RecordedRun& recorded, JobFlags& flags) {
  const BitSettings& bits = recorded.manifest.bits;
  PipelineOptions& pipeline = flags.pipeline;
  if (pipeline.schedule == "auto") {
    if (pipeline.micro_batches == 0) pipeline.micro_batches = static_cast<int>(bits.micro_batches);
    const auto grouping = weight_gradients_named(bits.grouping);
    if (!flags.weight_gradients && (grouping == WeightGradients::stream || grouping == WeightGradients::fused))
      flags.weight_gradients = grouping;
  }
  pipeline.kernel_selection = recorded.kernel_selection;
}

std::vector<CheckpointText> texts_of_run(const std::string& settings, const Pipeline& pipeline) {
  std::vector<CheckpointText> texts{{settings_file, settings}};
  const PipelineOptions& options = pipeline.options();
  if (options.kernels == Kernels::tuned) texts.push_back({kernels_file, options.kernel_selection});
  return texts;
}

}  // namespace penstock::cli
