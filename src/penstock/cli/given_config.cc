#include "penstock/cli/given_config.h"

#include "penstock/base/text.h"
#include "penstock/cli/checkpoint_flags.h"

namespace penstock {

std::optional<ConfigText> given_config(const ConfiguredLine& line, const CLI::App& program) {
  const auto file = line.value_of(program, "--config");
  if (!file) return std::nullopt;
  return ConfigText{*file, read_text(*file, {.most_bytes = most_settings_bytes})};
}

std::optional<ConfigText> stored_config(const ConfiguredLine& line, const CLI::App& program) {
  const auto folder = line.value_of(program, "--resume");
  if (!folder || *folder == resume_if_possible) return std::nullopt;
  const auto stored = stored_settings(*folder);
  if (!stored) return std::nullopt;
  return ConfigText{.file = stored->path, .text = stored->text, .is_stored = true};
}

}  // namespace penstock
