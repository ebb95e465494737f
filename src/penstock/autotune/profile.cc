#include "penstock/autotune/profile.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "penstock/autotune/measured_options.h"
#include "penstock/autotune/sample.h"
#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/model/graph.h"
#include "penstock/pipeline/partition_network.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/plan/cluster.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/planner.h"
#include "penstock/plan/site.h"
#include "penstock/schedule/memory_limit.h"
#include "penstock/schedule/schedule.h"
#include "penstock/transport/transport.h"
#include "penstock/world/collectives.h"
#include "penstock/world/rank_threads.h"

namespace penstock {
namespace {

// In the order of profiled_steps.
constexpr std::size_t fused_run = 0, split_run = 1, whole_run = 2, chunked_run = 3, sequential_run = 4;
constexpr std::size_t most_passes = 9;
constexpr double longest_pass_ms = 3000;
constexpr double cold_ms = 200;  // a first step that takes less is mostly warm-up

using Runs = std::vector<std::optional<TimedRun>>;  // one per profiled_steps

Runs merged(const std::vector<Runs>& passes) {
  Runs runs = passes.front();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i]) continue;
    std::vector<TimedSteps> steps;
    for (const Runs& pass : passes) steps.push_back(pass[i]->steps);
    runs[i]->steps = median_of(steps);
  }
  return runs;
}

/// The sum of F and B (or I) over all layers.
double work(const LayerCosts& costs) {
  double sum = 0;
  for (const LayerCost& layer : costs.layers) sum += layer.forward + layer.input_grad;
  return sum;
}

/// `layers` stage by stage: annotations may put a layer on an earlier stage than the one before it.
std::vector<LayerCost> in_order_of(const StageLayers& stages, std::vector<LayerCost> layers) {
  std::map<std::string, std::size_t> places;
  for (const std::vector<std::string>& stage : stages)
    for (const std::string& layer : stage) places.emplace(layer, places.size());
  std::ranges::stable_sort(layers, {}, [&](const LayerCost& layer) { return places.at(layer.name); });
  return layers;
}

void require_sample_and_choice(const Loss& loss, const PipelineOptions& options, const AutotuneOptions& how) {
  require<ConfigError>(how.sample_targets.count() > 0 || (!loss.reads_target() && how.sample.count() > 0),
                       "schedule 'auto' times training steps on AutotuneOptions::sample and sample_targets, which are ",
                       how.sample.count(), " and ", how.sample_targets.count(),
                       " tensors: pass it a batch with its targets");
  require<ConfigError>(!options.custom,
                       "schedule 'auto' chooses the instructions, but PipelineOptions::custom has some: "
                       "leave one of the two out");
}

/// Interleaved 1F1B, of which every B is split where `splits`.
Schedule interleaved(const ScheduleShape& shape, bool splits) {
  const Schedule schedule = generate("interleaved", shape);
  return splits ? fuse_w(schedule, {.group = 1}) : schedule;
}

/// The largest memory limit that a step with fused W's may use where the user gave `limit`.
MemoryLimit profiled_limit(const MemoryLimit& limit, const ScheduleShape& shape) {
  const Schedule schedule = shape.chunks > 1 ? interleaved(shape, /*splits=*/false) : generate("1f1b", shape);
  const MemoryLimit needed = needed_memory_limit(schedule, TimesOf1F1B{});
  return is_in_bytes(limit) ? needed : std::max(limit, needed);
}

/// Scales the activations of the layers of each stage so that they add up to those measured for the stage: an estimate
/// for other partitions.
void take_measured_bytes(const StageCosts& measured, const StageLayers& stages, LayerCosts& costs) {
  std::map<std::string, LayerCost*> layers;
  for (LayerCost& layer : costs.layers) layers[layer.name] = &layer;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    double sum = 0;
    for (const std::string& name : stages[s]) sum += layers.at(name)->activation_bytes;
    for (const std::string& name : stages[s]) {
      const double share =
          sum > 0 ? layers.at(name)->activation_bytes / sum : 1 / static_cast<double>(stages[s].size());
      layers.at(name)->activation_bytes = std::ceil(share * measured.activation_bytes[s]);
    }
  }
}

/// What a pass times: the whole batch, or its first micro-batches.
struct PassBatch {
  TimedBatch batch;
  int micro_batches = 1;
  bool is_whole = true;
};

