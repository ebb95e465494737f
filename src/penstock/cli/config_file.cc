#include "penstock/cli/config_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <sstream>

#include <toml++/toml.h>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/transport/joining/launch_environment.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

const std::set<std::string> not_in_files = {"help", "config", "print-config"};

/// Flags that name what a run writes.
const std::set<std::string> output_flags = {"dump",        "json",  "save-weights", "svg",
                                            "tensorboard", "trace", "tuning-cache"};

/// Throws ConfigError unless the value of `argument`, "--json=FILE", is below the current folder, or none of a file:
/// the settings of a checkpoint, which somebody else may have made, name nothing else that is written.
void require_below_here(const std::string& argument, const std::string& place) {
  const std::string value = argument.substr(argument.find('=') + 1);
  if (value.empty() || value == "-" || value == "off") return;
  std::error_code ignored;
  const fs::path here = fs::canonical(fs::current_path(ignored), ignored);
  const fs::path target = fs::weakly_canonical(fs::absolute(value, ignored), ignored);
  const auto [end, differs] = std::mismatch(here.begin(), here.end(), target.begin(), target.end());
  require<ConfigError>(!here.empty() && end == here.end(), place, argument.substr(0, argument.find('=')), " ",
                       printable(value),
                       " is not below the current folder: pass this flag yourself to write there again");
}

/// The text with '%' and bytes beyond ASCII as %XX: toml++ 3.3 has undefined behaviour for such bytes where it looks
/// for blanks. Throws ConfigError for what is not UTF-8, for escapes of '%', and for more dots than files have: each
/// may begin a table, and toml++ destroys tables recursively.
std::string in_ascii(const ConfigText& config) {
  const std::string& text = config.text;
  const auto refuse_at = [&](std::size_t at, const char* what) {
    if (at >= text.size()) return;
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(at);
    throw ConfigError(say(config.file, ":", 1 + std::count(text.begin(), end, '\n'), ": ", what));
  };
  refuse_at(utf8_prefix(text), "this is not UTF-8");
  for (const char* escape : {"\\u0025", "\\U00000025"}) refuse_at(text.find(escape), "write % without an escape");
  std::string ascii;
  int dots = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c == '.' && ++dots > 5000) refuse_at(at, "more than 5000 dots: write the keys without tables");
    if (c < 0x80 && c != '%') {
      ascii += text[at];
    } else {
      constexpr const char* digits = "0123456789ABCDEF";
      ascii += {'%', digits[c >> 4], digits[c & 15]};
    }
  }
  return ascii;
}

/// The inverse.
std::string from_ascii(std::string_view ascii) {
  std::string text;
  for (std::size_t at = 0; at < ascii.size(); ++at) {
    const bool is_code = ascii[at] == '%';
    text += is_code ? static_cast<char>(std::stoi(std::string(ascii.substr(at + 1, 2)), nullptr, 16)) : ascii[at];
    if (is_code) at += 2;
  }
  return text;
}

/// The option of `verb` with a name (without leading dashes) that files may set; null if there is none.
const CLI::Option* option_called(const CLI::App& verb, const std::string& name) {
  return not_in_files.contains(name) ? nullptr : verb.get_option_no_throw("--" + name);
}

/// The options that files may set, in the order in which they were added.
std::vector<const CLI::Option*> options_of(const CLI::App& verb) {
  std::vector<const CLI::Option*> options;
  for (const CLI::Option* option : verb.get_options())
    if (!option->get_lnames().empty() && !not_in_files.contains(option->get_lnames().front()))
      options.push_back(option);
  return options;
}

/// The types of TOML that a flag takes. Numbers and lists are accepted for texts, too: `hidden = [512, 512]`.
struct Kind {
  const char* wanted;
  bool boolean = false, whole = false, fraction = false, text = false;
};

constexpr Kind takes_flag{.wanted = "true or false", .boolean = true},
    takes_flag_or_text{.wanted = "true, false or a string in quotes", .boolean = true, .text = true},
    takes_whole{.wanted = "a whole number", .whole = true},
    takes_number{.wanted = "a number", .whole = true, .fraction = true},
    takes_text{.wanted = "a string in quotes", .whole = true, .text = true};

