// Parses the arguments of an example as `penstock` does: --help lists them, the error for an unknown flag suggests the
// nearest one, invalid numbers are refused, and misuse ends the program with exit code 2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

class Arguments {
 public:
  /// `purpose` is the first line of the help.
  Arguments(const std::string& program, const std::string& purpose);
  ~Arguments();

  /// Adds an optional positional argument ("STEPS") or a flag with a value ("--steps"). `value` holds the default and
  /// receives the result; it must outlive parse(). Numbers below `least` are refused.
  Arguments& add(const std::string& name, std::int64_t& value, const std::string& help, std::int64_t least = 1);
  Arguments& add(const std::string& name, int& value, const std::string& help, int least = 1);
  Arguments& add(const std::string& name, double& value, const std::string& help);
  Arguments& add(const std::string& name, std::string& value, const std::string& help);
  /// Adds a flag without a value.
  Arguments& add_flag(const std::string& name, bool& value, const std::string& help);
  /// Adds a positional argument that takes any number of the `known` values.
  Arguments& add_choices(const std::string& name, std::vector<std::string>& choices, const std::string& help,
                         const std::vector<std::string>& known);

  /// Ends the program after --help (exit code 0) and after misuse (exit code 2).
  void parse(int argc, char** argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};
