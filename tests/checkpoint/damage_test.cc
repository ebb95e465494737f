// Damaged checkpoints: every changed bit and every missing end is detected, named, and skipped when a training resumes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "penstock/checkpoint/checkpoint_reader.h"
#include "tests/base/error_text.h"
#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::test::damage_test {
namespace {

namespace fs = std::filesystem;

class Damage : public testing::Test {
 protected:
  Damage() : folder_("checkpoint_damage") {
    CheckpointWriter writer({folder_.string()});
    save_small(writer, 1);
    newest_ = save_small(writer, 2).directory;
  }

  /// The first message about the newest checkpoint, after a fall-back to the older one.
  std::string message() const {
    const NewestCheckpoint newest = newest_checkpoint(folder_.string(), CheckpointCheck::checksums);
    if (!newest.checkpoint || newest.checkpoint->manifest().step != 1 || newest.damaged.empty()) return "";
    return newest.damaged.front();
  }

  TemporaryFolder folder_;
  std::string newest_;
};

TEST_F(Damage, of_a_bit_is_detected) {
  std::minstd_rand random(1);
  const std::vector<std::string> names = names_in(newest_);
  std::map<std::string, int> flips;
  for (int i = 0; i < 1000; ++i) {
    const std::string& name = names[random() % names.size()];
    const std::string path = newest_ + "/" + name, whole = bytes_of_file(path);
    std::string damaged = whole;
    char& byte = damaged[random() % damaged.size()];
    byte = static_cast<char>(byte ^ (1 << random() % 8));
    write_bytes(path, damaged);
    EXPECT_TRUE(says(message(), path)) << "flip " << i << " in " << name << ": " << message();
    write_bytes(path, whole);
    ++flips[name];
  }
  EXPECT_EQ(flips.size(), names.size());
  EXPECT_EQ(message(), "");
}

TEST_F(Damage, of_a_tensor_is_named) {
  const std::string path = newest_ + "/model-00001-of-00002.safetensors";
  std::string bytes = bytes_of_file(path);
  bytes.back() ^= 1;
  write_bytes(path, bytes);
  EXPECT_TRUE(says(message(), path, "tensor 'layer0.weight' is damaged: its checksum is ", " when it was written"))
      << message();
  const Checkpoint checkpoint(newest_);  // whose structure is right
  EXPECT_EQ(checkpoint.damage().size(), 1U);
  std::vector<std::byte> numbers(48);
  EXPECT_TRUE(
      says(error_text<DataError>([&] { checkpoint.read(*checkpoint.find(FileKind::model, "layer0.weight"), numbers); }),
           "tensor 'layer0.weight' is damaged"));
  EXPECT_EQ(newest_checkpoint(folder_.string(), CheckpointCheck::structure).checkpoint->manifest().step, 2);
}

TEST_F(Damage, by_truncation_is_detected) {
  for (const std::string& name : names_in(newest_)) {
    const std::string path = newest_ + "/" + name, whole = bytes_of_file(path);
    // At each byte of a .safetensors file, most of which is its header, and at some of text.
    const std::size_t stride = name.ends_with(".safetensors") ? 1 : 23;
    for (std::size_t size = 0; size < whole.size(); size += stride) {
      write_bytes(path, whole.substr(0, size));
      EXPECT_TRUE(says(message(), path)) << size << " bytes: " << message();
    }
    write_bytes(path, whole + '\0');
    EXPECT_TRUE(says(message(), path)) << "one byte more: " << message();
    fs::remove(path);
    EXPECT_TRUE(says(message(), newest_)) << "no " << path << ": " << message();
    write_bytes(path, whole);
  }
  EXPECT_EQ(message(), "");
}

// Two faults that a sum over whole files would not tell apart from an intact file of another run.
TEST_F(Damage, by_files_of_another_step_is_detected) {
  for (const std::string& name : names_in(newest_)) {
    const std::string path = newest_ + "/" + name, whole = bytes_of_file(path);
    const std::string other = bytes_of_file(folder_ / "step-00000001/" + name);
    if (other == whole) continue;  // the settings
    write_bytes(path, other);
    EXPECT_TRUE(says(message(), newest_)) << path << ": " << message();
    write_bytes(path, whole);
  }
}

// With the right checksums of header and manifest, as of a faulty writer.
TEST_F(Damage, of_the_list_of_checksums_is_detected) {
  const std::string name = "model-00001-of-00002.safetensors", path = newest_ + "/" + name;
  const std::string whole = bytes_of_file(path), key = "\"xxh3_128\":\"";
  const std::string manifest = bytes_of_file(newest_ + "/manifest.json");
  const std::size_t sums = whole.find(key) + key.size(),
                    begin = 8 + static_cast<unsigned char>(whole[0]) + 256U * static_cast<unsigned char>(whole[1]);
  const auto complaint = [&](std::size_t at, const std::string& text) {
    std::string changed = whole;
    changed.replace(at, text.size(), text);
    write_bytes(path, changed);
    std::string body = manifest.substr(manifest.find('\n') + 1);
    const std::string was = to_string(checksum_of(std::string_view(whole).substr(0, begin)));
    body.replace(body.find(was), was.size(), to_string(checksum_of(std::string_view(changed).substr(0, begin))));
    write_bytes(newest_ + "/manifest.json", sealed(body));
    return message();
  };
  EXPECT_EQ(complaint(sums, ""), "");
  EXPECT_TRUE(says(complaint(sums, "x"), path, "no checksum of the tensor 'layer0.count'"));
  EXPECT_TRUE(says(complaint(sums + 32, "\","), path));
  EXPECT_TRUE(says(complaint(sums - key.size() + 1, "y"), path, "no checksum of the tensor 'layer0.count'"));
}

TEST_F(Damage, of_all_leaves_none) {
  for (const char* step : {"step-00000001", "step-00000002"}) fs::remove(folder_ / step + "/manifest.json");
  const NewestCheckpoint newest = newest_checkpoint(folder_.string(), CheckpointCheck::structure);
  EXPECT_FALSE(newest.checkpoint);
  EXPECT_EQ(newest.damaged.size(), 2U);
}

}  // namespace
}  // namespace penstock::test::damage_test