const Kind& kind_of(const CLI::Option& option) {
  const std::string full = option.get_type_name(), type = full.substr(0, full.find(':'));
  if (option.get_expected_min() == 0) return type == "TEXT" ? takes_flag_or_text : takes_flag;
  if (type == "INT" || type == "UINT") return takes_whole;
  return type == "FLOAT" ? takes_number : takes_text;
}

std::string shortest(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

/// The arguments that correspond to `name = value`; none for a value of the wrong type. `name` is as written in the
/// file: a flag may have a --no- form.
std::vector<std::string> arguments_of(const CLI::Option& option, const std::string& name, const toml::node& value) {
  const Kind& kind = kind_of(option);
  std::vector<const toml::node*> items{&value};
  if (const toml::array* list = kind.text ? value.as_array() : nullptr) {
    items.clear();
    for (const toml::node& item : *list) items.push_back(&item);
  }
  std::vector<std::string> arguments;
  for (const toml::node* item : items) {
    const bool begins = arguments.empty() || option.get_items_expected_max() > 1;
    std::string& text = begins ? arguments.emplace_back("--" + name + "=") : arguments.back().append(",");
    if (kind.boolean && item->is_boolean())
      text += item->as_boolean()->get() ? "true" : "false";
    else if (kind.whole && item->is_integer())
      text += std::to_string(item->as_integer()->get());
    else if (kind.fraction && item->is_floating_point())
      text += shortest(item->as_floating_point()->get());
    else if (kind.text && item->is_string())
      text += from_ascii(item->as_string()->get());
    else
      return {};
  }
  return arguments;
}

/// A value as the command line has it, as TOML.
std::string toml_value(const CLI::Option& option, const std::string& text) {
  const Kind& kind = kind_of(option);
  if (kind.boolean && (text.empty() || text == "true")) return "true";
  if (kind.boolean && !kind.text) return text == "1" || text == "on" || text == "yes" ? "true" : "false";
  if (kind.boolean && text == "false") return "false";
  if (kind.fraction) return shortest(std::strtod(text.c_str(), nullptr));  // the user may write .5
  if (!kind.text) return text;
  require<ConfigError>(utf8_prefix(text) == text.size(), "--", option.get_lnames().front(), " '", printable(text),
                       "' is not UTF-8, and a TOML file must be: pass the flag on the command line");
  return nlohmann::json(text).dump();  // TOML has the same quotes and escapes
}

}  // namespace

void add_config_flags(CLI::App& verb) {
  in_theme(verb, "Job");
  verb.add_option("--config", "a TOML file with these flags as its keys; flags on the command line take precedence");
  const std::string description = "print all flags with their values as such a file and exit";
  verb.add_flag("--print-config", description);
}

ConfiguredLine::ConfiguredLine(const CLI::App& program, const CommandLine& line)
    : arguments_(line.arguments, line.arguments + line.count), verb_(&program) {
  for (; first_flag_ < arguments_.size(); ++first_flag_) {
    const auto inner =
        verb_->get_subcommands([&](const CLI::App* app) { return app->get_name() == arguments_[first_flag_]; });
    if (inner.empty()) break;
    verb_ = inner.front();
  }
}

std::optional<std::string> ConfiguredLine::value_of(const std::string& flag) const {
  std::optional<std::string> value;
  if (!verb_->get_option_no_throw("--config")) return value;
  for (std::size_t i = first_flag_; i < arguments_.size(); ++i) {
    if (arguments_[i].starts_with(flag + "=")) value = arguments_[i].substr(flag.size() + 1);
    if (arguments_[i] == flag && i + 1 < arguments_.size()) value = arguments_[i + 1];
  }
  return value;
}

