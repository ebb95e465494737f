#include "penstock/data/data_files.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <zlib.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/data/allocations.h"
#include "tests/fuzz/data_input.h"
#include "tests/fuzz/replay.h"
#include "tests/support/temporary_folder.h"

namespace penstock::idx_test {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes header(std::initializer_list<std::uint32_t> shape) {
  Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(shape.size())};
  for (std::uint32_t size : shape)
    for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(size >> shift));
  return bytes;
}

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Bytes gzip(const Bytes& plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  Bytes packed(deflateBound(&stream, plain.size()));
  stream.next_in = const_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

Bytes first(Bytes bytes, std::size_t count) {
  bytes.resize(count);
  return bytes;
}

/// The error message for `content`.
std::string refusal(const Bytes& content, const IdxLimits& limits = {}) {
  return test::error_text<DataError>([&] { parse_idx(content, "digits", limits); });
}

TEST(Idx, reads_plain_and_compressed) {
  const Bytes file = header({2, 3}) + Bytes{1, 2, 3, 4, 5, 6};
  for (const Bytes& content : {file, gzip(file), gzip(first(file, 9)) + gzip(Bytes(file.begin() + 9, file.end()))}) {
    const IdxArray array = parse_idx(content, "digits");
    EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(array.bytes, (Bytes{1, 2, 3, 4, 5, 6}));
  }
}

TEST(Idx, a_dimension_of_zero_holds_nothing) {
  const IdxArray array = parse_idx(header({0, 0xffffffff, 0xffffffff}), "digits");
  EXPECT_TRUE(array.bytes.empty());
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{0, 0xffffffff, 0xffffffff}));
}

TEST(Idx, refuses_what_is_not_idx) {
  EXPECT_EQ(refusal({}), "'digits' is not an IDX file: it ends after 0 of the 4 bytes of its magic");
  EXPECT_EQ(refusal({0, 0, 8}), "'digits' is not an IDX file: it ends after 3 of the 4 bytes of its magic");
  EXPECT_EQ(refusal({'P', 'K', 8, 1}), "'digits' is not an IDX file: its first bytes are 80 75, not 0 0");
  EXPECT_EQ(refusal({0, 0, 13, 1, 0, 0, 0, 0}), "'digits' holds IDX type 13: only type 8 (unsigned byte) is read");
  EXPECT_EQ(refusal({0, 0, 8, 0}), "'digits' is an IDX file of 0 dimensions: at least 1 is needed");
  EXPECT_EQ(refusal(first(header({2, 3}), 10)),
            "'digits' breaks off in its header: it promises 2 dimensions and has 1");
}

TEST(Idx, refuses_a_wrong_size) {
  const Bytes file = header({2, 3}) + Bytes{1, 2, 3, 4, 5, 6};
  for (const Bytes& content : {file + Bytes{7}, gzip(file + Bytes{7})})
    EXPECT_EQ(refusal(content), "'digits' promises 2 x 3 = 6 bytes and holds more");
  for (const Bytes& content : {first(file, 17), gzip(first(file, 17))})
    EXPECT_TRUE(test::says(refusal(content), "'digits' promises 2 x 3 = 6 bytes and holds 5: the copy is incomplete"));
}

TEST(Idx, refuses_every_truncation_of_a_compressed_file) {
  Bytes payload(300);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::uint8_t>(i * i * 7 + i);
  const Bytes whole = gzip(header({300}) + payload);
  ASSERT_EQ(refusal(whole), "[no error]");
  for (std::size_t count = 2; count < whole.size(); ++count)
    EXPECT_NE(refusal(first(whole, count)), "[no error]") << count << " of " << whole.size();
  EXPECT_EQ(refusal(first(whole, whole.size() - 1)),
            "'digits' breaks off in the middle of its gzip stream, after 308 bytes of content: the copy is incomplete, "
            "fetch it again");
}

TEST(Idx, refuses_a_damaged_or_padded_compressed_file) {
  Bytes damaged = gzip(header({4}) + Bytes{1, 2, 3, 4});
  damaged[damaged.size() - 5] ^= 1;  // the check sum
  EXPECT_EQ(refusal(damaged),
            "'digits' is damaged: gzip says 'incorrect data check' after 12 bytes of content; fetch it again");
  EXPECT_EQ(refusal(gzip(header({1}) + Bytes{1}) + Bytes{0, 0, 0}),
            "'digits' has 3 bytes after its gzip stream: there must be none");
}