PassBatch first_micro_batches(const PipelineOptions& options, const AutotuneOptions& how, int replicas, int count) {
  if (count >= options.micro_batches)
    return {{how.sample, how.sample_targets, how.profile.steps}, options.micro_batches, /*is_whole=*/true};
  const rank::BatchAxesOf axes = sample_axes(options);
  const std::int64_t samples = axes.samples(how.sample, how.sample_targets);
  const RowRange rows{0, std::max<std::int64_t>(replicas * count, samples * count / options.micro_batches)};
  const auto first = [&](const rank::BatchAxes& one, const BatchTensors& tensors) {
    return tensors.count() > 0 ? BatchTensors(one.rows(tensors.list(), rows)) : BatchTensors::none(rows.size());
  };
  return {{first(axes.inputs, how.sample), first(axes.targets, how.sample_targets), how.profile.steps}, count, false};
}

/// The batch of all passes: `few`, of which a step takes `few_ms`, if the steps of a pass with the whole batch would
/// take longer than longest_pass_ms.
PassBatch batch_to_time(PassBatch few, double few_ms, const PipelineOptions& options, const AutotuneOptions& how,
                        const World& world) {
  const auto pass_ms = [&](int micro_batches, int steps) {
    const int slots = world.stages() - 1;  // while the pipeline fills and drains
    return few_ms * (micro_batches + slots) / (few.micro_batches + slots) *
           static_cast<double>(std::size(profiled_steps)) * (steps + TimedSteps::untimed);
  };
  if (pass_ms(options.micro_batches, how.profile.steps) <= longest_pass_ms)
    return first_micro_batches(options, how, world.replicas(), options.micro_batches);
  while (few.batch.steps > 1 && pass_ms(few.micro_batches, few.batch.steps) > longest_pass_ms) --few.batch.steps;
  return few;
}

constexpr int short_count = 16, long_count = 3;
constexpr std::int64_t short_bytes = 4;
/// Long messages grow until one takes this time, which hides what a network stores on the way.
constexpr double long_ms = 50;
constexpr std::int64_t first_bytes = 256 << 10, growth = 4, most_bytes = 64 << 20;

/// The speed of one link; 0 bytes per ms if it is within a host.
struct LinkRecord {
  static constexpr std::string_view record_name = "LinkRecord";
  double bytes_per_ms = 0;
  double latency_ms = 0;
};

/// The two ends of one link. The asking rank sends messages, which the other one returns; an empty message is the last.
class LinkEnds {
 public:
  LinkEnds(DataPlane& endpoint, const Tag& tag) : endpoint_(endpoint), tag_(tag) {}

  LinkSpeed ask(WorldRank other) {
    const auto trips = [&](int count, std::int64_t bytes) {
      std::vector<RoundTrip> all;
      for (int i = 0; i < count; ++i) all.push_back(trip(other, bytes));
      return all;
    };
    const std::vector<RoundTrip> short_trips = trips(short_count, short_bytes);
    std::int64_t bytes = first_bytes;
    while (trip(other, bytes).ms < 2 * long_ms && bytes < most_bytes) bytes *= growth;
    const LinkSpeed speed = speed_of(short_trips, trips(long_count, bytes));
    endpoint_.send(other, next_tag(), {});
    return speed;
  }

  void answer(WorldRank asking) {
    for (;;) {
      Message message = endpoint_.receive(asking, next_tag(), "a message that measures the link between two hosts");
      if (message.payloads.empty()) return;
      endpoint_.send(asking, next_tag(), std::move(message));
    }
  }

 private:
  RoundTrip trip(WorldRank other, std::int64_t bytes) {
    Message message{{{torch::zeros({bytes}, torch::kByte)}}};
    const std::int64_t begin = now_ns();
    endpoint_.send(other, next_tag(), std::move(message));
    endpoint_.receive(other, next_tag(), "the answer that measures the link between two hosts");
    return {static_cast<double>(bytes), static_cast<double>(now_ns() - begin) * 1e-6};
  }
  Tag next_tag() {
    ++tag_.micro_batch;
    return tag_;
  }

  DataPlane& endpoint_;
  Tag tag_;
};

Message slowest_of(const std::vector<Message>& all) {
  LinkRecord slowest;
  for (const Message& message : all) {
    const auto link = transport::record_in<LinkRecord>(message);
    if (link.bytes_per_ms == 0) continue;
    slowest.bytes_per_ms =
        slowest.bytes_per_ms == 0 ? link.bytes_per_ms : std::min(slowest.bytes_per_ms, link.bytes_per_ms);
    slowest.latency_ms = std::max(slowest.latency_ms, link.latency_ms);
  }
  return transport::message_of(slowest);
}

