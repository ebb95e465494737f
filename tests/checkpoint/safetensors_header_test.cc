#include "penstock/checkpoint/safetensors_header.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "penstock/checkpoint/durable_files.h"
#include "tests/base/error_text.h"
#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::test::safetensors_header_test {
namespace {

std::string refusal(const std::string& json, std::uint64_t data_bytes) {
  return error_text<DataError>([&] { read_safetensors_header(json, data_bytes, "FILE"); });
}

/// What reading all of a file costs: the header, then the tensors' bytes.
void read_all(const std::string& path) {
  const SafetensorsFile file = open_safetensors(SystemCalls::real(), path, SymbolicLinks::refused);
  for (const TensorPlace& tensor : file.header.tensors) {
    std::vector<std::byte> bytes(tensor.end - tensor.begin);
    file.file.read(file.data_begin + tensor.begin, bytes);
  }
}

TEST(SafetensorsHeader, agrees_with_the_reference_package) {
  const std::string folder = TESTS_FOLDER "/checkpoint/goldens/safetensors_cases/";
  std::ifstream answers(folder + "answers.txt");
  int cases = 0;
  for (std::string name, answer; answers >> name >> answer; ++cases) {
    const std::string message = error_text<DataError>([&] { read_all(folder + name + ".safetensors"); });
    // The reference takes the last of two tensors of one name.
    const bool accepted = answer == "accepts" && name != "duplicate_key";
    EXPECT_EQ(message == "[no error]", accepted) << name << ": " << message;
    if (!accepted) {
      EXPECT_TRUE(says(message, name + ".safetensors")) << message;
    }
  }
  EXPECT_EQ(cases, 37);
}

TEST(SafetensorsHeader, is_written_as_the_reference_package_writes_it) {
  for (const char* name : {"written_mixed", "written_empty", "written_names"}) {
    const std::string path = std::string(TESTS_FOLDER "/checkpoint/goldens/safetensors_cases/") + name + ".safetensors";
    const SafetensorsFile file = open_safetensors(SystemCalls::real(), path, SymbolicLinks::refused);
    std::vector<TensorBytes> tensors;
    for (const TensorPlace& place : file.header.tensors) tensors.push_back({place.name, place.type, place.shape});
    std::shuffle(tensors.begin(), tensors.end(), std::minstd_rand(1));
    const SafetensorsHeader again = place_tensors(tensors, file.header.metadata);
    EXPECT_EQ(again, file.header) << name;
    EXPECT_EQ(safetensors_prefix(again), bytes_of_file(path).substr(0, file.data_begin)) << name;
  }
}

RC_GTEST_PROP(SafetensorsHeader, reads_back, ()) {
  std::vector<TensorBytes> tensors;
  std::map<std::string, std::string> metadata;
  const int count = *rc::gen::inRange(0, 6);
  for (int i = 0; i < count; ++i) {
    std::string name = std::to_string(i);
    for (const char c : *rc::gen::arbitrary<std::string>()) name += static_cast<char>(c & 0x7f);
    metadata[name] = name + "!";
    TensorBytes& tensor = tensors.emplace_back();
    tensor.name = name;
    tensor.type = static_cast<TensorType>(*rc::gen::inRange(0, 15));
    for (int rank = *rc::gen::inRange(0, 5); rank > 0; --rank)
      tensor.shape.push_back(*rc::gen::inRange<std::int64_t>(0, 6));
  }
  const SafetensorsHeader header = place_tensors(tensors, metadata);
  const std::string prefix = safetensors_prefix(header);
  RC_ASSERT(prefix.size() % 8 == 0);
  const std::uint64_t bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
  RC_ASSERT(read_safetensors_header(std::string_view(prefix).substr(8), bytes, "FILE") == header);
}

TEST(SafetensorsHeader, keeps_the_order_of_tensors_without_elements) {
  const SafetensorsHeader header = place_tensors({{"a", TensorType::u8, {0}}, {"b", TensorType::f32, {0}}}, {});
  EXPECT_EQ(header.tensors.front().name, "b");
  EXPECT_EQ(read_safetensors_header(safetensors_prefix(header).substr(8), 0, "FILE"), header);
}

TEST(SafetensorsHeader, may_come_in_pieces) {
  const SafetensorsHeader header =
      place_tensors({{"gr\xc3\xb6\xc3\x9f", TensorType::f32, {2, 3}}, {"b"}}, {{"key", "a"}});
  const std::string json = safetensors_prefix(header).substr(8);
  for (std::size_t size = 1; size <= json.size(); ++size) {
    std::size_t at = 0;
    const auto next = [&] {
      const std::string_view piece = std::string_view(json).substr(at, size);
      at += piece.size();
      return piece;
    };
    EXPECT_EQ(read_safetensors_header(next, header.tensors.back().end, "FILE"), header) << size;
  }
  std::size_t pieces = 0;
  const auto nul = [&] { return ++pieces == 1 ? std::string_view("{}") : std::string_view("\0", 1); };
  EXPECT_TRUE(says(error_text<DataError>([&] { read_safetensors_header(nul, 0, "FILE"); }), "a NUL at byte 10"));
}

TEST(SafetensorsHeader, files_of_torch_save_are_named) {
  const std::string path = testing::TempDir() + "torch_save_" + std::to_string(::getpid());
  for (const char* begin : {"PK\x03\x04\x00\x00\x08\x08\x00\x00", "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20"}) {
    write_bytes(path, std::string(begin, 10));
    EXPECT_TRUE(says(error_text<DataError>([&] { read_all(path); }), path, "torch.save", "weights_only=True"));
  }
  // A header of 640 bytes begins as a pickle does.
  write_bytes(path, std::string("\x80\x02\0\0\0\0\0\0{}", 10) + std::string(638, ' '));
  EXPECT_EQ(error_text<DataError>([&] { read_all(path); }), "[no error]");
  std::filesystem::remove(path);
}

TEST(SafetensorsHeader, refuses_what_is_not_exactly_the_format) {
  const std::string entry = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(refusal(R"({"w":)" + entry + "}", 8), "[no error]");
  struct Case {
    std::string json, message;
  };
  for (const Case& one : {
           Case{"\xef\xbb\xbf{}", "not a JSON object"},
           {std::string("{}\0", 3), "a NUL at byte 10"},
           {"{} {}", "not a JSON object: invalid JSON at byte"},
           {"3", "not a JSON object"},
           {R"({"w":[)" + entry + "]}", "tensor 'w': its header is not an object"},
           {R"({"w":{"dtype":{},"shape":[2],"data_offsets":[0,8]}})", "no valid \"dtype\""},
           {R"({"w":{"dtype":"F32","shape":{},"data_offsets":[0,8]}})", "no valid \"shape\""},
           {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":8}})", "no valid \"data_offsets\""},
           {R"({"w":{"dtype":"F32","shape":[2]}})", "no valid \"data_offsets\""},
           {R"({"w":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "has a list, but"},
           {R"({"w":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", "has \"2\", but"},
           {R"({"w":{"dtype":"F32","shape":[null],"data_offsets":[0,8]}})", "has null, but"},
           {R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "has -2, but"},
           {R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "has 2.0, but"},
           {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "has 1 data_offsets"},
           {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", "has 3 data_offsets"},
           {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "before its start"},
           {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "begins at 4"},
           {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "takes 12 bytes, but has 8"},
           {R"({"__metadata__":{"n":3}})", "'n' is not text"},
           {"{\"\xff\":1}", "its header is not a JSON object"},
           {R"({"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "has \"dtype\" twice"},
           {R"({"w":)" + entry + R"(,"w":)" + entry + "}", "has tensor 'w' twice"},
           {R"({"__metadata__":{},"__metadata__":{}})", "has __metadata__ twice"},
           {R"({"__metadata__":{"a":"1","a":"2"}})", "has 'a' twice"},
           {R"({"__metadata__":[]})", "__metadata__ is not an object"},
           {R"({"w":{"x":)" + std::string(50, '[') + std::string(50, ']') + "}}", "nests deeper than 32"},
           {R"({"w":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", "more elements than"},
           {R"({"w":{"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]}})", "more elements than"},
           {R"({"w":{"dtype":"F32","shape":[)" + std::string("1,") +
                [] {
                  std::string ones;
                  for (int i = 0; i < 70; ++i) ones += "1,";
                  return ones;
                }() +
                R"(2],"data_offsets":[0,8]}})",
            "more than 64 dimensions"},
           {R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "promises 16 bytes of data and holds 8"},
           {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "promises 4 bytes of data and holds 8"},
           {R"({"w":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8]}})", "more elements than"},
       })
    EXPECT_TRUE(says(refusal(one.json, 8), "FILE", one.message)) << one.json << ": " << refusal(one.json, 8);
}

