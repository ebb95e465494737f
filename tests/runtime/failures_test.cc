// Failures: which calls throw them, and what remains usable afterwards.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include "penstock/transport/records.h"
#include "penstock/world/gather.h"
#include "tests/base/error_text.h"
#include "tests/runtime/fragile.h"
#include "tests/runtime/small_job.h"
#include "tests/support/expect_same.h"

namespace penstock::test::failures_test {
namespace {

constexpr int stages = 3, micro_batches = 4;

/// A world with a pipeline that fails when the test decides.
struct Job {
  explicit Job(const PipelineOptions& options = {.micro_batches = micro_batches, .seed = 3})
      : world({.stages = stages}),
        network([this](bool is_forward) { meet(is_forward); }),
        pipeline(std::in_place, world, network, cross_entropy, options) {
    pipeline->optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  }
  StepResult step(int number) {
    torch::manual_seed(static_cast<std::uint64_t>(number));
    const torch::Tensor inputs = torch::randn({8, 12});
    return pipeline->train_step(inputs, torch::randint(0, 4, {8}, torch::kInt64));
  }
  void meet(bool is_forward) {
    if (is_forward ? forwards_until_failure == 0 : backwards_until_failure == 0) broken();
    --(is_forward ? forwards_until_failure : backwards_until_failure);
  }

  std::function<void()> broken = [] { throw std::runtime_error("the layer broke"); };
  std::atomic<int> forwards_until_failure = 1 << 30, backwards_until_failure = 1 << 30;
  World world;
  Fragile network;
  std::optional<Pipeline> pipeline;
};

std::string message_of(const std::function<void()>& action) {
  return test::error_text<std::exception>([&] { action(); });
}

TEST(Failures, an_unread_failure_of_the_last_step_is_logged_and_thrown_by_finish) {
  Job job;
  job.step(0).loss();
  job.forwards_until_failure = 0;
  job.step(1);
  ::testing::internal::CaptureStderr();
  job.pipeline.reset();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("a pipeline ends with a failure that was not reported before: rank 1 (stage 1) failed at 1F0 of "
                     "step 1: the layer broke"),
            std::string::npos)
      << log;
  EXPECT_NE(message_of([&] { job.world.finish(); }).find("failed at 1F0 of step 1"), std::string::npos);
  job.world.finish();  // throws a failure only once
}

TEST(Failures, finish_waits_and_does_not_throw_reported_failures) {
  Job job;
  job.step(0);
  job.world.finish();
  job.forwards_until_failure = 2;
  EXPECT_THROW(job.step(1).loss(), StepFailure);
  job.forwards_until_failure = 1 << 30;
  job.step(2);
  job.world.finish();
}

// The step is cancelled before any update, and has no effect.
TEST(Failures, a_step_that_fails_in_forward_is_cancelled_and_the_pipeline_remains_usable) {
  Job whole, broken;
  whole.step(0).loss();
  broken.step(0).loss();
  for (int at = 0; at < micro_batches; ++at) {
    broken.forwards_until_failure = at;
    EXPECT_EQ(message_of([&] { broken.step(1).loss(); }),
              say("rank 1 (stage 1) failed at 1F", at, " of step ", at + 1, ": the layer broke"));
    broken.forwards_until_failure = 1 << 30;
    expect_same(broken.pipeline->state_dict(), whole.pipeline->state_dict());
  }
  EXPECT_EQ(broken.step(2).loss(), whole.step(2).loss());
  expect_same(broken.pipeline->state_dict(), whole.pipeline->state_dict());
}

TEST(Failures, a_wrong_width_leaves_the_pipeline_usable) {
  Job job;
  job.step(0).loss();
  const auto before = job.pipeline->state_dict();
  const auto infer = [&](std::int64_t width) { return job.pipeline->infer(torch::ones({8, width})).output().sizes(); };
  EXPECT_THROW(infer(13), Failure);
  expect_same(job.pipeline->state_dict(), before);
  EXPECT_THROW(infer(5), Failure);
  EXPECT_THROW(job.pipeline->evaluate(torch::ones({8, 13}), torch::zeros({8}, torch::kInt64)).loss(), Failure);
  EXPECT_THROW(job.pipeline->train_step(torch::ones({8, 13}), torch::zeros({8}, torch::kInt64)).loss(), Failure);
  EXPECT_EQ(infer(12), (std::vector<std::int64_t>{8, 4}));
  expect_same(job.pipeline->state_dict(), before);
  EXPECT_GT(job.step(1).loss(), 0);
}

TEST(Failures, after_a_failure_in_backward_there_is_no_state) {
  // gpipe updates no stage before the second one has finished its B.
  Job job({.micro_batches = micro_batches, .schedule = "gpipe", .clip_norm = 1e9, .seed = 3});
  job.step(0).loss();
  const auto before = job.pipeline->state_dict();
  job.backwards_until_failure = 1;
  const StepResult failing = job.step(1);
  EXPECT_THROW(failing.wait(), RankFailure);
  EXPECT_THROW(job.pipeline->state_dict(), RankFailure);
  EXPECT_THROW(job.pipeline->state_dict(), RankFailure);
  EXPECT_THROW(job.step(2).loss(), Failure);
  // A new world can continue from it.
  Job next;
  next.pipeline->load_state_dict(before);
  EXPECT_GT(next.step(1).loss(), 0);
}

TEST(Failures, exceptions_of_any_type_are_failures) {
  struct Odd {};
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[] { throw 42; }, "the int 42 was thrown, which is not a std::exception"},
      {[] { throw "a text"; }, "a text"},
      {[] { throw Odd(); }, "Odd was thrown, which is not a std::exception"}};
  for (const auto& [broken, text] : cases) {
    Job job;
    job.broken = broken;
    job.forwards_until_failure = 0;
    const std::string message = message_of([&] { job.step(0).loss(); });
    EXPECT_NE(message.find(text), std::string::npos) << message;
    job.forwards_until_failure = 1 << 30;
    job.step(1).loss();
  }
  // In a loss and in a metric.
  World world({.stages = stages});
  Fragile network([](bool) {});
  Loss odd_loss{"odd", [](const torch::Tensor&, const torch::Tensor&) -> torch::Tensor { throw 42; }};
  Pipeline pipeline(world, network, odd_loss, {.micro_batches = 2});
  const torch::Tensor inputs = torch::ones({8, 12}), targets = torch::zeros({8}, torch::kInt64);
  EXPECT_NE(message_of([&] { pipeline.evaluate(inputs, targets).loss(); }).find("the int 42"), std::string::npos);
  Pipeline other(world, network, cross_entropy, {.micro_batches = 2});
  const Metric odd{"odd", [](const torch::Tensor&, const torch::Tensor&) -> double { throw 42; }};
  EXPECT_NE(message_of([&] { other.evaluate(inputs, targets, {odd}).loss(); }).find("the int 42"), std::string::npos);
  EXPECT_GT(other.evaluate(inputs, targets).loss(), 0);
}

