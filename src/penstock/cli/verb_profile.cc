// `penstock plan --profile`: measures the layers of a network and plans for the result.
#include <CLI/CLI.hpp>

#include "penstock/autotune/choose.h"
#include "penstock/autotune/profile.h"
#include "penstock/base/error.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/config_file.h"
#include "penstock/cli/job.h"
#include "penstock/cli/plan_output.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/verbs.h"
#include "penstock/plan/plan.h"

namespace penstock::cli {
namespace {

struct ProfileFlags {
  JobFlags job;
  PlanOutput shown;
  std::string costs_file;
  std::vector<std::string> schedules;
  int steps = 4;
};

int plan_by_profile(ProfileFlags& flags) {
  flags.job.pipeline.schedule = "auto";
  settle(flags.job);
  flags.shown.check();
  if (!flags.costs_file.empty()) require_place_for(flags.costs_file);
  Job job(flags.job, Use::train_full_steps);
  const Batch batch = random_batch(flags.job.network, flags.job.batch_size, flags.job.pipeline.seed);
  const std::string cluster = cluster_text(flags.job);
  const LayerCosts costs =
      profile(job.world(), job.network(), loss_of(flags.job.network), flags.job.pipeline,
              {.sample = batch.inputs,
               .sample_targets = batch.targets,
               .cluster = cluster,
               .profile = {.steps = flags.steps, .passes_ms = 8000, .optimizer = make_optimizer(flags.job)}});
  PlanConstraints constraints = constraints_of(job.world(), job.network(), flags.job.pipeline, cluster);
  constraints.schedules = flags.schedules;
  if (!job.world().is_main()) return 0;
  if (!flags.costs_file.empty()) write_text(flags.costs_file, write_layer_costs(costs));
  flags.shown.write(make_plan(costs, constraints));
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, int& exit_code) {
  CLI::App* verb =
      app.add_subcommand("plan", "measure a network's layers and find the best partition and schedule for them");
  auto flags = std::make_shared<ProfileFlags>();
  const std::string profile_help = "measure the layers; without it, penstock plan reads --costs";
  verb->add_flag("--profile", profile_help);
  flags->job.add_to(*verb);
  in_theme(*verb, "Output");
  flags->shown.add_to(*verb);
  verb->add_option("--steps", flags->steps, "timed steps, of each of five schedules in each pass")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  verb->add_option("--schedules", flags->schedules, "the schedules to try; by default all that train")
      ->type_name("NAME[,NAME...]")
      ->delimiter(',');
  verb->add_option("--costs-file", flags->costs_file, "write the measured costs in the format of docs/cost_file.md")
      ->type_name("FILE");
  verb->footer(
      "Example:\n  penstock plan --profile --model mlp --hidden 1024x8 --batch-size 128 --micro-batches 8 "
      "--stages 2 --output mlp.plan");
  add_config_flags(*verb);
  set_work(*verb, exit_code, [flags] { return plan_by_profile(*flags); });
}

}  // namespace penstock::cli
