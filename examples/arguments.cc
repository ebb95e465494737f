#include "arguments.h"

#include <cstdlib>
#include <iostream>
#include <limits>

#include <CLI/CLI.hpp>

#include <penstock/cli/command_line_check.h>

struct Arguments::Parser {
  Parser(const std::string& program, const std::string& purpose) : app(purpose, program) {
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }

  template <class Number>
  void add_number(const std::string& name, Number& value, const std::string& help, Number least) {
    const auto is_large_enough = [least](const std::string& text) {
      Number number{};
      return CLI::detail::lexical_cast(text, number) && number < least
                 ? text + " is too small: give " + std::to_string(least) + " or more"
                 : std::string();
    };
    app.add_option(name, value, help)->capture_default_str()->check(CLI::Validator(is_large_enough, ""));
  }

  CLI::App app;
};

namespace {

/// Under mpirun all processes have the same arguments, so only the first prints messages.
bool should_log() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char* rank = std::getenv(variable)) return std::string(rank) == "0";
  return true;
}

}  // namespace

Arguments::Arguments(const std::string& program, const std::string& purpose)
    : parser_(std::make_unique<Parser>(program, purpose)) {}
Arguments::~Arguments() = default;

Arguments& Arguments::add(const std::string& name, std::int64_t& value, const std::string& help, std::int64_t least) {
  parser_->add_number(name, value, help, least);
  return *this;
}

Arguments& Arguments::add(const std::string& name, int& value, const std::string& help, int least) {
  parser_->add_number(name, value, help, least);
  return *this;
}

Arguments& Arguments::add(const std::string& name, double& value, const std::string& help) {
  parser_->app.add_option(name, value, help)->capture_default_str();
  return *this;
}

Arguments& Arguments::add(const std::string& name, std::string& value, const std::string& help) {
  CLI::Option* option = parser_->app.add_option(name, value, help);
  if (!value.empty()) option->capture_default_str();
  return *this;
}

Arguments& Arguments::add_flag(const std::string& name, bool& value, const std::string& help) {
  parser_->app.add_flag(name, value, help);
  return *this;
}

Arguments& Arguments::add_choices(const std::string& name, std::vector<std::string>& choices, const std::string& help,
                                  const std::vector<std::string>& known) {
  parser_->app.add_option(name, choices, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
      ->check(CLI::IsMember(known));
  return *this;
}

void Arguments::parse(int argc, char** argv) {
  CLI::App& app = parser_->app;
  penstock::cli::refuse_huge_numbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    if (should_log()) app.exit(help);
    std::exit(0);
  } catch (const CLI::ParseError& error) {
    if (should_log()) std::cerr << app.get_name() << ": " << penstock::cli::complaint_about(app, error) << std::endl;
    std::exit(2);
  }
}