// A rank sends a tensor only on demand, so that tensors do not fill the receiver's memory.
TEST(Failures, state_is_sent_one_tensor_at_a_time_on_demand) {
  const auto endpoints = open_threads(2, {.stall_limit = std::chrono::milliseconds(100)});
  const RankContext sender{
      WorldRank(1), 2, 1, true, false, std::shared_ptr<Transport>(std::shared_ptr<void>(), endpoints[1].get())};
  StateParts own;
  for (std::uint64_t i = 0; i < 10; ++i) own[{i, 1}] = {say("name\n", i), torch::full({3}, static_cast<int>(i))};
  // Before any demand.
  EXPECT_NE(message_of([&] {
              gather_tensors(sender, control_tag(0, Topic::gathering, 1), own);
            }).find("whether rank 0 takes the next parameter"),
            std::string::npos);
  RankContext receiver = sender;
  receiver.rank = WorldRank(0);
  receiver.endpoint = std::shared_ptr<Transport>(std::shared_ptr<void>(), endpoints[0].get());
  std::thread sending([&] { gather_tensors(sender, control_tag(0, Topic::gathering, 2), own); });
  const auto all =
      gather_tensors(receiver, control_tag(0, Topic::gathering, 2), {{{7, 0}, {"own", torch::zeros({1})}}});
  sending.join();
  EXPECT_EQ(all.size(), 11u);
  EXPECT_EQ(all["name\n7"][0].item<int>(), 7);
  EXPECT_EQ(all[7].key(), "own") << "not in the order of places";
}

TEST(Failures, rank_0_demands_few_tensors_of_a_state_at_a_time) {
  const auto endpoints = open_threads(2, {.stall_limit = std::chrono::milliseconds(300)});
  const RankContext receiver{
      WorldRank(0), 2, 1, true, false, std::shared_ptr<Transport>(std::shared_ptr<void>(), endpoints[0].get())};
  std::thread receiving(
      [&] { message_of([&] { gather_tensors(receiver, control_tag(0, Topic::gathering, 1), {}); }); });
  // A sender of ten tensors that counts the demands and answers none of them.
  Tag tag = control_tag(0, Topic::gathering, 1);
  endpoints[1]->send(
      WorldRank(0), tag,
      transport::message_of(std::string(10, 'n'), std::vector<std::uint64_t>(10, 1), std::vector<StatePlace>(10)));
  tag.to_stage = 2;  // the demands
  int demands = 0;
  message_of([&] {
    for (; demands < 10; ++demands) {
      tag.micro_batch = demands;
      endpoints[1]->receive(WorldRank(0), tag, "a demand");
    }
  });
  receiving.join();
  EXPECT_EQ(demands, 2);
}

/// The output of a child process, which must end by itself.
std::string said_by_child(const std::function<std::string()>& child) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);  // ends a child that hangs
    const std::string text = child();
    static_cast<void>(!write(ends[1], text.data(), text.size()));
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[256];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof(buffer))) > 0;)
    said.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  return said;
}

TEST(Failures, a_child_after_fork_gets_an_error) {
  Job job;
  job.step(0).loss();
  EXPECT_NE(said_by_child([&] { return message_of([&] { job.step(1).loss(); }); }).find("a child made by fork()"),
            std::string::npos);
  EXPECT_NE(
      said_by_child([&] { return message_of([&] { job.pipeline->state_dict(); }); }).find("a child made by fork()"),
      std::string::npos);
  EXPECT_NE(said_by_child([&] { return message_of([&] { job.world.finish(); }); }).find("a child made by fork()"),
            std::string::npos);
  // The child may destroy everything.
  auto world = std::make_unique<World>(WorldOptions{.stages = 2});
  std::optional<InferenceSession> session(std::in_place, *job.pipeline);
  EXPECT_EQ(said_by_child([&] {
              world.reset();
              session.reset();
              job.pipeline.reset();
              return std::string("ended");
            }),
            "ended");
  job.step(1).loss();
}

}  // namespace
}  // namespace penstock::test::failures_test