/// Each link by itself, from the first to the last: a rank answers on the one before it asks on the other.
LinkRecord measured_by(const RankContext& context, std::uint32_t pipeline) {
  LinkRecord own;
  const auto tag_of = [&](Rank asking) {
    return in_phase(control_tag(pipeline, Topic::host_links, /*round=*/1), asking.value());
  };
  if (context.replica() != Replica(0)) return own;
  const auto other = [&](int distance) -> std::optional<WorldRank> {
    const Rank rank(context.pipeline_rank().value() + distance);
    if (rank.value() < 0 || rank.value() >= context.stages) return std::nullopt;
    const WorldRank found = context.rank_of(rank, Replica(0));
    return context.endpoint->shares_host(found) ? std::nullopt : std::optional(found);
  };
  if (const auto asking = other(-1))
    LinkEnds(*context.endpoint, tag_of(Rank(context.pipeline_rank().value() - 1))).answer(*asking);
  if (const auto asked = other(1)) {
    const LinkSpeed speed = LinkEnds(*context.endpoint, tag_of(context.pipeline_rank())).ask(*asked);
    own = {speed.bytes_per_unit, speed.latency};
  }
  return own;
}

}  // namespace

LayerCosts profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                   const AutotuneOptions& how) {
  return profiled_layers(world, network, loss, options, how).costs;
}

Profiled profiled_layers(World& world, Cell& network, const Loss& loss, const PipelineOptions& given,
                         const AutotuneOptions& how) {
  const PipelineOptions options = with_example_inputs(given, how.sample);
  const ProfileOptions& timing = how.profile;
  require_sample_and_choice(loss, options, how);
  const std::vector<std::string> blocks = blocks_of(trace_graph(network, options.inputs, trace_sample(options)));
  const StageLayers annotated = annotated_stages(network, options, world.stages());
  const auto begins = static_cast<int>(possible_begins(blocks, world.stages()).size());
  const ProfiledNetwork size{world.stages(), begins, static_cast<int>(annotated.size()) / world.stages()};
  std::optional<Site> site;
  if (!how.cluster.empty()) {
    const Cluster cluster = read_cluster(how.cluster);
    LayerCosts in_ms;
    in_ms.time_unit = "ms";
    site.emplace(cluster, listed_placement(cluster, {world.stages(), world.replicas()}), in_ms);
  }
  PipelineOptions base = options;
  base.update_every = 1;
  base.partition = world.stages() > 1 && annotated.empty() ? "time" : "uniform";
  // All pipelines use the kernels and the partition for one stage per rank that are measured for the first.
  const auto [measured, kernel_gain] =
      measured_options(world, network, *profiled_options(profiled_steps[fused_run], base, size), how.sample.list());
  base.kernel_selection = measured.kernel_selection;
  base.partition = measured.partition;
  const auto pipeline_for = [&](const ProfiledSteps& what) {
    auto pipeline = std::make_unique<Pipeline>(world, network, loss, *profiled_options(what, base, size));
    pipeline->optimize_with(optimizer_or_sgd(timing.optimizer));
    return pipeline;
  };
  // As many micro-batches as keep every rank busy.
  const PassBatch few = first_micro_batches(options, how, world.replicas(), std::max(2, world.stages()));
  base.micro_batches = few.micro_batches;
  std::unique_ptr<Pipeline> of_few = pipeline_for(profiled_steps[fused_run]);
  const auto step_ms = [&] {
    const std::int64_t begin = now_ns();
    of_few->train_step(few.batch.inputs, few.batch.targets).wait();
    return of_rank_0(world, {ms_since(begin)}).front();
  };
  const double first_ms = step_ms();
  const PassBatch batch = batch_to_time(few, first_ms < cold_ms ? step_ms() : first_ms, options, how, world);
  base.micro_batches = batch.micro_batches;
  if (batch.micro_batches != few.micro_batches) of_few.reset();
  const auto pass = [&] {
    Runs runs;
    for (const ProfiledSteps& what : profiled_steps) {
      runs.emplace_back();
      if (!profiled_options(what, base, size) ||
          (!timing.slowdown_under_load && &what == &profiled_steps[sequential_run]))
        continue;
      if (what.in_chunks && !batch.is_whole) continue;  // the parameters of long steps are in no cache
      const bool is_built = of_few && &what == &profiled_steps[fused_run];
      const auto pipeline = is_built ? std::move(of_few) : pipeline_for(what);
      runs.back() = timed_run(*pipeline, batch.batch);
      if (site) runs.back() = at_speed_one(std::move(*runs.back()), *site);
    }
    return runs;
  };
  std::vector<Runs> passes{pass()};
  double pass_ms = 0;  // on every process the same
  for (const auto& run : passes.front())
    if (run) pass_ms += run->steps.step * (batch.batch.steps + TimedSteps::untimed);
  for (double left = timing.passes_ms - pass_ms; left >= pass_ms && passes.size() < most_passes; left -= pass_ms)
    passes.push_back(pass());
  const AutotuneOptions timed{.sample = batch.batch.inputs, .sample_targets = batch.batch.targets};
  LayerCosts costs = costs_of(merged(passes), samples_per_replica(options, timed, world.replicas()));
  costs.samples = samples_per_replica(options, how, world.replicas());
  costs.micro_batches = {options.micro_batches};
  if (site) {
    costs.samples *= world.replicas();
    for (LayerCost& layer : costs.layers) layer.gradient_bytes = 0;  // the update includes their sum
  } else if (const auto between_hosts = speed_between_hosts(world)) {
    costs.link = *between_hosts;
  }
  costs.kernels = base.kernel_selection;
  if (options.memory_limit && is_in_bytes(*options.memory_limit)) {
    // With I and W: schedules that do not split B need no more.
    base.micro_batches = options.micro_batches;
    const PipelineOptions split = *profiled_options(profiled_steps[split_run], base, size);
    take_measured_bytes(measured_bytes(world, network, loss, split, how), passes.front()[split_run]->plan.stages,
                        costs);
  }
  return {std::move(costs), kernel_gain};
}

