// The arguments of an example, parsed as `penstock` parses its own: --help tells what there is, an unknown flag gets a
// suggestion, a bad number is refused, and misuse ends the program with 2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

class Arguments {
 public:
  /// `purpose` is what --help says first.
  Arguments(const std::string& program, const std::string& purpose);
  ~Arguments();

  /// "STEPS" stands at its place and may be left out, "--steps" is a flag with a value. Numbers below `least` are
  /// refused.
  Arguments& add(const std::string& name, std::int64_t& value, const std::string& help, std::int64_t least = 1);
  Arguments& add(const std::string& name, int& value, const std::string& help, int least = 1);
  Arguments& add(const std::string& name, double& value, const std::string& help);
  Arguments& add(const std::string& name, std::string& value, const std::string& help);
  /// A flag without a value.
  Arguments& add_flag(const std::string& name, bool& value, const std::string& help);
  /// Any number of `known` instructions.
  Arguments& add_words(const std::string& name, std::vector<std::string>& instructions, const std::string& help,
                       const std::vector<std::string>& known);

  /// Ends the program after --help, with 0, and for misuse, with 2.
  void parse(int argc, char** argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};