void ConfiguredLine::read(const ConfigText& config) {
  toml::table table;
  try {
    table = toml::parse(in_ascii(config), config.file);
  } catch (const toml::parse_error& error) {
    throw ConfigError(say(config.file, ":", error.source().begin.line, ": ", printable(error.description())));
  }
  std::vector<const CLI::Option*> given;  // on the command line
  for (std::size_t i = first_flag_; i < arguments_.size(); ++i)
    if (arguments_[i].starts_with("--"))
      given.push_back(option_called(*verb_, arguments_[i].substr(2, arguments_[i].find('=') - 2)));
  std::vector<std::string> names, from_file;
  for (const CLI::Option* option : options_of(*verb_))
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());

  std::set<std::string> seen;
  for (const auto& [key, value] : table) {
    std::string name = from_ascii(key.str());
    const std::string shown = printable(name), place = say(config.file, ":", key.source().begin.line, ": ");
    std::replace(name.begin(), name.end(), '_', '-');
    const CLI::Option* option = option_called(*verb_, name);
    const std::string removed = removal_of("--" + name);
    if (config.is_stored && !removed.empty()) continue;
    require<ConfigError>(removed.empty(), place, removed);
    require<ConfigError>(!value.is_table(), place, "a table, [", shown, "]: write the keys without tables");
    require<ConfigError>(option, place, "unknown key '", shown, "': did you mean '", nearest(name, names), "'?");
    const auto arguments = arguments_of(*option, name, value);
    require<ConfigError>(!arguments.empty(), place, "'", shown, "' is of type ", value.type(), ", but --", name,
                         " takes ", kind_of(*option).wanted);
    const std::string flag = "--" + option->get_lnames().front();
    require<ConfigError>(seen.insert(flag).second, place, "'", shown, "' is given a second time: '",
                         "-' and '_' are one, and so are a flag and its --no- form");
    const auto excluded = option->get_excludes();
    if (std::any_of(given.begin(), given.end(), [&](const CLI::Option* other) {
          return other == option || excluded.contains(const_cast<CLI::Option*>(other));
        }))
      continue;
    places_[flag] = place;
    if (config.is_stored && flag == "--checkpoint") continue;  // --resume names the folder, which may have been moved
    if (config.is_stored && output_flags.contains(option->get_lnames().front()))
      for (const std::string& argument : arguments) require_below_here(argument, place);
    from_file.insert(from_file.end(), arguments.begin(), arguments.end());
  }
  arguments_.insert(arguments_.begin() + static_cast<std::ptrdiff_t>(first_flag_), from_file.begin(), from_file.end());
}

CommandLine ConfiguredLine::arguments() {
  pointers_.clear();
  for (std::string& argument : arguments_) pointers_.push_back(argument.data());
  return {static_cast<int>(pointers_.size()), pointers_.data()};
}

std::string ConfiguredLine::place_of(const std::string& message) const {
  const auto found = places_.find(message.substr(0, message.find(':')));
  return found == places_.end() ? "" : found->second;
}

std::string config_text(const CLI::App& verb, const std::set<std::string>& left_out) {
  std::ostringstream out;
  out << "# penstock " << verb.get_name() << " --config FILE\n";
  for (const CLI::Option* option : options_of(verb)) {
    const std::string& name = option->get_lnames().front();
    if (left_out.contains(name)) continue;
    std::vector<std::string> values = option->count() > 0 ? option->reduced_results() : std::vector<std::string>();
    if (values.empty() && !option->get_default_str().empty()) values.push_back(option->get_default_str());
    if (values.empty() && option->get_expected_min() == 0) values.push_back("false");
    std::string text = listed(values, ", ", [&](const std::string& value) { return toml_value(*option, value); });
    if (option->get_items_expected_max() > 1) text = "[" + text + "]";
    out << (values.empty() ? "# " + name + " =" : name + " = " + text) << "\n";
  }
  return out.str();
}

std::string changed_flags(const CLI::App& verb, const std::set<std::string>& names, const std::string& stored) {
  const auto value_in = [](const std::string& text, const std::string& name) {
    const std::size_t at = text.find("\n" + name + " = "), begin = at + name.size() + 4;
    return at == std::string::npos ? "none" : printable(text.substr(begin, text.find('\n', begin) - begin));
  };
  const std::string now = config_text(verb);
  std::string changes;
  for (const std::string& name : names)
    if (const std::string value = value_in(now, name), before = value_in(stored, name); value != before)
      changes += say(changes.empty() ? "" : ", ", name, " ", value, " instead of ", before);
  return changes;
}

bool print_config_instead(const CLI::App& verb) {
  if (verb.get_option("--print-config")->count() == 0) return false;
  if (joining::launched_as_whole().rank == 0) std::cout << config_text(verb);
  return true;
}

}  // namespace penstock::cli
