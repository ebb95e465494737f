#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/export_weights.h"
#include "penstock/cli/verbs.h"
#include "penstock/hf/export.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::vector<std::string>>;

struct CheckpointChoice {
  std::string directory;

  void add_to(CLI::App& verb) {
    verb.add_option("directory", directory, "a folder of checkpoints, or one of the checkpoints in it")
        ->type_name("DIR")
        ->required();
  }
  bool is_one() const { return is_checkpoint(directory); }
  /// Calls `visit` for all checkpoints, newest first. Throws DataError if there is none.
  void for_each(const std::function<void(const OpenedCheckpoint&)>& visit) const {
    bool is_any = false;
    visit_checkpoints(directory, [&](const OpenedCheckpoint& opened) {
      is_any = true;
      visit(opened);
    });
    require<DataError>(is_any, directory, ": there is no checkpoint");
  }
};

struct ExportChoice {
  CheckpointChoice from;
  std::string format = "safetensors";
  std::string output;
  std::string original;
  std::optional<std::uint64_t> most_bytes;
};

/// Of a text like 500MB: parse_bytes(), and as well units in other cases or without their B, as 2g or 40KB, and plain
/// numbers of bytes. Throws ConfigError if it is not a positive number.
std::uint64_t parse_shard_size(const std::string& text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto begin = std::find_if_not(text.rbegin(), text.rend(), is_letter).base();
  std::string unit(begin, text.end());
  std::transform(unit.begin(), unit.end(), unit.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (!unit.ends_with('b')) unit += 'b';
  // Of the units only kB begins with a small letter; KiB, like all others, does not.
  unit.back() = 'B';
  if (unit != "kB") unit.front() = static_cast<char>(unit.front() & ~32);
  const auto bytes = parse_bytes(std::string(text.begin(), begin) + unit);
  require<ConfigError>(bytes && *bytes > 0, "--max-shard-size ", text,
                       ": pass a positive number of bytes, such as 500MB or 1.5GB; the units are ", byte_unit_names);
  return static_cast<std::uint64_t>(*bytes);
}

std::string name_of_path(const std::string& path) { return fs::path(path + "/").parent_path().filename().string(); }

std::string size_text(std::uint64_t bytes) {
  constexpr double step = 1000;
  auto size = static_cast<double>(bytes);
  for (const char* unit : {" B", " kB", " MB", " GB"}) {
    if (size < step) return (bytes < 1000 ? std::to_string(bytes) : fixed(size, 1)) + unit;
    size /= step;
  }
  return fixed(size, 1) + " TB";
}

std::string totals_text(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  std::size_t tensors = 0;
  for (const FileRecord& file : manifest.files) {
    bytes += file.bytes;
    tensors += file.tensors.size();
  }
  return say(tensors, " tensors, ", size_text(bytes));
}

std::string shown_text(const StateValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text) return "'" + printable(*text) + "'";
  return std::visit([](const auto& one) { return say(one); }, value);
}

/// Everything that the manifest records but the tensors.
std::string description(const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  std::string text =
      say(checkpoint.directory(), ": ", totals_text(manifest), ", written by ", printable(manifest.written_by), "\n");
  text += say("position: ", counted(manifest.step, "step"), " done, of which ", manifest.data.step_in_epoch,
              " in epoch ", manifest.data.epoch, "; seed ", manifest.seed, ", of the data ", manifest.data.seed, "\n");
  text += say("bits depend on: ", manifest.bits.micro_batches, " micro-batches, ",
              counted(manifest.bits.replicas, "replica"), ", ", counted(manifest.bits.threads, "thread"),
              " per rank, kernels ", printable(manifest.bits.kernels), ", precision ",
              printable(manifest.bits.precision), ", grouping ", printable(manifest.bits.grouping), "\n");
  for (const auto& [owner, values] : manifest.states) {
    text += say("state ", printable(owner), ":");
    for (const auto& [name, value] : values) text += say(" ", printable(name), " ", shown_text(value));
    text += "\n";
  }
  Rows rows{{"rank", "kind", "tensors", "bytes", "file"}};
  for (const FileRecord& file : manifest.files)
    rows.push_back({file.owner ? std::to_string(*file.owner) : "-", std::string(to_string(file.kind)),
                    std::to_string(file.tensors.size()), std::to_string(file.bytes), file.name});
  return text + aligned(rows);
}

void show_checkpoints(const CheckpointChoice& choice) {
  const bool is_one = choice.is_one();
  std::string list, first;
  choice.for_each([&](const OpenedCheckpoint& opened) {
    require<DataError>(opened.checkpoint || !is_one, opened.problem);
    list += name_of_path(opened.path);
    if (opened.checkpoint) {
      list += say(": ", totals_text(opened.checkpoint->manifest()), "\n");
      if (first.empty()) first = description(*opened.checkpoint);
    } else {
      list += say(opened.may_be_whole ? ": not readable: " : ": damaged: ", opened.problem, "\n");
    }
  });
  if (!is_one) std::cout << list;
  require<DataError>(!first.empty(), choice.directory, ": there is no complete checkpoint");
  std::cout << (is_one ? "" : "\n") << first;
}

