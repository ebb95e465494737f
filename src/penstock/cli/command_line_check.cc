#include "penstock/cli/command_line_check.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock::cli {
namespace {

/// The type names of numeric options in the help: CLI11's and ours.
constexpr const char* number_types[] = {"INT", "UINT", "FLOAT", "BYTES",   "D",     "K", "L",
                                        "M",   "N",    "P",     "SECONDS", "SHARE", "V", "X"};

bool takes_numbers(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::string plain = type.substr(0, type.find_first_of(":["));  // of a list, the type of its items
  return std::find(std::begin(number_types), std::end(number_types), plain) != std::end(number_types);
}

enum class NumberRange { whole, unsigned_whole, fraction };

NumberRange range_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.starts_with("UINT")) return NumberRange::unsigned_whole;
  for (const char* fraction : {"FLOAT", "BYTES", "SECONDS", "SHARE", "X"})
    if (type.starts_with(fraction)) return NumberRange::fraction;
  return NumberRange::whole;
}

/// Returns an error message, or an empty string. Checks the size only; CLI11 checks that the text is a number.
std::string is_too_large(const std::string& text, NumberRange range) {
  errno = 0;
  if (range == NumberRange::fraction) {
    const double number = std::strtod(text.c_str(), nullptr);
    return errno == ERANGE && std::isinf(number) ? say(text, " is too large for a floating-point number")
                                                 : std::string();
  }
  if (range == NumberRange::unsigned_whole)
    (void)std::strtoull(text.c_str(), nullptr, 0);
  else
    (void)std::strtoll(text.c_str(), nullptr, 0);
  return errno == ERANGE ? say(text, " is too large for a 64-bit number") : std::string();
}

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App& innermost(const CLI::App& app, std::string& path) {
  const CLI::App* at = &app;
  path = app.get_name();
  for (auto inner = at->get_subcommands(); !inner.empty(); inner = at->get_subcommands()) {
    at = inner.front();
    path += " " + at->get_name();
  }
  return *at;
}

/// Flags of earlier versions, and what replaces them.
constexpr std::pair<const char*, const char*> removed_flags[] = {
    {"--capture-steps", "leave it out (docs/devices.md)"},
    {"--static-shapes", "leave it out (docs/devices.md)"},
    {"--keep-last-step", "save checkpoints with --checkpoint DIR, and continue with --resume DIR"},
};

/// The flag that was meant: "--stages" for "--stages=2", "-stages" and the like.
std::string flag_name(const std::string& argument) {
  const std::size_t first = argument.find_first_not_of('-');
  if (first == std::string::npos) return argument;
  return "--" + argument.substr(first, argument.find('=') - first);
}

std::string error_about_flag(const CLI::App& verb, const std::string& path, const std::string& argument) {
  std::vector<std::string> known;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string shown = argument.substr(0, argument.find('='));
  if (const std::string removal = removal_of(shown); !removal.empty()) return removal;
  if (!verbs_of(verb).empty() || known.empty())
    return say("unknown flag '", shown, "': flags follow a verb; '", path, " --help' lists the verbs");
  return say("unknown flag '", shown, "': did you mean '", nearest(flag_name(argument), known), "'? '", path,
             " --help' lists all flags");
}

/// What a numeric option takes: "a whole number of at least 1". `most` is the end of its range, if it has one.
std::string wanted(const CLI::Option& option, std::string_view least, std::string_view most) {
  const std::string type = option.get_type_name();
  const auto has = [&](const char* part) { return type.find(part) != std::string::npos; };
  const bool is_whole = range_of(option) != NumberRange::fraction && !has("FLOAT");
  const std::string number = is_whole ? "a whole number" : "a number";
  const auto end = number_of<double>(most);
  if (end && *end < 1e300) return say(number, " from ", number_of<double>(least).value_or(0), " to ", *end);
  if (has("NONNEGATIVE")) return number + " of at least 0";
  if (has("POSITIVE")) return number + (is_whole ? " of at least 1" : " above 0");
  return number;
}

