// The cache of measurements: a second run of the same job takes the decision of the first one.
#include "penstock/autotune/tuning_cache.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/autotune/auto_jobs.h"
#include "tests/base/error_text.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::tuning_cache_test {
namespace {

namespace fs = std::filesystem;

class TuningCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    how_.cache.folder = (root_ / "below" / "penstock").string();  // is made
    if (has_cpu_kernels()) options_.kernels = Kernels::tuned;
  }

  AutoChoice choice(const PipelineOptions& options, int stages = 2) {
    World world({.stages = stages});
    return autotune_with_reasons(world, network_, squared_error, options, how_);
  }
  AutoChoice choice() { return choice(options_); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(how_.cache.folder)) found.push_back(entry.path());
    return found;
  }
  static std::string text_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

  /// Changes the stored decision, so that a run that takes it differs from one that measures.
  void mark(const fs::path& path) {
    TuningRecord record = read_tuning_record(text_of(path));
    record.measured_at = "another day";
    write(path, write_tuning_record(record));
  }
  bool takes_the_mark() { return says(choice().origin, "another day", "nothing was measured"); }

  const TemporaryFolder files_{"tuning_cache"};
  const fs::path root_ = files_.string();
  AutotuneOptions how_ = quick(torch::randn({8, 6}), torch::randn({8, 4}));
  PipelineOptions options_ = open_options();
  BranchedNetwork network_;
};

TEST_F(TuningCacheTest, a_second_run_takes_the_decision_of_the_first) {
  const AutoChoice first = choice();
  EXPECT_TRUE(says(first.origin, "measured now", "kept in"));
  ASSERT_EQ(files().size(), 1U);
  const TuningRecord record = read_tuning_record(text_of(files().front()));
  EXPECT_EQ(record.plan, first.plan);
  EXPECT_EQ(record.steps.size(), first.planned->compared.size());
  EXPECT_EQ(record.costs, first.costs);

  const AutoChoice second = choice();
  EXPECT_TRUE(says(second.origin, "taken from", files().front().string(), record.measured_at));
  EXPECT_FALSE(second.planned) << "nothing was measured";
  EXPECT_EQ(second.plan, first.plan);
  EXPECT_EQ(second.options.custom, first.options.custom);
  EXPECT_EQ(second.options.partition, first.options.partition);
  EXPECT_EQ(second.options.kernel_selection, first.options.kernel_selection);
  EXPECT_EQ(second.options.micro_batches, first.options.micro_batches);
  EXPECT_EQ(second.costs, first.costs);
  EXPECT_EQ(second.options.weight_gradients, first.options.weight_gradients);

  const torch::Tensor x = torch::randn({8, 6}), y = torch::randn({8, 4});
  World world({.stages = 2});
  EXPECT_EQ(train(world, network_, second.options, x, y).losses, train(world, network_, first.options, x, y).losses);
}

TEST_F(TuningCacheTest, keeps_kernels_and_the_partition_by_time) {
  options_.schedule = "1f1b";
  options_.weight_gradients = WeightGradients::stream;
  options_.partition = "time";
  const AutoChoice first = choice();
  EXPECT_TRUE(says(first.origin, "measured now"));
  const AutoChoice second = choice();
  EXPECT_TRUE(says(second.origin, "nothing was measured"));
  EXPECT_EQ(second.options.kernel_selection, first.options.kernel_selection);
  EXPECT_EQ(second.options.partition, first.options.partition);
  EXPECT_NE(second.options.partition, "time");
}

TEST_F(TuningCacheTest, is_not_used_unless_asked_for) {
  EXPECT_FALSE(AutotuneOptions().cache.is_used());
  how_.cache.folder.clear();
  EXPECT_TRUE(says(choice().origin, "measured now"));
  EXPECT_FALSE(fs::exists(root_ / "below"));
  // Nothing is left to measuring: nothing is read, written or said.
  how_.cache.folder = (root_ / "below").string();
  options_.schedule = "1f1b";
  options_.kernels = Kernels::fixed;
  EXPECT_EQ(choice().origin, "");
  EXPECT_FALSE(fs::exists(root_ / "below"));
}