std::optional<PipelineOptions> profiled_options(const ProfiledSteps& what, const PipelineOptions& base,
                                                const ProfiledNetwork& network) {
  PipelineOptions options = base;
  options.schedule = what.schedule;
  options.weight_gradients = what.weight_gradients;
  options.chunks = 0;
  options.memory_limit.reset();
  if (what.in_chunks) {
    options.chunks = std::min(std::max(most_chunks, base.chunks), network.layers / network.ranks);
    options.partition = "uniform";
    if (options.chunks < 2 || network.chunks > 0 || base.memory_limit) return std::nullopt;
    return options;
  }
  const ScheduleShape shape{network.ranks, base.micro_batches, std::max(1, network.chunks)};
  if (network.chunks > 1) {
    if (!what.schedule_of_chunks) return std::nullopt;
    options.schedule = what.schedule_of_chunks;
    options.chunks = network.chunks;
    if (what.splits) options.custom = interleaved(shape, /*splits=*/true);
  }
  if (base.memory_limit && what.weight_gradients == WeightGradients::fused) {
    options.schedule = network.chunks > 1 ? "interleaved" : "1f1b";
    options.memory_limit = profiled_limit(*base.memory_limit, shape);
  }
  return options;
}

TimedRun timed_run(Pipeline& pipeline, const TimedBatch& batch) {
  TimedRun run;
  run.plan.schedule = strip(pipeline.schedule());
  run.plan.stages = layers_by_stage(pipeline.stages());
  run.steps = Profiler(pipeline).time_layers(batch.inputs, batch.targets, batch.steps);
  return run;
}

TimedRun at_speed_one(TimedRun run, const Site& site) {
  std::map<std::string, double> slowness;
  for (std::size_t s = 0; s < run.plan.stages.size(); ++s)
    for (const std::string& name : run.plan.stages[s])
      slowness[name] = site.slowness(run.plan.schedule.rank_of_stage[s]);
  for (LayerCost& layer : run.steps.costs.layers)
    for (double* time : {&layer.forward, &layer.input_grad, &layer.weight_grad, &layer.update})
      *time /= slowness.at(layer.name);
  return run;
}

