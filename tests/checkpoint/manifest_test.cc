#include "penstock/checkpoint/manifest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "penstock/base/error.h"
#include "penstock/checkpoint/weight_index.h"
#include "tests/base/error_text.h"

namespace penstock::test::manifest_test {
namespace {

std::string ascii(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += static_cast<char>(c & 0x7f);
  return text;
}

std::string any_text() { return ascii(*rc::gen::arbitrary<std::string>()); }

StateValue any_value() {
  switch (*rc::gen::inRange(0, 4)) {
    case 0: return *rc::gen::arbitrary<std::int64_t>();
    case 1: return *rc::gen::arbitrary<double>();
    case 2: return *rc::gen::element(HUGE_VAL, -HUGE_VAL, -0.0, 5e-324, 1e300);
    default: return any_text();
  }
}

std::vector<FileRecord> any_files() {
  std::vector<FileRecord> files;
  const int count = *rc::gen::inRange(0, 4);
  for (int f = 0; f < count; ++f) {
    FileRecord& file = files.emplace_back();
    file.name = say("file-", f, ".safetensors");
    file.kind = static_cast<FileKind>(*rc::gen::inRange(0, 3));
    file.checksum = {*rc::gen::arbitrary<std::uint64_t>(), *rc::gen::arbitrary<std::uint64_t>()};
    file.bytes = *rc::gen::inRange<std::uint64_t>(0, 100);
    if (file.kind == FileKind::text) continue;
    file.owner = *rc::gen::inRange<std::int64_t>(0, 9);
    const int tensors = *rc::gen::inRange(0, 4);
    for (int t = 0; t < tensors; ++t) {
      TensorRecord tensor{say(f, ".", t, any_text()), static_cast<TensorType>(*rc::gen::inRange(0, 15))};
      tensor.shape = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 4));
      tensor.shape.resize(std::min<std::size_t>(tensor.shape.size(), 5));
      tensor.checksum = {*rc::gen::arbitrary<std::uint64_t>(), 3};
      file.bytes += *size_in_bytes(tensor.type, tensor.shape);
      file.tensors.push_back(tensor);
    }
  }
  return files;
}

RC_GTEST_PROP(Manifest, reads_back, ()) {
  Manifest manifest;
  manifest.written_by = any_text();
  manifest.step = *rc::gen::inRange<std::int64_t>(0, INT64_MAX);
  manifest.data = {*rc::gen::inRange<std::int64_t>(0, 99), 3, *rc::gen::arbitrary<std::uint64_t>()};
  manifest.seed = *rc::gen::arbitrary<std::uint64_t>();
  manifest.bits = {*rc::gen::inRange<std::int64_t>(1, 99), 2, 3, any_text(), any_text(), any_text()};
  const int states = *rc::gen::inRange(0, 3);
  for (int s = 0; s < states; ++s) {
    auto& state = manifest.states[any_text()];
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) state[any_text()] = any_value();
  }
  manifest.files = any_files();
  const std::string text = write_manifest(manifest);
  RC_ASSERT(read_manifest(text, "FILE") == manifest);
  RC_ASSERT(read_file_records(write_file_records(manifest.files)) == manifest.files);
  // One changed byte anywhere, or a missing end, is detected.
  std::string damaged = text;
  const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
  damaged[at] = static_cast<char>(damaged[at] ^ (1 << *rc::gen::inRange(0, 8)));
  RC_ASSERT(error_text<DataError>([&] { read_manifest(damaged, "FILE"); }).starts_with("FILE "));
  RC_ASSERT(error_text<DataError>([&] { read_manifest(text.substr(0, at), "FILE"); }).starts_with("FILE "));
}

TEST(Manifest, keeps_numbers_that_json_lacks) {
  Manifest manifest;
  manifest.states["hook"] = {{"best", std::nan("")}, {"least", -HUGE_VAL}, {"zero", -0.0}, {"whole", 5.0}};
  const StateValues read = read_manifest(write_manifest(manifest), "FILE").states.at("hook");
  EXPECT_TRUE(std::isnan(std::get<double>(read.at("best"))));
  EXPECT_EQ(std::get<double>(read.at("least")), -HUGE_VAL);
  EXPECT_TRUE(std::signbit(std::get<double>(read.at("zero"))));
  EXPECT_EQ(std::get<double>(read.at("whole")), 5.0);
}

/// The manifest of one file, with `from` replaced by `to` and the checksum renewed.
std::string refusal_with(const std::string& from, const std::string& to) {
  Manifest manifest;
  manifest.states["hook"] = {{"best", HUGE_VAL}};
  manifest.files = {{"model-00001-of-00001.safetensors", FileKind::model, 100, 0, {}, {{"w", TensorType::f32, {2}}}}};
  std::string body = write_manifest(manifest);
  body.erase(0, body.find('\n') + 1);
  const std::size_t at = body.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  body.replace(at, from.size(), to);
  return error_text<DataError>([&] { read_manifest(sealed(body), "FILE"); });
}