TEST_F(TuningCacheTest, measures_again_on_request) {
  choice();
  mark(files().front());
  EXPECT_TRUE(takes_the_mark());
  how_.cache.measure_again = true;
  EXPECT_TRUE(says(choice().origin, "measured now"));
  how_.cache.measure_again = false;
  EXPECT_FALSE(takes_the_mark()) << "the file was replaced";
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(TuningCacheTest, another_job_has_another_file) {
  const std::vector<std::function<void(PipelineOptions&)>> changes{
      [](auto&) {},
      [](auto& o) { o.micro_batches = 2; },
      [](auto& o) { o.recompute = true; },
      [](auto& o) { o.memory_limit = TimesOf1F1B{1}; },
      [](auto& o) { o.chunks = 1; },
      [](auto& o) { o.precision = Precision::bf16; },
      [](auto& o) { o.weight_gradients = WeightGradients::stream; },
  };
  std::size_t expected = 0;
  for (const auto& change : changes) {
    PipelineOptions options = options_;
    change(options);
    EXPECT_TRUE(says(choice(options).origin, "measured now")) << expected;
    EXPECT_EQ(files().size(), ++expected);
  }
  choice(options_, 1);
  EXPECT_EQ(files().size(), ++expected) << "another world";
  if (has_cpu_kernels()) {
    PipelineOptions fixed = options_;
    fixed.kernels = Kernels::fixed;
    choice(fixed);
    EXPECT_EQ(files().size(), ++expected) << "other kernels";
  }
  how_.layer_costs = write_layer_costs(*choice().costs);
  choice();
  EXPECT_EQ(files().size(), ++expected) << "given costs of layers";
  how_.layer_costs.clear();
  how_.sample = torch::randn({12, 6});
  how_.sample_targets = torch::randn({12, 4});
  choice();
  EXPECT_EQ(files().size(), ++expected) << "another batch";
  how_.cache.settings = "adam";
  choice();
  EXPECT_EQ(files().size(), ++expected) << "other settings of the caller";
  network_.a.pipeline_stage = network_.b.pipeline_stage = network_.c.pipeline_stage = 0;
  network_.d.pipeline_stage = network_.e.pipeline_stage = 1;
  choice();
  EXPECT_EQ(files().size(), ++expected) << "another network";
}

TEST_F(TuningCacheTest, tolerates_damaged_and_foreign_files) {
  choice();
  const fs::path path = files().front();
  const std::string whole = text_of(path);
  TuningRecord foreign = read_tuning_record(whole);
  foreign.key += "another line\n";
  TuningRecord without_plan = read_tuning_record(whole);
  without_plan.plan.reset();
  without_plan.costs.reset();
  for (const std::string& text :
       {std::string(), whole.substr(0, whole.size() / 2), std::string("\0\1\2", 3),
        std::string("{\"penstock_tuning\": 9}"), write_tuning_record(foreign), write_tuning_record(without_plan)}) {
    write(path, text);
    EXPECT_TRUE(says(choice().origin, "measured now")) << text.substr(0, 40);
    EXPECT_EQ(read_tuning_record(text_of(path)).key, read_tuning_record(whole).key) << "replaced";
  }
  EXPECT_EQ(files().size(), 1U) << "no temporary file is left";
}

TEST_F(TuningCacheTest, a_folder_that_cannot_be_written_is_no_error) {
  write(root_ / "file", "");
  how_.cache.folder = (root_ / "file" / "below").string();
  EXPECT_TRUE(says(choice().origin, "measured now"));
}

TEST_F(TuningCacheTest, two_jobs_at_once_leave_one_whole_file) {
  std::vector<std::thread> jobs;
  for (int i = 0; i < 3; ++i)
    jobs.emplace_back([this] {
      BranchedNetwork own;
      World world({.stages = 2});
      autotune(world, own, squared_error, options_, how_);
    });
  for (std::thread& job : jobs) job.join();
  ASSERT_EQ(files().size(), 1U);
  EXPECT_NO_THROW(read_tuning_record(text_of(files().front())));
}

TEST(DefaultTuningFolder, follows_the_environment) {
  const auto with = [](const char* cache, const char* home) {
    cache ? ::setenv("XDG_CACHE_HOME", cache, 1) : ::unsetenv("XDG_CACHE_HOME");
    home ? ::setenv("HOME", home, 1) : ::unsetenv("HOME");
    return default_tuning_folder();
  };
  EXPECT_EQ(with("/cache", "/home/me"), "/cache/penstock");
  EXPECT_EQ(with("relative", "/home/me"), "/home/me/.cache/penstock");
  EXPECT_EQ(with(nullptr, "/home/me"), "/home/me/.cache/penstock");
  EXPECT_EQ(with("", nullptr), "");
}

}  // namespace
}  // namespace penstock::test::tuning_cache_test
