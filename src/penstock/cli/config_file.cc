#include "penstock/cli/config_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <set>

#include <toml++/toml.h>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/nearest.h"
#include "penstock/base/utf8.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/text_file.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

const std::set<std::string> not_in_files = {"help", "config", "print-config"};

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

/// The value of the last `--config FILE` or `--config=FILE`.
std::optional<std::string> config_file_in(const std::vector<std::string>& arguments, std::size_t from) {
  std::optional<std::string> file;
  for (std::size_t i = from; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--config=")) file = arguments[i].substr(std::string("--config=").size());
    if (arguments[i] == "--config" && i + 1 < arguments.size()) file = arguments[i + 1];
  }
  return file;
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

void ConfiguredLine::read_file(const CLI::App& program) {
  const CLI::App* verb = &program;
  std::size_t first_flag = 1;
  for (; first_flag < arguments_.size(); ++first_flag) {
    const auto inner =
        verb->get_subcommands([&](const CLI::App* app) { return app->get_name() == arguments_[first_flag]; });
    if (inner.empty()) break;
    verb = inner.front();
  }
  const auto file = config_file_in(arguments_, first_flag);
  if (!file || !verb->get_option_no_throw("--config")) return;

  toml::table table;
  try {
    table = toml::parse(read_text(*file), *file);
  } catch (const toml::parse_error& error) {
    throw ConfigError(say(*file, ":", error.source().begin.line, ": ", error.description()));
  }
  const auto options = options_of(*verb);
  std::vector<const CLI::Option*> given;
  for (const std::string& flag : given_flags(arguments_, first_flag))
    if (const CLI::Option* option = find(options, flag)) given.push_back(option);
  std::vector<std::string> names;
  for (const CLI::Option* option : options)
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());

  std::vector<std::string> from_file;
  for (const auto& [key, value] : table) {
    const std::string name = with_dashes(std::string(key.str()));
    const std::string place = say(*file, ":", key.source().begin.line, ": ");
    const CLI::Option* option = find(options, name);
    require<ConfigError>(!value.is_table(), place, "a table, [", key.str(), "]: write the keys without tables");
    require<ConfigError>(option, place, "unknown key '", key.str(), "': did you mean '", nearest(name, names), "'?");
    const auto arguments = arguments_of(*option, name, value);
    require<ConfigError>(arguments.has_value(), place, "'", key.str(), "' is of type ", value.type(), ", but --", name,
                         " takes ", wanted(kind_of(*option)));
    const std::string flag = "--" + option->get_lnames().front();
    require<ConfigError>(places_.emplace(flag, place).second, place, "'", key.str(), "' is given a second time: '",
                         "-' and '_' are one, and so are a flag and its --no- form");
    if (is_overruled(*option, given)) continue;
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

bool print_config_instead(const CLI::App& verb) {
  if (verb.get_option("--print-config")->count() == 0) return false;
  if (launched_as().rank != 0) return true;
  std::ostream& out = std::cout;
  out << "# penstock " << verb.get_name() << " --config FILE\n";
  for (const CLI::Option* option : options_of(verb)) {
    std::vector<std::string> values = option->count() > 0 ? option->reduced_results() : std::vector<std::string>();
    if (values.empty() && !option->get_default_str().empty()) values.push_back(option->get_default_str());
    const std::string& name = option->get_lnames().front();
    if (values.empty() && option->get_expected_min() == 0) values.push_back("false");
    if (values.empty()) {
      out << "# " << name << " =\n";
      continue;
    }
    std::string text;
    for (const std::string& value : values) text += (text.empty() ? "" : ", ") + toml_value(*option, value);
    out << name << " = " << (option->get_items_expected_max() > 1 ? "[" + text + "]" : text) << "\n";
  }
  return true;
}

}  // namespace penstock
