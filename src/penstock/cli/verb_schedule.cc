#include <iostream>
#include <memory>

#include "penstock/base/error.h"
#include "penstock/cli/schedule_argument.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/verbs.h"

namespace penstock {
namespace {

/// The flags of `show` and `convert`.
struct Drawing {
  ScheduleArgument schedule;
  std::string format;
  std::string output = "-";
  bool is_lowered = false;

  void add_to(CLI::App& verb) {
    schedule.add_to(verb);
    verb.add_option("--format", format, "board, csv (compute words), csv-comms (with messages) or sched")
        ->check(CLI::IsMember({"board", "csv", "csv-comms", "sched"}))
        ->type_name("FORMAT")
        ->capture_default_str();
    verb.add_option("--output", output, "where to write; - is standard output")
        ->type_name("FILE")
        ->capture_default_str();
    verb.add_flag("--lowered", is_lowered, "with messages and the optimiser's step");
  }

  std::string text() const {
    Schedule drawn = schedule.get().schedule;
    if ((is_lowered || format == "csv-comms") && !drawn.is_lowered()) drawn = lower(drawn);
    if (format == "board") return board(drawn);
    if (format == "sched") return write_schedule(drawn);
    return write_torch_csv(drawn, {.messages = format == "csv-comms"});
  }
};

void add_drawing_verb(CLI::App& parent, const char* name, const char* purpose, const char* format,
                      const char* example) {
  CLI::App* verb = parent.add_subcommand(name, purpose);
  auto drawing = std::make_shared<Drawing>();
  drawing->format = format;
  drawing->add_to(*verb);
  verb->footer(example);
  verb->callback([drawing] { write_text(drawing->output, drawing->text()); });
}

/// Judges the schedule as it stands, and as it will run once messages are added.
void check(const ScheduleArgument& argument) {
  const NamedSchedule named = argument.get();
  const JudgeOptions options{.links = {}, .activation_bound = named.activation_bound};
  Schedule judged = named.schedule;
  Verdict verdict = judge(judged, options);
  verdict.require_ok(judged);
  const bool was_lowered = judged.is_lowered();
  if (!was_lowered) {
    judged = lower(judged);
    verdict = judge(judged, options);
    verdict.require_ok(judged);
  }

  std::cout << "ok: " << (judged.name.empty() ? "schedule" : judged.name) << ", " << judged.rank_count() << " ranks, "
            << judged.stage_count() << " stages, " << judged.micro_batches << " micro-batches, "
            << judged.instruction_count() << (was_lowered ? " words" : " words with messages and step")
            << "; live activations at most";
  for (const int peak : verdict.peak_activations) std::cout << ' ' << peak;
  std::cout << " per rank\n";
  for (const std::string& note : named.notes) std::cout << "note: " << note << '\n';
}

}  // namespace

void add_schedule_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("schedule", "show, check or convert who computes what in which order");
  verb->footer("Example:\n  penstock schedule show --schedule 1f1b --stages 2 --micro-batches 4");
  add_drawing_verb(*verb, "show", "draw a schedule", "board",
                   "Example:\n  penstock schedule show --schedule 1f1b --stages 2 --micro-batches 4");
  add_drawing_verb(*verb, "convert", "write a schedule in another form", "sched",
                   "Example:\n  penstock schedule convert 1f1b_order.csv --format sched --output 1f1b.sched");
  CLI::App* checking = verb->add_subcommand("check", "prove that a schedule works, or show where it does not");
  auto argument = std::make_shared<ScheduleArgument>();
  argument->add_to(*checking);
  checking->footer("Example:\n  penstock schedule check my.sched");
  checking->callback([argument] { check(*argument); });
}

}  // namespace penstock