LayerCosts costs_of(std::span<const std::optional<TimedRun>> runs, std::int64_t samples) {
  require<ConfigError>(
      runs.size() == std::size(profiled_steps) && runs[fused_run] && runs[split_run] && runs[whole_run],
      "costs come from ", std::size(profiled_steps),
      " schedules: pass at least the runs of the first three, and none for each of the others that is missing");
  const LayerCosts &fused = runs[fused_run]->steps.costs, &split = runs[split_run]->steps.costs,
                   &whole = runs[whole_run]->steps.costs;
  LayerCosts costs = fused;
  const int micro_batches = runs[fused_run]->plan.schedule.micro_batches;
  costs.samples = samples;
  costs.micro_batch_size = (samples + micro_batches - 1) / micro_batches;
  costs.micro_batches = {micro_batches};
  costs.link.latency = std::max({fused.link.latency, split.link.latency, whole.link.latency});
  costs.instruction_overhead = (fused.instruction_overhead + split.instruction_overhead) / 2;
  // Times are those of the mean micro-batch; LayerCosts needs those of micro_batch_size samples.
  const double scale = static_cast<double>(costs.micro_batch_size) * micro_batches / static_cast<double>(samples);
  for (std::size_t n = 0; n < costs.layers.size(); ++n) {
    const LayerCost &f = fused.layers[n], &s = split.layers[n], &w = whole.layers[n];
    LayerCost& layer = costs.layers[n];
    // LayerCosts has one time for F in all runs, and one for I in two. A run's difference to them goes to its W or B: a
    // W between two F's evicts their data from the cache, and a fused one does not.
    const double forward = (f.forward + s.forward + w.forward) / 3, input_grad = (f.input_grad + s.input_grad) / 2;
    const auto with_rest = [&](double own, double rest) { return scale * std::max(0.0, own + rest); };
    layer.forward = scale * forward;
    layer.input_grad = scale * input_grad;
    layer.weight_grad = with_rest(s.weight_grad, s.forward - forward + s.input_grad - input_grad);
    layer.weight_grad_fused = with_rest(f.weight_grad, f.forward - forward + f.input_grad - input_grad);
    layer.backward = with_rest(w.input_grad, w.forward - forward);
    if (runs[chunked_run]) {
      layer.forward_cached = scale * runs[chunked_run]->steps.costs.layers[n].forward;
      layer.input_grad_cached = scale * runs[chunked_run]->steps.costs.layers[n].input_grad;
    }
  }
  const double together = work(whole), alone = runs[sequential_run] ? work(runs[sequential_run]->steps.costs) : 0;
  if (costs.ranks > 1 && together > 0 && alone > 0) costs.slowdown_under_load = together / alone;
  costs.layers = in_order_of(runs[fused_run]->plan.stages, std::move(costs.layers));
  return costs;
}

StageLayers annotated_stages(Cell& network, const PipelineOptions& options, int ranks) {
  int needed = 0;
  for (const Node& node : trace_graph(network, options.inputs, trace_sample(options)).nodes)
    needed = std::max(needed, node.stage.value_or(-1) + 1);
  if (needed == 0) return {};
  const int least = ranks == 1 ? 1 : (needed + ranks - 1) / ranks;
  const int stages = ranks * (options.chunks > 0 ? options.chunks : least);
  StageLayers layers = layers_by_stage(partition_network(network, options, stages));
  for (int s = 0; s < stages; ++s)
    require<ConfigError>(!layers[static_cast<std::size_t>(s)].empty(),
                         "schedule 'auto' measures every stage, but stage ", s, " of ", stages,
                         " has no layers: annotate some with it, or name a schedule");
  return layers;
}

LinkSpeed speed_of(const std::vector<RoundTrip>& short_trips, const std::vector<RoundTrip>& long_trips) {
  const auto shortest = [](const std::vector<RoundTrip>& trips) {
    return *std::ranges::min_element(trips, {}, &RoundTrip::ms);
  };
  const RoundTrip small = shortest(short_trips), large = shortest(long_trips);
  // A long message that takes no longer than a short one has bytes that cost nothing.
  const double ms = large.ms - small.ms;
  return {.bytes_per_unit = ms > 0 ? 2 * (large.bytes - small.bytes) / ms : 0, .latency = small.ms / 2};
}

std::optional<LinkSpeed> speed_between_hosts(World& world) {
  const std::uint32_t pipeline = ranks_of(world).next_pipeline();
  LinkRecord slowest;
  ranks_of(world).run_on_local_ranks([&](const RankContext& context) {
    const LinkRecord own = measured_by(context, pipeline);
    const Message agreed =
        agree(context, control_tag(pipeline, Topic::host_links, /*round=*/0), transport::message_of(own), slowest_of,
              {"the speed of links between hosts", "the slowest link between hosts"});
    if (context.collects) slowest = transport::record_in<LinkRecord>(agreed);
  });
  if (slowest.bytes_per_ms == 0) return std::nullopt;
  return LinkSpeed{slowest.bytes_per_ms, slowest.latency_ms};
}

}  // namespace penstock