TEST(Idx, refuses_sizes_beyond_the_limit) {
  const Bytes claim = header({0x80000000, 0x80000000});  // 2^62
  EXPECT_EQ(refusal(claim), "'digits' claims 2147483648 x 2147483648 bytes: more than the 268435456 that are accepted");
  EXPECT_EQ(refusal(gzip(claim)), refusal(claim));
  EXPECT_EQ(refusal(Bytes{0, 0, 8, 255} + Bytes(std::size_t{4} * 255, 0xff)).substr(0, 42),
            "'digits' claims 4294967295 x 4294967295 x ");
  EXPECT_EQ(refusal(header({5}) + Bytes(5), {.max_bytes = 5}), "[no error]");
  EXPECT_EQ(refusal(header({6}) + Bytes(6), {.max_bytes = 5}),
            "'digits' claims 6 bytes: more than the 5 that are accepted");
}

TEST(Idx, a_wrong_size_in_the_header_costs_no_memory) {
  // Within the limit, but neither 8 bytes nor 40 bytes of gzip can contain 200 MiB.
  const Bytes claim = header({200 << 20});
  const Bytes packed_claim = gzip(claim);
  // A decompression bomb: 8 MiB of zeros in about 8 KiB, with a header for one image; and one with a header for 200 MiB
  // and enough bytes to make that possible.
  const Bytes bomb = gzip(header({1, 28, 28}) + Bytes(std::size_t{8} << 20));
  const Bytes liar = packed_claim + Bytes(std::size_t{300} << 10, 0x5a);

  largest_allocation = 0;
  EXPECT_EQ(refusal(claim),
            "'digits' promises 209715200 = 209715200 bytes, but the file's 8 bytes cannot hold them: the copy is "
            "incomplete, fetch it again");
  EXPECT_NE(refusal(packed_claim), "[no error]");
  EXPECT_EQ(refusal(bomb), "'digits' promises 1 x 28 x 28 = 784 bytes and holds more");
  EXPECT_EQ(refusal(liar), "'digits' has 307200 bytes after its gzip stream: there must be none");
  EXPECT_GE(largest_allocation, 784u);
  EXPECT_LE(largest_allocation, std::size_t{1} << 20);
}

TEST(Idx, names_files_that_cannot_be_read) {
  const test::TemporaryFolder folder("idx");
  const auto message = [](const std::string& path) { return test::error_text<DataError>([&] { read_idx(path); }); };
  const std::string absent = folder / "absent";
  EXPECT_EQ(message(absent), "cannot open '" + absent + "': No such file or directory");
  EXPECT_EQ(message(folder.string()), "cannot open '" + folder.string() + "': it is not a regular file");

  const std::string path = folder / "two";
  const Bytes content = gzip(header({2}) + Bytes{8, 9});
  test::write_bytes(path, {content.begin(), content.end()});
  EXPECT_EQ(read_idx(path).bytes, (Bytes{8, 9}));
  std::filesystem::resize_file(path, std::uintmax_t{300} << 20);  // sparse: costs no disk
  EXPECT_EQ(message(path), "'" + path + "' has 314572800 bytes: more than the 268436480 that are accepted");
}

TEST(Idx, corpus_of_the_fuzzer) { EXPECT_GE(replay("idx", try_idx), 12); }

RC_GTEST_PROP(Idx, WhatIsWrittenIsReadAndAnyOtherLengthRefused, ()) {
  const auto rows = *rc::gen::inRange<std::uint32_t>(1, 20);
  const auto columns = *rc::gen::inRange<std::uint32_t>(1, 20);
  const auto payload = *rc::gen::container<Bytes>(rows * columns, rc::gen::arbitrary<std::uint8_t>());
  const Bytes file = header({rows, columns}) + payload;
  for (const Bytes& content : {file, gzip(file)}) RC_ASSERT(parse_idx(content, "digits").bytes == payload);
  const auto length = *rc::gen::inRange<std::size_t>(0, 2 * file.size());
  if (length != file.size()) RC_ASSERT_THROWS_AS(parse_idx(first(file, length), "digits"), DataError);
}

}  // namespace
}  // namespace penstock::idx_test
