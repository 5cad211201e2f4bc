// safetensors files: round trips, models of several files, hostile headers.
#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "tests/temporary_directory.h"

namespace seqfuse::io::io_safetensors_test {
namespace {
namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
TensorView view(const char* dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {dtype, std::move(shape), std::as_bytes(std::span(values))};
}

template <class T>
std::vector<T> values_of(const TensorView& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

std::string length_bytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i));
  return bytes;
}

template <class Read>
std::string error_of(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class Safetensors : public testing::Test {
 protected:
  fs::path path(const std::string& name) const { return directory_.path() / name; }
  std::string model_error(const std::string& name) const {
    return error_of([&] { SafetensorsModel{path(name)}; });
  }

  const std::vector<float> floats_ = {1, -2.5F, 3};
  const std::vector<double> doubles_ = {7};
  const std::vector<uint8_t> bytes_ = {1, 2};
  TemporaryDirectory directory_;
};

TEST_F(Safetensors, RoundTripsWithWideElementsFirst) {
  write_safetensors(path("x"),
                    {{"a.bytes", view("U8", {2, 1}, bytes_)},
                     {"b", view("F32", {3}, floats_)},
                     {"empty", view("F32", {0, 5}, std::vector<float>())},
                     {"scalar", view("F64", {}, doubles_)}},
                    {{"format", "pt"}});
  const SafetensorsFile file(path("x"));
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  std::vector<std::string> order;
  std::map<std::string, TensorView> tensors;
  for (const auto& [name, tensor] : file.tensors()) {
    order.push_back(name);
    tensors.emplace(name, tensor);
  }
  EXPECT_EQ(order.front(), "scalar");
  EXPECT_EQ(order.back(), "a.bytes");
  EXPECT_EQ(values_of<double>(tensors.at("scalar")), doubles_);
  EXPECT_EQ(values_of<float>(tensors.at("b")), floats_);
  EXPECT_EQ(values_of<uint8_t>(tensors.at("a.bytes")), bytes_);
  EXPECT_THAT(tensors.at("a.bytes").shape, ElementsAre(2, 1));
  EXPECT_THAT(tensors.at("empty").shape, ElementsAre(0, 5));
  EXPECT_TRUE(tensors.at("scalar").shape.empty());
  EXPECT_THAT(error_of([&] { write_safetensors(path("y"), {{"t", view("F32", {4}, floats_)}}); }),
              HasSubstr("tensor t of dtype F32 has 12 bytes, its shape needs 16"));
}

TEST_F(Safetensors, AModelIsAFileAnIndexOrADirectory) {
  fs::create_directory(path("one"));
  write_safetensors(path("one/model.safetensors"), {{"b", view("F32", {3}, floats_)}});
  for (const char* name : {"one", "one/model.safetensors"}) {
    const SafetensorsModel model(path(name));
    EXPECT_EQ(values_of<float>(model.tensors().at("b")), floats_);
  }

  fs::create_directory(path("many"));
  write_safetensors(path("many/1.safetensors"), {{"a", view("U8", {2}, bytes_)}});
  write_safetensors(path("many/2.safetensors"),
                    {{"b", view("F32", {3}, floats_)}, {"c", view("F64", {1}, doubles_)}});
  const fs::path index = path("many/model.safetensors.index.json");
  write_file_atomically(
      index, R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}, "metadata": {}})");
  for (const fs::path& given : {path("many"), index}) {
    const SafetensorsModel model(given);
    ASSERT_EQ(model.tensors().size(), 2U);  // those of the index
    EXPECT_EQ(values_of<float>(model.tensors().at("b")), floats_);
    EXPECT_EQ(values_of<uint8_t>(model.tensors().at("a")), bytes_);
  }

  write_file_atomically(index, R"({"weight_map": {"z": "2.safetensors"}})");
  EXPECT_THAT(model_error("many"), HasSubstr("names the tensor z in 2.safetensors"));
  write_file_atomically(index, R"({"weight_map": {"a": "../one/model.safetensors"}})");
  EXPECT_THAT(model_error("many"), HasSubstr("expected the name of a file beside the index"));
  write_file_atomically(index, R"({"weight_map": {"a": 3}})");
  EXPECT_THAT(model_error("many"), HasSubstr("tensor a is in 3"));
  write_file_atomically(index, "[]");
  EXPECT_THAT(model_error("many"), HasSubstr("expected a JSON object with \"weight_map\""));
  write_file_atomically(index, R"({"weight_map": {"a": "3.safetensors"}})");
  EXPECT_THAT(model_error("many"), HasSubstr("cannot open"));
  fs::create_directory(path("none"));
  EXPECT_THAT(model_error("none"), HasSubstr("has neither model.safetensors nor"));
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  write_safetensors(path("x"), {{"b", view("F32", {3}, floats_)}});
  const std::string whole = read_file(path("x"));
  for (size_t length = 0; length < whole.size(); ++length) {
    std::ofstream(path("cut"), std::ios::binary) << whole.substr(0, length);
    EXPECT_THAT(error_of([&] { SafetensorsFile{path("cut")}; }),
                HasSubstr("not a valid safetensors file"))
        << length;
  }
}

TEST_F(Safetensors, HostileHeadersAreRefused) {
  const auto error = [&](const std::string& json, const std::string& data) {
    std::ofstream(path("x"), std::ios::binary) << length_bytes(json.size()) << json << data;
    return error_of([&] { SafetensorsFile{path("x")}; });
  };
  const auto entry = [](const char* shape, const char* offsets) {
    return std::string(R"({"t": {"dtype": "F32", "shape": )") + shape + R"(, "data_offsets": )" +
           offsets + "}}";
  };
  EXPECT_EQ(error(entry("[1]", "[0, 4]"), "abcd"), "no error");
  EXPECT_THAT(error(entry("[2]", "[0, 8]"), "abcd"), HasSubstr("but there are 4 bytes of data"));
  EXPECT_THAT(error(entry("[1]", "[4, 0]"), "abcd"), HasSubstr("lies at bytes 4 to 0"));
  EXPECT_THAT(error(entry("[1]", "[0, 18446744073709551615]"), "abcd"), HasSubstr("lies at bytes"));
  EXPECT_THAT(error(entry("[9223372036854775807, 9]", "[0, 4]"), "abcd"), HasSubstr("overflows"));
  EXPECT_THAT(error(entry("[-1]", "[0, 4]"), "abcd"), HasSubstr("expected a non-negative integer"));
  EXPECT_THAT(error(entry("[1]", "[0, 4]"), "abcdefgh"), HasSubstr("tensors end at byte 4 of 8"));
  EXPECT_THAT(error("[]", ""), HasSubstr("is not a JSON object"));
  std::ofstream(path("x"), std::ios::binary) << length_bytes(UINT64_MAX) << "{}";
  EXPECT_THAT(error_of([&] { SafetensorsFile{path("x")}; }), HasSubstr("its header should have"));
}

}  // namespace
}  // namespace seqfuse::io::io_safetensors_test