/// CLI11's message about a value, in words that name the value and what is possible; the message itself if it is about
/// something else.
std::string about_value(const CLI::App& verb, const std::string& message) {
  const auto between = [&](std::size_t from, std::string_view end) {
    const std::size_t at = end.empty() ? std::string::npos : message.find(end, from);
    return message.substr(from, at == std::string::npos ? at : at - from);
  };
  constexpr std::string_view not_converted = "Could not convert: ", range = ": Value ", no_range = " not in range ",
                             too_many = ": At Most 1 required but received ", missing = ": 1 required ";
  const bool is_conversion = message.starts_with(not_converted);
  const std::string name = is_conversion ? between(not_converted.size(), " = ") : between(0, ":");
  const CLI::Option* option = verb.get_option_no_throw(name);
  if (!option) return message;
  const auto follows = [&](std::string_view text) { return message.compare(name.size(), text.size(), text) == 0; };
  const auto refused = [&](const std::string& value, const std::string& least, const std::string& most) {
    const bool is_several = value.find(',') != std::string::npos && option->get_items_expected_max() == 1;
    return say(name, " ", printable(value), ": pass ", is_several ? "one number only, " : "",
               wanted(*option, least, most));
  };
  if (is_conversion && takes_numbers(*option))
    return refused(message.substr(not_converted.size() + name.size() + 3), "", "");
  if (const std::size_t at = message.find(no_range); follows(range) && at != std::string::npos)
    return refused(between(name.size() + range.size(), no_range), between(at + no_range.size(), " to "),
                   message.substr(message.rfind(' ') + 1));
  if (follows(too_many))
    return say(name, " is given ", message.substr(name.size() + too_many.size()), " times: pass it once");
  if (follows(missing))
    return say(name, " needs a value: pass ", between(name.size() + missing.size(), " missing"), " after it");
  return message;
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& verbs) {
  std::vector<std::string> names;
  for (const CLI::App* verb : verbs) names.push_back(verb->get_name());
  return names;
}

const CLI::App& find_verb(const std::vector<const CLI::App*>& verbs, std::string_view argument,
                          std::string_view program) {
  const std::vector<std::string> names = names_of(verbs);
  const auto beginning = std::ranges::find_if(names, [&](const auto& one) { return one.starts_with(argument); });
  const std::string& meant = beginning != names.end() ? *beginning : nearest(argument, names);
  require<ConfigError>(meant == argument, "unknown verb '", argument, "': did you mean '", program, " ", meant,
                       "'? The verbs are ", listed(names));
  return **std::find_if(verbs.begin(), verbs.end(), [&](const CLI::App* verb) { return verb->get_name() == meant; });
}

}  // namespace

CLI::App& in_theme(CLI::App& app, const std::string& theme) {
  app.option_defaults()->group(theme);
  return app;
}

void refuse_huge_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (!takes_numbers(*option)) continue;
    const NumberRange range = range_of(*option);
    option->check(CLI::Validator([range](std::string& text) { return is_too_large(text, range); }, ""));
  }
  for (CLI::App* inner : app.get_subcommands([](const CLI::App*) { return true; })) refuse_huge_numbers(*inner);
}

std::string complaint_about(const CLI::App& app, const CLI::ParseError& error) {
  std::string path;
  const CLI::App& verb = innermost(app, path);
  const std::vector<std::string> left = verb.remaining();
  for (const std::string& argument : left)
    if (argument.size() > 1 && argument.front() == '-') return error_about_flag(verb, path, argument);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !left.empty())
    return say("unexpected argument '", left.front(), "': '", path, " --help' lists all arguments");
  const std::string message = error.what();
  return about_value(verb, message.substr(0, message.find('\n')));
}

std::string removal_of(const std::string& flag) {
  for (const auto& [removed, instead] : removed_flags)
    if (flag == removed) return say(removed, " was removed: ", instead);
  return "";
}

void require_known_verb(const CLI::App& app, const CommandLine& line) {
  const CLI::App* at = &app;
  std::string program = app.get_name();
  for (int i = 1;; ++i) {
    const auto verbs = verbs_of(*at);
    if (verbs.empty()) return;
    require<ConfigError>(i < line.count, "which verb? '", program, "' has ", listed(names_of(verbs)), "; '", program,
                         " --help' describes them");
    const std::string_view argument = line.arguments[i];
    if (argument.starts_with('-')) return;
    at = &find_verb(verbs, argument, program);
    program += ' ';
    program += argument;
  }
}

}  // namespace penstock::cli
