#include "penstock/checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <future>
#include <thread>

#include "penstock/checkpoint/background_writer.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/export_weights.h"
#include "tests/base/error_text.h"
#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::test::checkpoint_writer_test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

TEST(Checkpoints, are_read_as_they_were_written) {
  const TemporaryFolder folder("checkpoint_round_trip");
  CheckpointWriter writer({folder / "made/on/the/way/"});
  const SavedSmall committed = save_small(writer, 12);
  EXPECT_EQ(committed.directory, folder / "made/on/the/way/step-00000012");
  EXPECT_EQ(names_in(committed.directory),
            (Names{"manifest.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                   "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors", "train.toml"}));
  const Checkpoint checkpoint(committed.directory);
  EXPECT_EQ(what_differs(checkpoint), "");
  EXPECT_EQ(checkpoint.damage(), Names());
  EXPECT_FALSE(checkpoint.find(FileKind::model, "layer0.weight/momentum"));
  EXPECT_EQ(checkpoint.text(checkpoint.manifest().files.size() - 1), "steps = 7\n");
  EXPECT_EQ(checkpoint.metadata(0), (std::map<std::string, std::string>{{"format", "pt"}, {"model", "small"}}));
  // Every file has the checksums of its tensors, in their order.
  for (const FileRecord& file : checkpoint.manifest().files) {
    if (file.kind == FileKind::text) continue;
    std::string sums;
    for (const TensorRecord& tensor : file.tensors) sums += (sums.empty() ? "" : " ") + to_string(tensor.checksum);
    EXPECT_EQ(open_safetensors(SystemCalls::real(), committed.directory + "/" + file.name, SymbolicLinks::refused)
                  .header.metadata.at("xxh3_128"),
              sums);
  }
}

TEST(Checkpoints, are_kept_as_many_as_wanted) {
  const TemporaryFolder folder("checkpoint_keep");
  CheckpointWriter writer({folder.string(), 3});
  for (const std::int64_t step : {1, 2, 3}) EXPECT_EQ(save_small(writer, step).removed, Names());
  EXPECT_EQ(save_small(writer, 10).removed, (Names{folder / "step-00000001"}));
  // A damaged one is neither counted nor deleted.
  fs::remove(folder / "step-00000003/manifest.json");
  EXPECT_EQ(save_small(writer, 20).removed, Names());
  EXPECT_EQ(save_small(writer, 30).removed, (Names{folder / "step-00000002"}));
  EXPECT_EQ(names_in(folder.string()),
            (Names{".lock", "step-00000003", "step-00000010", "step-00000020", "step-00000030"}));
}

TEST(Checkpoints, of_one_step_never_replace_each_other) {
  const TemporaryFolder folder("checkpoint_attempts");
  CheckpointWriter writer({folder.string()});
  save_small(writer, 5);
  fs::resize_file(folder / "step-00000005/model-00001-of-00002.safetensors", 100);
  EXPECT_EQ(save_small(writer, 5).directory, folder / "step-00000005-2");
  EXPECT_EQ(save_small(writer, 5).directory, folder / "step-00000005-3");
  const auto places = list_checkpoints(folder.string());
  ASSERT_EQ(places.size(), 3U);
  EXPECT_EQ(places.front().path, folder / "step-00000005-3");
  EXPECT_EQ(places.back().path, folder / "step-00000005");
}

TEST(Checkpoints, of_a_dead_job_leave_nothing_behind) {
  const TemporaryFolder folder("checkpoint_leftovers");
  fs::create_directories(folder / ".tmp-4-0123456789abcdef");
  write_bytes(folder / ".tmp-4-0123456789abcdef/model-00001-of-00002.safetensors", "half");
  write_bytes(folder / "notes.txt", "mine");
  fs::create_directories(folder / "step-7");  // not one of our names
  fs::create_directories(folder / "step-0000000x");
  CheckpointWriter writer({folder.string()});
  EXPECT_EQ(newest_step(folder.string()), -1);
  EXPECT_TRUE(fs::exists(folder / ".tmp-4-0123456789abcdef")) << "removed before a checkpoint succeeded";
  save_small(writer, 5);
  EXPECT_EQ(names_in(folder.string()), (Names{".lock", "notes.txt", "step-00000005", "step-0000000x", "step-7"}));
  writer.begin(6);
  writer.begin(7);
  writer.abandon();
  EXPECT_EQ(names_in(folder.string()).size(), 5U);
}

// They were emptied: the link to an archive, that to another folder, and the user's own directory.
TEST(Checkpoints, of_a_writer_remove_nothing_of_the_user) {
  const TemporaryFolder folder("checkpoint_of_the_user");
  const Names of_victim{"notes"};
  fs::create_directories(folder / "victim");
  write_bytes(folder / "victim/notes", "mine");
  CheckpointWriter writer({folder / "run"});
  save_small(writer, 1);
  save_small(writer, 2);
  fs::rename(folder / "run/step-00000001", folder / "archived");
  fs::create_directory_symlink(folder / "archived", folder / "run/step-00000001");
  const Names archived = names_in(folder / "archived");
  for (const char* name : {".tmp-x", ".tmp-3-0123456789abcdef", ".tmp-removed-0123456789abcdef"})
    fs::create_directory_symlink(folder / "victim", folder / say("run/", name));
  const Names of_user{".tmp-",
                      ".tmp-mine",
                      ".tmp-3-",
                      ".tmp--0123456789abcdef",
                      ".tmp-3-0123456789ABCDEF",
                      ".tmp-3-00123456789abcdef",
                      ".tmp-mine-0123456789abcdef",
                      ".tmp-removed-123456789abcdef"};
  for (const std::string& name : of_user) fs::copy(folder / "victim", folder / "run/" + name);
  for (const std::int64_t step : {3, 4, 5}) EXPECT_EQ(save_small(writer, step).remarks, Names()) << step;
  EXPECT_EQ(names_in(folder / "archived"), archived);
  EXPECT_EQ(what_differs(Checkpoint(folder / "run/step-00000001")), "");
  EXPECT_EQ(names_in(folder / "victim"), of_victim);
  for (const std::string& name : of_user) EXPECT_EQ(names_in(folder / "run/" + name), of_victim) << name;
  EXPECT_FALSE(fs::exists(folder / "run/step-00000003"));  // which is the writer's own
}

TEST(Checkpoints, in_which_the_user_has_put_a_file_are_kept) {
  const TemporaryFolder folder("checkpoint_with_notes");
  CheckpointWriter writer({folder.string()});
  save_small(writer, 1);
  write_bytes(folder / "step-00000001/notes", "mine");
  save_small(writer, 2);
  const SavedSmall third = save_small(writer, 3);
  EXPECT_EQ(third.removed, Names());
  EXPECT_EQ(third.remarks, Names{say("'", folder / "step-00000001",
                                     "' is not removed: it has 'notes', which is not a file of the checkpoint")});
  const SavedSmall fourth = save_small(writer, 4);
  EXPECT_EQ(fourth.removed, Names{folder / "step-00000002"});
  EXPECT_EQ(fourth.remarks, Names());
  EXPECT_EQ(bytes_of_file(folder / "step-00000001/notes"), "mine");
}

TEST(Checkpoints, have_one_writer) {
  const TemporaryFolder folder("checkpoint_lock");
  const auto complaint = [&](const CheckpointFolder& wanted) {
    return error_text<ConfigError>([&] { CheckpointWriter second(wanted); });
  };
  {
    CheckpointWriter writer({folder.string()});
    save_small(writer, 5);
    EXPECT_TRUE(says(complaint({folder.string(), 2, 5}), folder.string(), "another process writes checkpoints there"));
  }
  EXPECT_EQ(complaint({folder.string(), 2, 5}), "[no error]");
  EXPECT_TRUE(says(complaint({folder.string(), 2, 4}), "a checkpoint of step 5", "begins at step 4"));
  EXPECT_TRUE(says(complaint({folder.string(), 1, 5}), "keep = 1", "at least 2"));
  EXPECT_TRUE(says(complaint({""}), "has no name"));
  write_bytes(folder / "file", "");
  EXPECT_TRUE(says(complaint({folder / "file"}), "is a file"));
  // A damaged later one does not stand in the way.
  fs::remove(folder / "step-00000005/manifest.json");
  EXPECT_EQ(complaint({folder.string(), 2, 4}), "[no error]");
}

// The lock followed the folder that was moved away, so that two jobs wrote in the one with its name.
TEST(Checkpoints, go_on_in_the_folder_that_has_the_name_of_the_locked_one) {
  const TemporaryFolder folder("checkpoint_moved");
  const std::string run = folder / "run";
  auto move_away = [&, number = 0]() mutable { fs::rename(run, folder / say("away", number++)); };
  CheckpointWriter writer({run});
  save_small(writer, 1);
  move_away();
  fs::create_directory(run);
  const SavedSmall second = save_small(writer, 2);
  EXPECT_EQ(second.directory, folder / "run/step-00000002");
  ASSERT_EQ(second.remarks.size(), 1U);
  EXPECT_TRUE(says(second.remarks.front(), run, "was moved or replaced", "from step 2 on"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { CheckpointWriter other({run, 2, 9}); }), "another process writes"));
  move_away();  // and nothing has its name
  EXPECT_EQ(save_small(writer, 3).directory, folder / "run/step-00000003");
  // While one is being written.
  writer.begin(4);
  move_away();
  fs::create_directory(run);
  EXPECT_TRUE(says(error_text<Failure>([&] { writer.commit(small_manifest(4)); }), run,
                   "was moved or replaced while the checkpoint of step 4 was being written"));
  {
    CheckpointWriter other({run});
    save_small(other, 9);
    EXPECT_TRUE(says(error_text<Failure>([&] { writer.begin(4); }), "cannot be used", "another process writes"));
  }
  EXPECT_TRUE(says(error_text<Failure>([&] { writer.begin(4); }), "cannot be used", "a checkpoint of step 9"));
  EXPECT_EQ(names_in(run), (Names{".lock", "step-00000009"}));
  EXPECT_EQ(names_in(folder / "away0"), (Names{".lock", "step-00000001"}));
}

TEST(Checkpoints, are_committed_only_whole) {
  const TemporaryFolder folder("checkpoint_whole");
  CheckpointWriter writer({folder.string()});
  const SmallState state(3);
  const auto begin_with = [&](auto&& change) {
    Manifest manifest = small_manifest(3);
    const std::string directory = writer.begin(3);
    for (const RankTensors& rank : state.ranks())
      for (FileRecord& file : write_rank_files(SystemCalls::real(), directory, rank, {}))
        manifest.files.push_back(std::move(file));
    change(manifest, directory);
    return manifest;
  };
  Manifest manifest = begin_with(
      [](Manifest&, const std::string& directory) { fs::remove(directory + "/model-00002-of-00002.safetensors"); });
  EXPECT_TRUE(says(error_text<Failure>([&] { writer.commit(manifest); }), "model-00002-of-00002.safetensors",
                   "not to be seen here", "file system that all hosts share"));
  manifest = begin_with([](Manifest&, const std::string& directory) {
    fs::resize_file(directory + "/optimizer-00002-of-00002.safetensors", 9);
  });
  EXPECT_TRUE(says(error_text<Failure>([&] { writer.commit(manifest); }), "has 9 bytes, and a rank has written"));
  manifest = begin_with([](Manifest& wrong, const std::string&) { wrong.files.push_back(wrong.files.front()); });
  EXPECT_TRUE(says(error_text<ConfigError>([&] { writer.commit(manifest); }), "twice"));
  manifest = begin_with([](Manifest&, const std::string&) {});
  EXPECT_TRUE(says(error_text<ConfigError>([&] { writer.commit(manifest, {{"../x", ""}}); }), "a file called '../x'"));
  EXPECT_EQ(names_in(folder.string()), Names{".lock"});
  EXPECT_THROW(writer.commit(manifest), InternalError);
}

TEST(Checkpoints, of_others_are_refused_and_named) {
  const TemporaryFolder folder("checkpoint_foreign");
  const auto complaint = [&](const std::string& name) {
    return error_text<DataError>([&] { Checkpoint opened(folder / name); });
  };
  {
    CheckpointWriter writer({folder.string()});
    save_small(writer, 5);
  }
  fs::create_directories(folder / "empty");
  EXPECT_TRUE(says(complaint("empty"), folder / "empty", "has no manifest.json"));
  EXPECT_TRUE(says(complaint("nothing"), folder / "nothing", "No such file"));
  fs::copy(folder / "step-00000005", folder / "step-00000006");
  EXPECT_TRUE(says(complaint("step-00000006"), "step-00000006' holds the checkpoint of step 5"));
  fs::rename(folder / "step-00000006", folder / "copy");
  EXPECT_EQ(complaint("copy"), "[no error]");  // any other name is possible
  fs::remove(folder / "copy/train.toml");
  fs::create_symlink("/etc/hostname", folder / "copy/train.toml");
  EXPECT_TRUE(says(complaint("copy"), "copy/train.toml", "is a symbolic link"));
  EXPECT_TRUE(
      says(error_text<DataError>([&] { list_checkpoints(folder / "nothing"); }), "cannot be read: No such file"));
}

// The goldens were written when these versions were the newest.
TEST(Checkpoints, of_versions_1_and_2_are_read) {
  for (const char* version : {"1", "2"}) {
    const NewestCheckpoint newest =
        newest_checkpoint(say(TESTS_FOLDER "/checkpoint/goldens/version_", version), CheckpointCheck::checksums);
    ASSERT_TRUE(newest.checkpoint) << version;
    EXPECT_EQ(newest.checkpoint->manifest().step, 5);
    EXPECT_EQ(what_differs(*newest.checkpoint), "");
    EXPECT_EQ(newest.damaged, Names());
  }
}

TEST(Checkpoints, are_exported_as_one_file_or_several) {
  const TemporaryFolder folder("checkpoint_export");
  CheckpointWriter writer({folder / "run"});
  const Checkpoint checkpoint(save_small(writer, 5).directory);
  EXPECT_EQ(export_weights(checkpoint, folder / "all.safetensors", {}), Names{folder / "all.safetensors"});
  const auto all = open_safetensors(SystemCalls::real(), folder / "all.safetensors", SymbolicLinks::refused);
  EXPECT_EQ(all.header.tensors.size(), 6U);
  EXPECT_EQ(all.header.metadata.at("model"), "small");
  const auto paths = export_weights(checkpoint, folder / "part.safetensors", 64);
  EXPECT_EQ(paths, (Names{folder / "part-00001-of-00003.safetensors", folder / "part-00002-of-00003.safetensors",
                          folder / "part-00003-of-00003.safetensors", folder / "part.safetensors.index.json"}));
  EXPECT_FALSE(all.header.metadata.contains("xxh3_128"));  // of files that were not exported
  const nlohmann::json index = nlohmann::json::parse(bytes_of_file(paths.back()));
  EXPECT_EQ(index.at("metadata").at("total_size"), 144);
  // Each tensor has the same bytes in the checkpoint, in the file and in the part that the index names.
  for (const TensorPlace& place : all.header.tensors) {
    std::vector<std::byte> numbers(place.end - place.begin), again(numbers.size());
    checkpoint.read(*checkpoint.find(FileKind::model, place.name), numbers);
    all.file.read(all.data_begin + place.begin, again);
    EXPECT_EQ(numbers, again) << place.name;
    const auto part = open_safetensors(
        SystemCalls::real(), folder / index.at("weight_map").at(place.name).get<std::string>(), SymbolicLinks::refused);
    for (const TensorPlace& other : part.header.tensors)
      if (other.name == place.name) part.file.read(part.data_begin + other.begin, again);
    EXPECT_EQ(numbers, again) << place.name;
  }
  EXPECT_TRUE(says(error_text<ConfigError>([&] { export_weights(checkpoint, folder / "x.bin", {}); }), ".safetensors"));
  EXPECT_TRUE(
      says(error_text<ConfigError>([&] { export_weights(checkpoint, folder / "x.safetensors", 0); }), "0 bytes"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { export_weights(checkpoint, folder / "no/x.safetensors", {}); }),
                   "no such folder"));
}

TEST(Checkpoints, of_a_snapshot_have_the_numbers_of_its_time) {
  std::vector<float> numbers{1, 2, 3};
  RankTensors tensors;
  tensors.model = {{"w", TensorType::f32, {3}, std::as_bytes(std::span(numbers))}, {"none", TensorType::f32, {0}}};
  RankSnapshot snapshot;
  snapshot.take(tensors);
  numbers = {4, 5, 6};
  const auto* copy = reinterpret_cast<const float*>(snapshot.tensors().model[0].bytes.data());
  EXPECT_EQ(std::vector<float>(copy, copy + 3), (std::vector<float>{1, 2, 3}));
  const std::size_t bytes = snapshot.bytes();
  snapshot.take(tensors);  // into the same memory
  EXPECT_EQ(snapshot.tensors().model[0].bytes.data(), reinterpret_cast<const std::byte*>(copy));
  EXPECT_EQ(*copy, 4);
  EXPECT_EQ(snapshot.bytes(), bytes);
}

TEST(BackgroundWriter, runs_one_piece_of_work_at_a_time_and_reports_its_error) {
  BackgroundWriter writer;
  std::atomic<int> running{0}, most{0}, done{0};
  for (int i = 0; i < 20; ++i)
    writer.start([&] {
      most = std::max(most.load(), ++running);
      std::this_thread::yield();
      --running;
      ++done;
    });
  writer.wait();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(done, 20);
  writer.start([] { throw Failure("no space"); });
  EXPECT_EQ(error_text<Failure>([&] { writer.start([&] { ++done; }); }), "no space");
  writer.wait();
  EXPECT_EQ(done, 20);
}

/// fsync() blocks until `opens` is ready.
class BlockingCalls : public SystemCalls {
 public:
  explicit BlockingCalls(std::shared_future<void> opens) : opens_(std::move(opens)) {}
  int fsync(int file) override {
    opens_.wait();
    return SystemCalls::fsync(file);
  }

 private:
  std::shared_future<void> opens_;
};

// A blocked disk was a wait without end.
TEST(BackgroundWriter, is_left_to_a_call_that_does_not_return) {
  const TemporaryFolder folder("checkpoint_blocked");
  std::promise<void> opens, ended;
  struct Writing {
    explicit Writing(std::shared_future<void> until) : blocking(std::move(until)) {}
    BlockingCalls blocking;
    WatchedCalls calls{blocking};
    std::string error = {};
  };
  const auto writing = std::make_shared<Writing>(opens.get_future().share());
  const std::chrono::milliseconds limit(1);
  EXPECT_FALSE(writing->calls.blocked(limit));
  {
    BackgroundWriter writer;
    writer.start([&ended, writing, path = folder / "file"] {
      writing->error = error_text<Failure>([&] { write_new_file(writing->calls, path, {}); });
      ended.set_value();
    });
    EXPECT_EQ(
        error_text<Failure>([&, checks = 0]() mutable {
          writer.wait([&] {
            if (const auto blocked = writing->calls.blocked(limit)) throw Failure(*blocked);
            if (++checks == 500) throw Failure("no call counts as blocked");
          });
        }),
        say("'", folder / "file",
            "': fsync has not returned for 0.001 s (the deadline): the disk or its file system does not respond"));
    EXPECT_FALSE(writer.has_ended());
    writing->calls.stop();
    writer.abandon();
  }
  opens.set_value();
  ended.get_future().wait();
  EXPECT_FALSE(writing->calls.blocked(limit));
  EXPECT_EQ(error_text<Failure>([&] { sync_directory(writing->calls, folder.string()); }),
            say("'", folder.string(), "' cannot be opened: Connection timed out (errno 110)"));
}

// Readers beside a writer: each sees a complete checkpoint, also while older ones are removed.
TEST(Checkpoints, are_read_while_others_are_written) {
  const TemporaryFolder folder("checkpoint_readers");
  CheckpointWriter writer({folder.string()});
  save_small(writer, 1);
  std::atomic<bool> ends{false};
  std::vector<std::thread> readers;
  std::vector<std::string> problems(3);
  for (std::string& problem : problems)
    readers.emplace_back([&problem, &ends, &folder] {
      std::int64_t last = 1;
      while (problem.empty() && !ends) try {
          const std::int64_t step = newest_step(folder.string());
          if (step < last) problem = say("step ", step, " after step ", last);
          last = step;
        } catch (const std::exception& error) {
          problem = error.what();
        }
    });
  for (std::int64_t step = 2; step < 60; ++step) save_small(writer, step);
  ends = true;
  for (std::thread& reader : readers) reader.join();
  for (const std::string& problem : problems) EXPECT_EQ(problem, "");
}

}  // namespace
}  // namespace penstock::test::checkpoint_writer_test
