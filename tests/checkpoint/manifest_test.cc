#include "penstock/checkpoint/manifest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/support/temporary_folder.h"

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
    file.header_bytes = *rc::gen::inRange<std::uint64_t>(0, file.bytes + 1);
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

/// The message about `body`, with `from` replaced by `to` and the checksum renewed.
std::string refusal_of(std::string body, const std::string& from, const std::string& to) {
  const std::size_t at = body.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  body.replace(at, from.size(), to);
  return error_text<DataError>([&] { read_manifest(sealed(body), "FILE"); });
}

/// The manifest of one file, with `from` replaced by `to` and the checksum renewed.
std::string refusal_with(const std::string& from, const std::string& to) {
  Manifest manifest;
  manifest.states["hook"] = {{"best", HUGE_VAL}};
  manifest.files = {{"model-00001-of-00001.safetensors", FileKind::model, 100, 0, 64}};
  std::string body = write_manifest(manifest);
  return refusal_of(body.substr(body.find('\n') + 1), from, to);
}

TEST(Manifest, refuses_what_is_not_exactly_the_format) {
  EXPECT_EQ(refusal_with("model-", "model-"), "[no error]");
  EXPECT_TRUE(says(refusal_with("penstock checkpoint", "another"), "FILE is not a manifest", "format is 'another'"));
  EXPECT_TRUE(says(refusal_with("\"version\": 2", "\"version\": 3"), "has version 3", "reads version 1 to 2"));
  EXPECT_TRUE(says(refusal_with("\"seed\": 0", "\"seed\": -1"), "FILE's data.seed", "0 to 2^64 - 1"));
  EXPECT_TRUE(says(refusal_with("\"step\": 0", "\"step\": 0, \"step\": 1"), "has the member 'step' twice"));
  EXPECT_TRUE(says(refusal_with("\"step\": 0,", ""), "no member 'step'"));
  EXPECT_TRUE(says(refusal_with("\"seed\"", "\"speed\": 3, \"seed\""), "'speed', which is not known"));
  EXPECT_TRUE(says(refusal_with("\"inf\"", "\"infinite\""), "states.hook.best.number is 'infinite'"));
  EXPECT_TRUE(says(refusal_with("\"micro_batches\": 1", "\"micro_batches\": 0"), "bits.micro_batches is 0"));
  EXPECT_TRUE(says(refusal_with("\"version\": 2", "\"version\": 0"), "has version 0", "reads version 1 to 2"));
  EXPECT_TRUE(says(refusal_with("\"xxh3_128\":\"0", "\"xxh3_128\":\"x"), "is not a checksum of 32 digits"));
  EXPECT_TRUE(says(refusal_with("\"kind\":\"model\"", "\"kind\":\"code\""), "files[0].kind is 'code'"));
  EXPECT_TRUE(says(refusal_with("\"bytes\":100", "\"bytes\":63"), "has a header of 64 bytes, and 63 bytes in all"));
  EXPECT_TRUE(says(refusal_with("\"header_bytes\":64", "\"tensors\":[]"), "files[0]", "'tensors'"));
  EXPECT_TRUE(says(error_text<DataError>([] { read_manifest("", "FILE"); }), "does not begin with its checksum"));
  EXPECT_TRUE(says(error_text<DataError>([] { read_manifest("{}", "FILE"); }), "does not begin with its checksum"));
  EXPECT_TRUE(says(error_text<DataError>([] { read_manifest(sealed("["), "FILE"); }), "is not JSON"));
}

// Whose files have their tensors, and no size of the header.
TEST(Manifest, of_version_1_has_tensors) {
  const std::string manifest = bytes_of_file(TESTS_FOLDER "/checkpoint/goldens/version_1/step-00000005/manifest.json");
  const std::string body = manifest.substr(manifest.find('\n') + 1);
  const FileRecord file = read_manifest(manifest, "FILE").files.front();
  EXPECT_EQ(file.header_bytes, 0U);
  ASSERT_EQ(file.tensors.size(), 3U);
  EXPECT_EQ(file.tensors.back().name, "layer0.weight");
  EXPECT_EQ(refusal_of(body, "F32", "F32"), "[no error]");
  EXPECT_TRUE(says(refusal_of(body, "\"I64\"", "\"I65\""), "files[0].tensors[0].dtype is 'I65'"));
  EXPECT_TRUE(says(refusal_of(body, "\"dtype\"", "\"type\""), "files[0].tensors[0]", "'type', which is not known"));
  EXPECT_TRUE(says(refusal_of(body, "\"version\": 1", "\"version\": 2"), "files[0]", "'tensors', which is not known"));
}

TEST(Manifest, refuses_names_that_leave_the_directory) {
  for (const char* name : {"../x", "/etc/passwd", "a/b", "", ".", "..", ".hidden", "a\\nb", "manifest.json", "\\u00e4"})
    EXPECT_TRUE(says(refusal_with("model-00001-of-00001.safetensors", name), "names a file '")) << name;
  EXPECT_TRUE(says(refusal_with("model-00001-of-00001.safetensors", std::string(10'000, 'a')), "names a file '"));
}

TEST(Manifest, is_not_written_if_it_could_not_be_read) {
  const auto complaint = [](auto&& change) {
    Manifest manifest;
    manifest.files = {{"a", FileKind::model, 100, 0, 64}};
    change(manifest);
    return error_text<ConfigError>([&] { write_manifest(manifest); });
  };
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.step = -1; }), "step, epoch and step in the epoch are -1, 0 and 0"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.bits.threads = 0; }), "0 threads"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.bits.kernels = "\xff"; }), "'\\xff' is not UTF-8"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.states["h"]["x"] = "\xff"; }), "'\\xff' is not UTF-8"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.files.push_back(m.files[0]); }), "names the file 'a' twice"));
  EXPECT_TRUE(says(complaint([](Manifest& m) { m.files[0].header_bytes = 101; }), "has a header of 101 bytes"));
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

// From the program xxh128sum of the library's authors.
TEST(Checksum, is_the_one_of_other_programs) {
  EXPECT_EQ(to_string(checksum_of("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_string(checksum_of("penstock")), "c6932a2f07b073d6763ffab4001f7bdf");
}

RC_GTEST_PROP(Checksum, reads_back_and_adds_up, (const std::string& text, const std::string& more)) {
  RunningChecksum sum;
  sum.add(std::as_bytes(std::span(text)));
  sum.add(std::as_bytes(std::span(more)));
  RC_ASSERT(sum.result() == checksum_of(text + more));
  RC_ASSERT(checksum_from(to_string(sum.result())) == sum.result());
}

TEST(Checksum, is_nothing_for_other_text) {
  for (const char* text :
       {"", "99aa06d3014798d86001c324468d497", "99aa06d3014798d86001c324468d497f0", "99aa06d3014798d86001c324468d497g",
        "99AA06D3014798D86001C324468D497F", "-9aa06d3014798d86001c324468d497f"})
    EXPECT_FALSE(checksum_from(text)) << text;
}
}  // namespace
}  // namespace penstock::test::manifest_test
