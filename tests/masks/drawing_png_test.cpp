// PNG drawings: the format, read again, and every pixel.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "masks/drawing_png.h"

namespace seqfuse::drawing_png_test {
namespace {

uint32_t number_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

struct Image {
  uint32_t width = 0, height = 0;
  uint32_t end = 0;  // the last chunk's checksum
  std::string rows;  // each a filter byte and pixels of 2 bits

  explicit Image(std::string_view png) {
    EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
    std::string types;
    for (size_t at = 8; at < png.size();) {
      const size_t size = number_at(png, at);
      const std::string_view type = png.substr(at + 4, 4), data = png.substr(at + 8, size);
      types += type;
      if (type == "IHDR") {
        width = number_at(data, 0);
        height = number_at(data, 4);
        EXPECT_EQ(data.substr(8), std::string_view("\x02\x03\0\0\0", 5));
      }
      if (type == "IDAT") inflate(data);
      if (type == "IEND") end = number_at(png, at + 8);
      at += 12 + size;
    }
    EXPECT_EQ(types, "IHDRPLTEIDATIEND");
    EXPECT_EQ(end, 0xae426082);  // of every PNG file
  }
  int pixel(int64_t x, int64_t y) const {
    const size_t row = 1 + (width + 3) / 4;
    return static_cast<uint8_t>(rows.at(y * row + 1 + x / 4)) >> (6 - x % 4 * 2) & 3;
  }

 private:
  void inflate(std::string_view data) {
    EXPECT_EQ((static_cast<uint8_t>(data[0]) * 256 + static_cast<uint8_t>(data[1])) % 31, 0);
    bool last = false;
    size_t at = 2;
    while (!last) {
      last = data[at] == 1;
      const size_t size = static_cast<uint8_t>(data[at + 1]) | static_cast<uint8_t>(data[at + 2])
                                                                   << 8;
      rows += data.substr(at + 5, size);
      at += 5 + size;
    }
    EXPECT_EQ(at + 4, data.size());
  }
};

TEST(DrawingPng, ShowsEveryElement) {
  const masks::Mask mask = masks::window(320, 400, 150, 150) | masks::global(320, 400, 3);
  const Image image(masks::draw_png(masks::BlockMask(mask), 0));
  ASSERT_EQ(image.width, 400);
  ASSERT_EQ(image.height, 320);
  const auto dense = mask.dense();
  int64_t full = 0;
  for (int64_t q = 0; q < 320; ++q) {
    for (int64_t k = 0; k < 400; ++k) {
      const int pixel = image.pixel(k, q);
      ASSERT_EQ(pixel >= 2, dense[static_cast<size_t>(q * 400 + k)] != 0) << q << " " << k;
      full += pixel == 3;
    }
  }
  EXPECT_GT(full, 0);
  EXPECT_EQ(full, masks::BlockMask(mask).counts().full * 4096);
}

TEST(DrawingPng, IsScaled) {
  const Image small(masks::draw_png(masks::BlockMask(masks::causal(2, 3)), 0));
  EXPECT_EQ(small.width, 639);
  EXPECT_EQ(small.height, 426);
  EXPECT_EQ(small.pixel(300, 100), 2);
  EXPECT_EQ(small.pixel(500, 100), 1);
  EXPECT_EQ(small.pixel(500, 300), 2);
  const Image large(masks::draw_png(masks::BlockMask(masks::window(5000, 3000, 0, 0)), 0));
  EXPECT_EQ(large.width, 1000);  // a pixel for 3 x 3 elements
  EXPECT_EQ(large.height, 1667);
  EXPECT_EQ(large.pixel(0, 666), 2);
  EXPECT_EQ(large.pixel(999, 0), 0);
}

}  // namespace
}  // namespace seqfuse::drawing_png_test
