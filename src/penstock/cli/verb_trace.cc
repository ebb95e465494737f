#include <iostream>
#include <memory>

#include "penstock/base/error.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/verbs.h"
#include "penstock/trace/trace.h"

namespace penstock {
namespace {

Trace load_trace(const std::string& path) {
  const std::string text = read_text(path);
  try {
    return read_trace(text);
  } catch (const DataError& error) {
    throw DataError(path + ": " + error.what());
  }
}

struct Files {
  std::string trace;
  std::string output = "-";
};

}  // namespace

void add_trace_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("trace", "where the time of a traced run went, as a table or a picture");
  verb->footer("Example:\n  penstock trace report trace.json");
  const auto add = [&](const char* name, const char* purpose, const char* example, auto&& text_of) {
    CLI::App* made = verb->add_subcommand(name, purpose);
    auto files = std::make_shared<Files>();
    made->add_option("trace", files->trace, "what `penstock train --trace FILE` wrote")->type_name("FILE")->required();
    made->add_option("--output", files->output, "where to write; - is standard output")
        ->type_name("FILE")
        ->capture_default_str();
    made->footer(example);
    made->callback([files, text_of] { write_text(files->output, text_of(load_trace(files->trace))); });
  };
  add("report", "predicted against measured: time, bubble, waits", "Example:\n  penstock trace report trace.json",
      [](const Trace& trace) { return to_table(account(trace)); });
  add("svg", "the median step above its prediction, as a picture",
      "Example:\n  penstock trace svg trace.json --output step.svg",
      [](const Trace& trace) { return step_svg(trace); });
}

}  // namespace penstock
