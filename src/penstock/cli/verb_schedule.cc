#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/cli/schedule_argument.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/value_flags.h"
#include "penstock/cli/verbs.h"
#include "penstock/trace/trace.h"

namespace penstock::cli {
namespace {

void add_output(CLI::App& verb, std::string& output) {
  verb.add_option("--output", output, "where to write; - is standard output")->type_name("FILE")->capture_default_str();
}

/// Throws ConfigError for a plan with fused W's: torch has none, and with single ones the plan's prediction is wrong.
void require_single_weights(const Schedule& schedule) {
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order)
      require<ConfigError>(!instruction.is_fused(), "the plan has ", to_string(instruction),
                           ", and torch has no W of several micro-batches: plan with --for torch");
}

/// The flags of `show` and `convert`.
struct Drawing {
  ScheduleArgument schedule;
  CostFlags cost_flags;
  std::string format;
  std::string output = "-";
  bool is_lowered = false;

  void add_to(CLI::App& verb) {
    schedule.add_to(verb);
    add_choice(
        verb, "--format", format, {"grid", "csv", "csv-comms", "sched", "svg", "html", "json"},
        "grid, sched, csv (compute instructions), csv-comms (with messages), or, with times by costs: svg, html, json")
        ->type_name("FORMAT");
    add_output(verb, output);
    verb.add_flag("--lowered", is_lowered, "with messages and the optimiser's step");
    cost_flags.add_to(verb);
  }

  std::string text() const {
    const NamedSchedule named = schedule.get(cost_flags.costs());
    const StageCosts& costs = named.costs;
    if (format == "svg") return schedule_svg(ready_to_run(named), costs);
    if (format == "html") return schedule_html(ready_to_run(named), costs);
    if (format == "json") return schedule_json(ready_to_run(named), costs);
    Schedule drawn = named.schedule;
    if ((is_lowered || format == "csv-comms") && !drawn.is_lowered()) drawn = lower(drawn);
    if (format == "grid") return timeline_grid(drawn);
    if (format == "sched") return write_schedule(drawn);
    if (named.is_planned) require_single_weights(drawn);
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

struct Checking {
  ScheduleArgument schedule;
  CostFlags costs;
  std::optional<int> posts;
};

/// Validates the schedule as it is; least_posts() validates the lowered one. Only a lowered schedule has messages, and so
/// posts.
void check(const Checking& wanted) {
  NamedSchedule named = wanted.schedule.get(wanted.costs.costs());
  const auto validated_ok = [&](const Schedule& schedule, std::optional<int> posts) {
    const ValidateOptions options{.links = {}, .activation_bound = named.activation_bound, .posts = posts};
    validate(schedule, options).require_ok(schedule);
  };
  const bool was_lowered = named.schedule.is_lowered();
  validated_ok(named.schedule, was_lowered ? wanted.posts : std::nullopt);
  const Schedule validated = was_lowered ? std::move(named.schedule) : lower(named.schedule);
  named.schedule = {};
  if (!was_lowered && wanted.posts) validated_ok(validated, wanted.posts);
  const int posts = least_posts(validated);

  std::cout << "ok: " << (validated.name.empty() ? "schedule" : printable(validated.name)) << ", "
            << validated.rank_count() << " ranks, " << validated.stage_count() << " stages, " << validated.micro_batches
            << " micro-batches, " << validated.instruction_count()
            << (was_lowered ? " instructions" : " instructions with messages and step") << "; runs with "
            << counted(posts, "post") << " per channel; " << live_activations(validated, named.costs.weight_share)
            << '\n';
  for (const std::string& note : named.notes) std::cout << "note: " << note << '\n';
}

/// The flags of `table`.
struct Table {
  std::vector<std::string> files;
  std::optional<int> ranks, micro_batches, chunks;
  std::string format = "grid";
  std::string output = "-";

  void add_to(CLI::App& verb) {
    verb.add_option("files", files, "schedule files, which are rows above the others and say p and m")
        ->type_name("FILE");
    verb.add_option("--stages", ranks, "p, pipeline ranks")->type_name("P");
    verb.add_option("--micro-batches", micro_batches, "m, micro-batches per step")->type_name("M");
    verb.add_option("--chunks", chunks, "v, stages per rank, for schedules that accept it")->type_name("V");
    add_choice(verb, "--format", format, {"grid", "markdown"}, "grid or markdown")->type_name("FORMAT");
    add_output(verb, output);
  }

  std::string text() const {
    std::vector<TableRow> rows;
    for (const std::string& file : files) {
      const Schedule schedule = load_schedule(file);
      validate(schedule).require_ok(schedule);
      const ScheduleShape shape{ranks.value_or(schedule.rank_count()), micro_batches.value_or(schedule.micro_batches),
                                schedule.stage_count() / schedule.rank_count()};
      require<ConfigError>(shape.ranks == schedule.rank_count() && shape.micro_batches == schedule.micro_batches &&
                               (rows.empty() || rows.front().shape.ranks == shape.ranks) &&
                               (rows.empty() || rows.front().shape.micro_batches == shape.micro_batches),
                           file, " has ", counted(schedule.rank_count(), "rank"), " and ", schedule.micro_batches,
                           " micro-batches, and the table is for others: leave --stages and --micro-batches out, or "
                           "make a table for each shape");
      rows.push_back({.schedule = schedule.name.empty() ? file : schedule.name,
                      .shape = shape,
                      .bubble_formula = {},
                      .memory_formula = {},
                      .message_formula = {},
                      .simulated = simulated_figures(schedule, StageCosts::unit()),
                      .measured = {}});
    }
    require<ConfigError>(!rows.empty() || (ranks && micro_batches),
                         "a table of which shape? Pass --stages P and --micro-batches M, or a schedule file");
    const TableShape shape{ranks ? *ranks : rows.front().shape.ranks,
                           micro_batches ? *micro_batches : rows.front().shape.micro_batches, chunks};
    std::ranges::copy(schedule_table(shape), std::back_inserter(rows));
    return format == "markdown" ? to_markdown(rows) : to_table(rows);
  }
};

}  // namespace

void add_schedule_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("schedule", "show, check or convert schedules");
  verb->footer("Example:\n  penstock schedule show --schedule 1f1b --stages 2 --micro-batches 4");
  add_drawing_verb(*verb, "show", "draw a schedule", "grid",
                   "Example:\n  penstock schedule show --schedule 1f1b --stages 4 --micro-batches 8 --format svg "
                   "--output 1f1b.svg");
  add_drawing_verb(*verb, "convert", "write a schedule in another format", "sched",
                   "Example:\n  penstock schedule convert 1f1b_order.csv --format sched --output 1f1b.sched");

  CLI::App* checking = verb->add_subcommand("check", "validate a schedule and show the first violation");
  auto checked = std::make_shared<Checking>();
  checked->schedule.add_to(*checking);
  checking
      ->add_option("--posts", checked->posts,
                   "validate for a library that matches sends and receives in order, with N posts per channel "
                   "(docs/schedules.md)")
      ->type_name("N");
  checked->costs.add_to(*checking);
  checking->footer("Example:\n  penstock schedule check my.sched");
  checking->callback([checked] { check(*checked); });

  CLI::App* tabling = verb->add_subcommand("table", "all schedules: bubble, activation memory and messages");
  auto table = std::make_shared<Table>();
  table->add_to(*tabling);
  tabling->footer("Example:\n  penstock schedule table --stages 4 --micro-batches 8 --format markdown");
  tabling->callback([table] { write_text(table->output, table->text()); });
}

}  // namespace penstock::cli
