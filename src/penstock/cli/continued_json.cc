#include "penstock/cli/continued_json.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// Where a training goes on: at a step, or in the test after all steps of an epoch.
struct Begin {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  bool is_test = false;
};

/// Whether a line is about a step or a test from `begin` on.
bool is_repeated(const std::string& line, const Begin& begin) {
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return false;
  const auto number = [&](const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
  };
  const std::int64_t epoch = number("epoch");
  if (number("step") < 0) return begin.is_test && object.contains("test_loss") && epoch >= begin.epoch;
  return begin.is_test ? epoch > begin.epoch : std::pair(epoch, number("step")) >= std::pair(begin.epoch, begin.step);
}

void remove_repeated_lines(const std::string& path, const Begin& begin) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return;
  std::ifstream file(path, std::ios::binary);
  require<Failure>(file.is_open(), "--json ", path, " cannot be read, to continue it");
  std::uintmax_t kept = 0;
  bool removes = false;
  for (std::string line; !removes && std::getline(file, line);) {
    const bool breaks_off = file.eof() && line.starts_with("{");
    removes = breaks_off || is_repeated(line, begin);
    if (!removes) kept += line.size() + 1;
  }
  require<Failure>(!file.bad(), "--json ", path, " cannot be read, to continue it");
  if (!removes) return;
  std::filesystem::resize_file(path, kept, code);
  require<Failure>(!code, "--json ", path,
                   ": the lines of steps that are repeated cannot be removed: ", code.message());
}

class ContinueJson final : public Hook {
 public:
  ContinueJson(std::ofstream& out, ContinuedJson file) : out_(out), file_(std::move(file)) {}

  void before_epoch(const TrainingPosition& next) override { open({next.epoch, next.step}); }
  void before_test(const TrainingPosition& behind) override { open({behind.epoch, 0, true}); }

 private:
  void open(const Begin& begin) {
    if (out_.is_open()) return;
    if (file_.replaces) remove_repeated_lines(file_.path, begin);
    out_.open(file_.path, std::ios::app);
    require<Failure>(out_.is_open(), "--json ", file_.path, " cannot be opened for writing");
  }

  std::ofstream& out_;
  const ContinuedJson file_;
};

}  // namespace

std::unique_ptr<Hook> continue_json(std::ofstream& out, const ContinuedJson& file) {
  return std::make_unique<ContinueJson>(out, file);
}

}  // namespace penstock