void verify_checkpoints(const CheckpointChoice& choice) {
  std::vector<std::string> damage;
  choice.for_each([&](const OpenedCheckpoint& opened) {
    const std::string name = name_of_path(opened.path);
    const auto found = opened.checkpoint ? opened.checkpoint->damage() : std::vector<std::string>{opened.problem};
    if (found.empty()) std::cout << name << ": complete, " << totals_text(opened.checkpoint->manifest()) << "\n";
    for (const std::string& line : found) std::cout << name << ": " << line << "\n";
    damage.insert(damage.end(), found.begin(), found.end());
  });
  require<DataError>(damage.empty(), damage.empty() ? "" : damage.front(),
                     damage.size() > 1 ? say(" (and ", damage.size() - 1, " more)") : std::string());
}

void export_checkpoint(const ExportChoice& choice) {
  std::optional<Checkpoint> checkpoint;
  if (choice.from.is_one()) {
    checkpoint.emplace(choice.from.directory);
  } else {
    NewestCheckpoint newest = newest_checkpoint(choice.from.directory, CheckpointCheck::checksums);
    for (const std::string& line : newest.damaged) std::cerr << "penstock: skipped: " << line << "\n";
    require<DataError>(newest.checkpoint.has_value(), choice.from.directory,
                       newest.damaged.empty() ? ": there is no checkpoint" : ": there is no complete checkpoint");
    checkpoint = std::move(newest.checkpoint);
  }
  const bool is_hf = choice.format == "hf", is_adapter = choice.format == "peft";
  require<ConfigError>(is_hf || is_adapter || choice.original.empty(), "--original ", choice.original,
                       " is for --format hf and peft: leave it out");
  require<ConfigError>(!is_adapter || !choice.most_bytes,
                       "--max-shard-size is not for --format peft, which writes one file: leave it out");
  hf::DirectoryExport directory{choice.output, choice.original};
  directory.most_bytes = choice.most_bytes.value_or(directory.most_bytes);
  for (const std::string& path : is_hf        ? hf::export_directory(*checkpoint, directory)
                                 : is_adapter ? hf::export_adapter(*checkpoint, directory)
                                              : export_weights(*checkpoint, choice.output, choice.most_bytes))
    std::cout << path << "\n";
}

}  // namespace

void add_checkpoint_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("checkpoint", "inspect checkpoints of a training, and export their weights");
  verb->footer("Example:\n  penstock checkpoint verify run/checkpoints");

  CLI::App* show = verb->add_subcommand("show", "list the checkpoints of a folder, and describe the newest or one");
  auto shown = std::make_shared<CheckpointChoice>();
  shown->add_to(*show);
  show->footer("Example:\n  penstock checkpoint show run/checkpoints");
  show->callback([shown] { show_checkpoints(*shown); });

  CLI::App* verify = verb->add_subcommand(
      "verify", "compare all checksums of one checkpoint or all; the exit code is 2 if one of them is damaged");
  auto verified = std::make_shared<CheckpointChoice>();
  verified->add_to(*verify);
  verify->footer("Example:\n  penstock checkpoint verify run/checkpoints/step-00000100");
  verify->callback([verified] { verify_checkpoints(*verified); });

  CLI::App* to_file = verb->add_subcommand(
      "export", "write parameters and buffers of the newest complete checkpoint, or one, as .safetensors");
  auto wanted = std::make_shared<ExportChoice>();
  wanted->from.add_to(*to_file);
  to_file
      ->add_option("--format", wanted->format,
                   "safetensors: a file; of a model hf:DIR, hf: a directory for transformers, with adapters merged; "
                   "peft: one with the adapters for PEFT")
      ->check(CLI::IsMember({"safetensors", "hf", "peft"}))
      ->capture_default_str();
  to_file->add_option("--output", wanted->output, "the file to write; its name ends with .safetensors; or a directory")
      ->type_name("PATH")
      ->required();
  to_file
      ->add_option("--original", wanted->original, "hf, peft: the model's directory (default: the training's hf:DIR)")
      ->type_name("DIR");
  to_file
      ->add_option_function<std::string>(
          "--max-shard-size", [wanted](const std::string& text) { wanted->most_bytes = parse_shard_size(text); },
          "bytes of one file, as 500MB or 2GB: several files beside it, and an index (default: no limit; hf: 5GB)")
      ->type_name("BYTES");
  to_file->footer(
      "Example:\n"
      "  penstock checkpoint export run/checkpoints --output model.safetensors\n"
      "  penstock checkpoint export run/checkpoints --format hf --output fine-tuned");
  to_file->callback([wanted] { export_checkpoint(*wanted); });
}

}  // namespace penstock::cli
