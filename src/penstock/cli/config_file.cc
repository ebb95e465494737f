#include "penstock/cli/config_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
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
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

const std::set<std::string> not_in_files = {"help", "config", "print-config"};

/// Flags that name what a run writes.
const std::set<std::string> output_flags = {"dump",        "json",  "save-weights", "svg",
                                            "tensorboard", "trace", "tuning-cache"};

/// Flags whose stored value --resume replaces: the folder of the checkpoints may have been moved.
const std::set<std::string> replaced_by_resume = {"checkpoint"};

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
                       " is not below the current folder: give this flag yourself to write there again");
}

/// The code of the first character of UTF-8 text, and its number of bytes.
std::pair<std::uint32_t, std::size_t> first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::size_t length = byte(0) < 0x80 ? 1 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
  std::uint32_t code = length == 1 ? byte(0) : byte(0) & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3f);
  return {code, length};
}

/// A number has one, and tables are refused, so that a key needs none. Each makes a table, and toml++ destroys tables
/// recursively.
constexpr int most_dots = 1;

/// The text in ASCII: what is beyond becomes an escape between double quotes, and a dot in comments. With other letters
/// toml++ 3.3 has undefined behaviour where it looks for blanks. Throws ConfigError for such letters elsewhere, and for
/// texts of several lines, which no flag takes.
std::string in_ascii(const ConfigText& config) {
  const auto fail = [&](int line, const char* what) { throw ConfigError(say(config.file, ":", line, ": ", what)); };
  std::string text;
  int line = 1;
  char around = 0;             // the quote or '#' that began what the character is in
  std::size_t after_pair = 0;  // the end of the last backslash with what it escapes
  int dots = 0;                // outside of quotes, since the last character that ends a key or a number
  for (std::string_view rest = config.text; !rest.empty();) {
    if (utf8_prefix(rest.substr(0, 4)) == 0) fail(line, "this is not UTF-8");
    const auto [code, length] = first_character(rest);
    const char c = rest.front();
    if (length > 1) {
      const bool is_escaped = text.ends_with('\\') && text.size() != after_pair;
      if ((around != '"' || is_escaped) && around != '#')
        fail(line, "letters beyond ASCII stand between double quotes");
      char escape[12];
      std::snprintf(escape, sizeof(escape), "\\U%08X", static_cast<unsigned>(code));
      text += around == '"' ? escape : ".";
      rest.remove_prefix(length);
      continue;
    }
    if (around == 0 && (rest.starts_with("\"\"\"") || rest.starts_with("'''")))
      fail(line, "a text of several lines, which no flag takes");
    text += c;
    rest.remove_prefix(1);
    if (c == '\n') {
      ++line;
      around = 0;
      dots = 0;
    } else if (around == 0) {
      if (c == '"' || c == '\'' || c == '#') around = c;
      if (c == '.' && ++dots > most_dots) fail(line, "keys within keys within keys: write the keys without tables");
      if (c == '=' || c == ',' || c == '{') dots = 0;
    } else if (c == around && c != '#') {
      around = 0;
    } else if (c == '\\' && around == '"' && (rest.starts_with('\\') || rest.starts_with('"'))) {
      text += rest.front();
      rest.remove_prefix(1);
      after_pair = text.size();
    }
  }
  return text;
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

enum class Kind { flag, flag_or_text, whole, number, text };

Kind kind_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  type = type.substr(0, type.find(':'));
  if (option.get_expected_min() == 0) return type == "TEXT" ? Kind::flag_or_text : Kind::flag;
  if (type == "INT" || type == "UINT") return Kind::whole;
  return type == "FLOAT" ? Kind::number : Kind::text;
}

const char* wanted(Kind kind) {
  switch (kind) {
    case Kind::flag: return "true or false";
    case Kind::flag_or_text: return "true, false or a string in quotes";
    case Kind::whole: return "a whole number";
    case Kind::number: return "a number";
    case Kind::text: break;
  }
  return "a string in quotes";
}