TEST(Manifest, refuses_what_is_not_exactly_the_format) {
  EXPECT_EQ(refusal_with("model-", "model-"), "[no error]");
  EXPECT_TRUE(says(refusal_with("penstock checkpoint", "another"), "FILE is no manifest", "format is 'another'"));
  EXPECT_TRUE(says(refusal_with("\"version\": 1", "\"version\": 2"), "has version 2", "reads version 1"));
  EXPECT_TRUE(says(refusal_with("\"seed\": 0", "\"seed\": -1"), "FILE's data.seed", "0 to 2^64 - 1"));
  EXPECT_TRUE(says(refusal_with("\"step\": 0", "\"step\": 0, \"step\": 1"), "has the member 'step' twice"));
  EXPECT_TRUE(says(refusal_with("\"step\": 0,", ""), "no member 'step'"));
  EXPECT_TRUE(says(refusal_with("\"seed\"", "\"speed\": 3, \"seed\""), "'speed', which is not known"));
  EXPECT_TRUE(says(refusal_with("\"inf\"", "\"infinite\""), "states.hook.best.number is 'infinite'"));
  EXPECT_TRUE(says(refusal_with("\"micro_batches\": 1", "\"micro_batches\": 0"), "bits.micro_batches is 0"));
  EXPECT_TRUE(says(refusal_with("\"F32\"", "\"F33\""), "files[0].tensors[0].dtype is 'F33'"));
  EXPECT_TRUE(says(refusal_with("\"xxh3_128\":\"0", "\"xxh3_128\":\"x"), "is no checksum of 32 digits"));
  EXPECT_TRUE(says(refusal_with("\"kind\":\"model\"", "\"kind\":\"code\""), "files[0].kind is 'code'"));
  EXPECT_TRUE(says(refusal_with("\"bytes\":100", "\"bytes\":7"), "tensor 'w' of shape [2] does not fit", "7 bytes"));
  EXPECT_TRUE(says(error_text<DataError>([] { read_manifest("", "FILE"); }), "does not begin with its checksum"));
  EXPECT_TRUE(says(error_text<DataError>([] { read_manifest("{}", "FILE"); }), "does not begin with its checksum"));
  EXPECT_TRUE(says(error_text<DataError>([] { read_manifest(sealed("["), "FILE"); }), "is no JSON"));
}

TEST(Manifest, refuses_names_that_leave_the_directory) {
  for (const char* name : {"../x", "/etc/passwd", "a/b", "", ".", "..", ".hidden", "a\\nb", "manifest.json", "\\u00e4"})
    EXPECT_TRUE(says(refusal_with("model-00001-of-00001.safetensors", name), "names a file '")) << name;
  EXPECT_TRUE(says(refusal_with("model-00001-of-00001.safetensors", std::string(10'000, 'a')), "names a file '"));
  for (const char* name : {"../x", "/etc/passwd", "a/b", "", ".."})
    EXPECT_TRUE(says(error_text<DataError>([&] {
                       read_weight_index(say(R"({"metadata":{"total_size":1},"weight_map":{"w":")", name, "\"}}"), "X");
                     }),
                     "X's weight_map.w is '", "no plain name"))
        << name;
}

TEST(Manifest, is_not_written_if_it_could_not_be_read) {
  const auto complaint = [](auto&& change) {
    Manifest manifest;
    manifest.files = {{"a", FileKind::model, 100, 0, {}, {{"w", TensorType::f32, {2}}}}};
    change(manifest);
    return error_text<ConfigError>([&] { write_manifest(manifest); });
  };
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.step = -1; }), "step, epoch and step in the epoch are -1, 0 and 0"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.bits.threads = 0; }), "0 threads"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.bits.kernels = "\xff"; }), "'\\xff' is not UTF-8"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.states["h"]["x"] = "\xff"; }), "'\\xff' is not UTF-8"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.files.push_back(m.files[0]); }), "names the file 'a' twice"));
  EXPECT_TRUE(says(complaint([](Manifest& m) {
                     m.files.push_back(m.files[0]);
                     m.files[1].name = "b";
                   }),
                   "has the tensor 'w' twice"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.files[0].owner.reset(); }), "wrong owner"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.files[0].kind = FileKind::text; }), "wrong owner"));
}

TEST(Manifest, says_what_differs) {
  BitSettings now{8, 1, 1, "fixed", "fp32", "stream"}, then = now;
  EXPECT_EQ(differences(now, then), "");
  now.micro_batches = 4;
  now.precision = "bf16";
  EXPECT_EQ(differences(now, then), "micro-batches 4 instead of 8, precision bf16 instead of fp32");
}

RC_GTEST_PROP(WeightIndex, reads_back, ()) {
  WeightIndex index;
  index.total_size = *rc::gen::arbitrary<std::uint64_t>();
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i) index.files[any_text()] = say("model-", i, ".safetensors");
  RC_ASSERT(read_weight_index(write_weight_index(index), "FILE") == index);
}

TEST(WeightIndex, takes_those_of_other_programs) {
  const WeightIndex index = read_weight_index(
      R"({"metadata": {"total_size": 8, "total_parameters": 2},
          "weight_map": {"w": "model-00001-of-00001.safetensors"}})",
      "FILE");
  EXPECT_EQ(index.files.at("w"), "model-00001-of-00001.safetensors");
  EXPECT_TRUE(says(error_text<DataError>([] { read_weight_index("{}", "FILE"); }), "FILE has no member 'metadata'"));
}

}  // namespace
}  // namespace penstock::test::manifest_test
