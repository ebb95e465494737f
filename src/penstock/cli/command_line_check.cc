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
constexpr const char* number_types[] = {"INT",      "UINT", "FLOAT", "BYTES",   "K",     "L", "M",
                                        "M[,M...]", "N",    "P",     "SECONDS", "SHARE", "V", "X"};

bool takes_numbers(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::string plain = type.substr(0, type.find(':'));
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

std::vector<std::string> names_of(const std::vector<const CLI::App*>& verbs) {
  std::vector<std::string> names;
  for (const CLI::App* verb : verbs) names.push_back(verb->get_name());
  return names;
}

const CLI::App& find_verb(const std::vector<const CLI::App*>& verbs, std::string_view argument,
                          std::string_view program) {
  const std::vector<std::string> names = names_of(verbs);
  const std::string& meant = nearest(argument, names);
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
  return message.substr(0, message.find('\n'));
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