std::string shortest(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

/// The value as an argument of a command line; unset for a value of an unsupported type.
std::optional<std::string> argument_of(const toml::node& value, Kind kind) {
  if (const auto* boolean = value.as_boolean(); boolean && (kind == Kind::flag || kind == Kind::flag_or_text))
    return boolean->get() ? "true" : "false";
  if (const auto* whole = value.as_integer(); whole && (kind == Kind::whole || kind == Kind::number))
    return std::to_string(whole->get());
  if (const auto* number = value.as_floating_point(); number && kind == Kind::number) return shortest(number->get());
  if (const auto* text = value.as_string(); text && (kind == Kind::text || kind == Kind::flag_or_text))
    return text->get();
  // Lists and numbers are accepted for string flags, too: `hidden = [512, 512]`, `partition = 4`.
  if (const auto* whole = value.as_integer(); whole && kind == Kind::text) return std::to_string(whole->get());
  return std::nullopt;
}

/// The arguments that correspond to `name = value`; unset for a value of the wrong type.
std::optional<std::vector<std::string>> arguments_of(const CLI::Option& option, const std::string& name,
                                                     const toml::node& value) {
  const Kind kind = kind_of(option);
  const std::string flag = "--" + name;  // the name as written in the file: a flag may have a --no- form
  const auto* list = value.as_array();
  if (!list) {
    const auto argument = argument_of(value, kind);
    return argument ? std::optional(std::vector{flag + "=" + *argument}) : std::nullopt;
  }
  if (kind != Kind::text && kind != Kind::flag_or_text) return std::nullopt;
  const bool takes_several = option.get_items_expected_max() > 1;
  std::vector<std::string> arguments;
  for (const toml::node& item : *list) {
    const auto argument = argument_of(item, kind);
    if (!argument) return std::nullopt;
    if (takes_several || arguments.empty())
      arguments.push_back(flag + "=" + *argument);
    else
      arguments.front() += "," + *argument;
  }
  return arguments;
}

/// The flags on the user's command line, without dashes.
std::vector<std::string> given_flags(const std::vector<std::string>& arguments, std::size_t from) {
  std::vector<std::string> flags;
  for (std::size_t i = from; i < arguments.size(); ++i)
    if (arguments[i].starts_with("--")) flags.push_back(arguments[i].substr(2, arguments[i].find('=') - 2));
  return flags;
}

/// Whether one of the given flags is this option or excludes it.
bool is_overruled(const CLI::Option& option, const std::vector<const CLI::Option*>& given) {
  const auto excluded = option.get_excludes();
  return std::any_of(given.begin(), given.end(), [&](const CLI::Option* other) {
    return other == &option ||
           std::any_of(excluded.begin(), excluded.end(), [&](const CLI::Option* one) { return one == other; });
  });
}

std::string toml_value(const CLI::Option& option, const std::string& text) {
  switch (kind_of(option)) {
    case Kind::flag: return text == "true" || text == "1" || text == "on" || text == "yes" ? "true" : "false";
    case Kind::flag_or_text:
      if (text.empty() || text == "true") return "true";  // a flag that takes no value
      if (text == "false") return "false";
      break;
    case Kind::whole: return text;
    case Kind::number: {
      // Normalised, because the user may write a number in a way that TOML does not accept.
      const double number = std::strtod(text.c_str(), nullptr);
      return shortest(number);
    }
    case Kind::text: break;
  }
  require<ConfigError>(utf8_prefix(text) == text.size(), "--", option.get_lnames().front(), " '", printable(text),
                       "' is not UTF-8, and a TOML file holds nothing else: give the flag on the command line");
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
  std::vector<const CLI::Option*> given;
  for (const std::string& flag : given_flags(arguments_, first_flag))
    if (const CLI::Option* option = find(options, flag)) given.push_back(option);
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
                         " takes ", wanted(kind_of(*option)));
    const std::string flag = "--" + option->get_lnames().front();
    require<ConfigError>(seen.insert(flag).second, place, "'", shown, "' is given a second time: '",
                         "-' and '_' are one, and so are a flag and its --no- form");
    if (is_overruled(*option, given)) continue;
    places_[flag] = place;
    if (config.is_stored && replaced_by_resume.contains(option->get_lnames().front())) continue;
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
