#include "penstock/cli/config_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <set>
#include <sstream>

#include <toml++/toml.h>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/transport/joining/launch_environment.h"

namespace penstock {
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

/// The text in ASCII, with escapes between double quotes and dots in comments: toml++ 3.3 has undefined behaviour for
/// other letters where it looks for blanks. Throws ConfigError for letters elsewhere, for texts of several lines, and for
/// keys of more than two parts, whose tables toml++ would destroy recursively.
std::string in_ascii(const ConfigText& config) {
  const std::string_view text = config.text;
  std::string ascii;
  int line = 1, dots = 0;  // dots since the last character that ends a key or a number, which has one
  char around = 0;         // the quote or '#' that began what the character is in
  const auto refuse_if = [&](bool is_wrong, const char* what) {
    require<ConfigError>(!is_wrong, config.file, ":", line, ": ", what);
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (static_cast<unsigned char>(c) >= 0x80) {
      std::size_t length = 2;
      while (length < 4 && utf8_prefix(text.substr(at, length)) == 0) ++length;
      refuse_if(utf8_prefix(text.substr(at, length)) == 0, "this is not UTF-8");
      refuse_if(around != '"' && around != '#', "letters beyond ASCII stand between double quotes");
      std::uint32_t code = static_cast<unsigned char>(c) & (0x7fU >> length);
      for (; --length > 0;) code = code << 6 | (static_cast<unsigned char>(text[++at]) & 0x3fU);
      char escape[12];
      std::snprintf(escape, sizeof(escape), "\\U%08X", static_cast<unsigned>(code));
      ascii += around == '"' ? escape : ".";
      continue;
    }
    ascii += c;
    if (c == '\n') {
      ++line;
      around = 0;
      dots = 0;
    } else if (around == 0) {
      const std::string_view three = text.substr(at, 3);
      refuse_if(three == "\"\"\"" || three == "'''", "a text of several lines, which no flag takes");
      if (c == '"' || c == '\'' || c == '#') around = c;
      if (c == '=' || c == ',' || c == '{') dots = 0;
      refuse_if(c == '.' && ++dots > 1, "keys within keys within keys: write the keys without tables");
    } else if (c == around && c != '#') {
      around = 0;
    } else if (c == '\\' && around == '"' && at + 1 < text.size() && text[at + 1] != '\n') {
      refuse_if(static_cast<unsigned char>(text[at + 1]) >= 0x80, "a backslash stands before a letter beyond ASCII");
      ascii += text[++at];
    }
  }
  return ascii;
}

std::string with_dashes(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

/// The options of a verb in the order in which they were added.
std::vector<const CLI::Option*> options_of(const CLI::App& verb) {
  std::vector<const CLI::Option*> options;
  for (const CLI::Option* option : verb.get_options())
    if (!option->get_lnames().empty() && !not_in_files.contains(option->get_lnames().front()))
      options.push_back(option);
  return options;
}

/// The option with a name (without leading dashes); null if there is none.
const CLI::Option* find(const std::vector<const CLI::Option*>& options, const std::string& name) {
  for (const CLI::Option* option : options)
    if (std::find(option->get_lnames().begin(), option->get_lnames().end(), name) != option->get_lnames().end())
      return option;
  return nullptr;
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

/// The value as an argument of a command line; unset for a value of an unsupported type.
std::optional<std::string> argument_of(const toml::node& value, const Kind& kind) {
  if (kind.boolean && value.is_boolean()) return value.as_boolean()->get() ? "true" : "false";
  if (kind.whole && value.is_integer()) return std::to_string(value.as_integer()->get());
  if (kind.fraction && value.is_floating_point()) return shortest(value.as_floating_point()->get());
  if (kind.text && value.is_string()) return value.as_string()->get();
  return std::nullopt;
}

/// The arguments that correspond to `name = value`; unset for a value of the wrong type.
std::optional<std::vector<std::string>> arguments_of(const CLI::Option& option, const std::string& name,
                                                     const toml::node& value) {
  const Kind& kind = kind_of(option);
  const std::string begin = "--" + name + "=";  // the name as written in the file: a flag may have a --no- form
  std::vector<std::string> arguments;
  const bool takes_several = option.get_items_expected_max() > 1;
  const auto add = [&](const toml::node& item) {
    const auto argument = argument_of(item, kind);
    if (argument && (takes_several || arguments.empty()))
      arguments.push_back(begin + *argument);
    else if (argument)
      arguments.front() += "," + *argument;
    return argument.has_value();
  };
  const toml::array* list = value.as_array();
  if (!list) return add(value) ? std::optional(arguments) : std::nullopt;
  return kind.text && std::all_of(list->begin(), list->end(), add) ? std::optional(arguments) : std::nullopt;
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

ConfiguredLine::ConfiguredLine(const CommandLine& line) : arguments_(line.arguments, line.arguments + line.count) {}

ConfiguredLine::Place ConfiguredLine::verb_in(const CLI::App& program) const {
  Place place{&program, 1};
  for (; place.first_flag < arguments_.size(); ++place.first_flag) {
    const auto inner = place.verb->get_subcommands(
        [&](const CLI::App* app) { return app->get_name() == arguments_[place.first_flag]; });
    if (inner.empty()) break;
    place.verb = inner.front();
  }
  return place;
}

std::optional<std::string> ConfiguredLine::value_of(const CLI::App& program, const std::string& flag) const {
  const Place place = verb_in(program);
  std::optional<std::string> value;
  if (!place.verb->get_option_no_throw("--config")) return value;
  for (std::size_t i = place.first_flag; i < arguments_.size(); ++i) {
    if (arguments_[i].starts_with(flag + "=")) value = arguments_[i].substr(flag.size() + 1);
    if (arguments_[i] == flag && i + 1 < arguments_.size()) value = arguments_[i + 1];
  }
  return value;
}

void ConfiguredLine::read(const CLI::App& program, const ConfigText& config) {
  const auto [verb, first_flag] = verb_in(program);
  toml::table table;
  try {
    table = toml::parse(in_ascii(config), config.file);
  } catch (const toml::parse_error& error) {
    throw ConfigError(say(config.file, ":", error.source().begin.line, ": ", printable(error.description())));
  }
  const auto options = options_of(*verb);
  std::vector<const CLI::Option*> given;  // on the command line
  for (std::size_t i = first_flag; i < arguments_.size(); ++i)
    if (arguments_[i].starts_with("--"))
      given.push_back(find(options, arguments_[i].substr(2, arguments_[i].find('=') - 2)));
  std::vector<std::string> names;
  for (const CLI::Option* option : options)
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());

  std::vector<std::string> from_file;
  std::set<std::string> seen;
  for (const auto& [key, value] : table) {
    const std::string name = with_dashes(std::string(key.str())), shown = printable(key.str());
    const std::string place = say(config.file, ":", key.source().begin.line, ": ");
    const CLI::Option* option = find(options, name);
    require<ConfigError>(!value.is_table(), place, "a table, [", shown, "]: write the keys without tables");
    require<ConfigError>(option, place, "unknown key '", shown, "': did you mean '", nearest(name, names), "'?");
    const auto arguments = arguments_of(*option, name, value);
    require<ConfigError>(arguments.has_value(), place, "'", shown, "' is of type ", value.type(), ", but --", name,
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
      for (const std::string& argument : *arguments) require_below_here(argument, place);
    from_file.insert(from_file.end(), arguments->begin(), arguments->end());
  }
  arguments_.insert(arguments_.begin() + static_cast<std::ptrdiff_t>(first_flag), from_file.begin(), from_file.end());
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
    std::vector<std::string> values = option->count() > 0 ? option->reduced_results() : std::vector<std::string>();
    if (values.empty() && !option->get_default_str().empty()) values.push_back(option->get_default_str());
    const std::string& name = option->get_lnames().front();
    if (left_out.contains(name)) continue;
    if (values.empty() && option->get_expected_min() == 0) values.push_back("false");
    if (values.empty()) {
      out << "# " << name << " =\n";
      continue;
    }
    std::string text;
    for (const std::string& value : values) text += (text.empty() ? "" : ", ") + toml_value(*option, value);
    out << name << " = " << (option->get_items_expected_max() > 1 ? "[" + text + "]" : text) << "\n";
  }
  return out.str();
}

std::string changed_flags(const CLI::App& verb, const std::set<std::string>& names, const std::string& stored) {
  const auto values_in = [&](const std::string& text) {
    std::map<std::string, std::string> values;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t end = line.find(" = ");
      if (end != std::string::npos && names.contains(line.substr(0, end)))
        values[line.substr(0, end)] = line.substr(end + 3);
    }
    return values;
  };
  const auto now = values_in(config_text(verb)), before = values_in(stored);
  const auto shown = [](const std::map<std::string, std::string>& values, const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string("none") : printable(found->second);
  };
  std::string changes;
  for (const std::string& name : names)
    if (shown(now, name) != shown(before, name))
      changes += say(changes.empty() ? "" : ", ", name, " ", shown(now, name), " instead of ", shown(before, name));
  return changes;
}

bool print_config_instead(const CLI::App& verb) {
  if (verb.get_option("--print-config")->count() == 0) return false;
  if (launched_as_whole().rank == 0) std::cout << config_text(verb);
  return true;
}

}  // namespace penstock