TEST(SafetensorsHeader, refuses_tensors_that_it_cannot_hold) {
  const auto complaint = [](const std::vector<TensorBytes>& tensors, const std::map<std::string, std::string>& data) {
    return error_text<ConfigError>([&] { safetensors_prefix(place_tensors(tensors, data)); });
  };
  EXPECT_TRUE(says(complaint({{"a\xff"}}, {}), "tensor 'a\\xff'", "not UTF-8"));
  EXPECT_TRUE(says(complaint({}, {{"note", "\xfe"}}), "'note'", "not UTF-8"));
  EXPECT_TRUE(says(complaint({{"__metadata__"}}, {}), "cannot be called"));
  EXPECT_TRUE(says(complaint({{"a"}, {"a"}}, {}), "two tensors of one file are called 'a'"));
  EXPECT_TRUE(says(complaint({{"a", TensorType::f32, std::vector<std::int64_t>(65, 1)}}, {}), "65 dimensions"));
  EXPECT_TRUE(says(complaint({{"a", TensorType::f32, {std::int64_t{1} << 62}}}, {}), "larger than a file"));
}

// Memory is bounded by the size of the text, whatever it claims.
TEST(SafetensorsHeader, refuses_promises_before_it_allocates) {
  const std::string bomb =
      R"({"w":{"dtype":"F64","shape":[288230376151711744],"data_offsets":[0,2305843009213693952]}})";
  EXPECT_TRUE(says(refusal(bomb, 8), "promises 2305843009213693952 bytes of data and holds 8"));
  std::string many = "{";
  for (int i = 0; i < 300'000; ++i) {
    if (i > 0) many += ',';
    many += '"' + std::to_string(i);
    many += R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  EXPECT_TRUE(says(refusal(many + "}", 0), "more than 250000 tensors"));
  EXPECT_TRUE(says(refusal(std::string(1'000'000, '['), 0), "not a JSON object"));
}

TEST(ReadFile, refuses_what_is_no_file_of_the_checkpoint) {
  const TemporaryFolder folder("read_file");
  const auto complaint = [&](const std::string& name, SymbolicLinks links) {
    return error_text<DataError>([&] { ReadFile(SystemCalls::real(), folder / name, links); });
  };
  write_bytes(folder / "file", "12345678");
  std::filesystem::create_symlink(folder / "file", folder / "link");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(complaint("link", SymbolicLinks::followed), "[no error]");
  EXPECT_TRUE(says(complaint("link", SymbolicLinks::refused), "link", "is a symbolic link"));
  EXPECT_TRUE(says(complaint("pipe", SymbolicLinks::refused), "not a regular file"));
  EXPECT_TRUE(says(complaint(".", SymbolicLinks::refused), "not a regular file"));
  EXPECT_TRUE(says(complaint("none", SymbolicLinks::refused), "No such file or directory (errno 2)"));
  const ReadFile file(SystemCalls::real(), folder / "file", SymbolicLinks::refused);
  EXPECT_EQ(file.text(8), "12345678");
  EXPECT_TRUE(says(error_text<DataError>([&] { file.text(7); }), "has 8 bytes: more than the 7"));
  std::filesystem::resize_file(folder / "file", 3);
  EXPECT_TRUE(says(error_text<DataError>([&] { file.text(8); }), "it ends at byte 3, and had 8"));
}

}  // namespace
}  // namespace penstock::test::safetensors_header_test
